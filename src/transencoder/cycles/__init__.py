"""Trans-Encoder's cycles: bi -> cross -> bi, each student a stage of the run."""

from transencoder.cycles.lab import Lab, Model, load, make_scorer, start_model
from transencoder.cycles.pretraining import pretrained
from transencoder.cycles.self_distillation import self_distil

__all__ = ["Lab", "Model", "load", "make_scorer", "pretrained", "self_distil", "start_model"]
