"""Trans-Encoder's cycles: bi -> cross -> bi, each student a stage of the run."""

from transencoder.cycles.distillation import distil
from transencoder.cycles.lab import Lab, LabMember, Model, load, make_scorer, own_first, start_model
from transencoder.cycles.pretraining import pretrained
from transencoder.cycles.students import may_leave_range
from transencoder.cycles.unlabelled import start_criteria, warn_of_weak_starts

__all__ = [
    "Lab",
    "LabMember",
    "Model",
    "distil",
    "load",
    "make_scorer",
    "may_leave_range",
    "own_first",
    "pretrained",
    "start_criteria",
    "start_model",
    "warn_of_weak_starts",
]
