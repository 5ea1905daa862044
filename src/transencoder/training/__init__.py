"""The engine: `train` and `plan` take the config of any method."""

from transencoder.training.run import Plan, Trained, plan, train

__all__ = ["Plan", "Trained", "plan", "train"]
