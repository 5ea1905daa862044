"""Trans-Encoder's cycles: bi -> cross -> bi, each student a stage of the run."""

from transencoder.cycles.distillation import distil
from transencoder.cycles.members import (
    ContextMember,
    ContextTeacher,
    CycleContext,
    base_criteria,
    warn_of_weak_bases,
    with_pretraining,
)

__all__ = [
    "ContextMember",
    "ContextTeacher",
    "CycleContext",
    "base_criteria",
    "distil",
    "warn_of_weak_bases",
    "with_pretraining",
]
