"""Trans-Encoder's cycles: bi -> cross -> bi, each student a stage of the run."""

from transencoder.cycles.distillation import distil as distil
from transencoder.cycles.members import ContextMember as ContextMember
from transencoder.cycles.members import ContextTeacher as ContextTeacher
from transencoder.cycles.members import CycleContext as CycleContext
from transencoder.cycles.members import base_criteria as base_criteria
from transencoder.cycles.members import warn_of_weak_bases as warn_of_weak_bases
from transencoder.cycles.members import with_pretraining as with_pretraining
