"""A person grades some pairs of a run: which pairs, the files of other tools, and what the grades say of the models."""

from transencoder.grading.choice import choose
from transencoder.grading.judgement import Judgement, check, judge, strange
from transencoder.grading.tools import SCALES, Scale, Tool, grades_from, set_up, tasks_for

__all__ = [
    "SCALES",
    "Judgement",
    "Scale",
    "Tool",
    "check",
    "choose",
    "grades_from",
    "judge",
    "set_up",
    "strange",
    "tasks_for",
]
