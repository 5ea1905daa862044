"""A person grades some pairs of a run: which pairs, the files of other tools, and what the grades say of the models."""

from transencoder.grading.choice import Pair, ScoredPairs, choose
from transencoder.grading.judgement import Judgement, check_known, judge
from transencoder.grading.tools import SCALES, Scale, Tool, grades_from, interface_for, tasks_for

__all__ = [
    "SCALES",
    "Judgement",
    "Pair",
    "Scale",
    "ScoredPairs",
    "Tool",
    "check_known",
    "choose",
    "grades_from",
    "interface_for",
    "judge",
    "tasks_for",
]
