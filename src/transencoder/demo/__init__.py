"""The demonstration: a small domain that the project wrote itself, and one run on it."""

from transencoder.demo.run import demo_config, run_demo

__all__ = ["demo_config", "run_demo"]
