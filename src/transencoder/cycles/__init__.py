"""Trans-Encoder's cycles: bi -> cross -> bi, each student a stage of the run."""

from transencoder.cycles.distillation import distil
from transencoder.cycles.lab import Lab, LabMember, Model, load, make_scorer, start_model
from transencoder.cycles.pretraining import pretrained
from transencoder.cycles.students import may_leave_range

__all__ = [
    "Lab",
    "LabMember",
    "Model",
    "distil",
    "load",
    "make_scorer",
    "may_leave_range",
    "pretrained",
    "start_model",
]
