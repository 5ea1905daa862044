"""Grading of a run's pairs by a person: choice of pairs, files of other tools, and metrics of models by the grades."""

from transencoder.grading.choice import Pair, ScoredPairs, choose
from transencoder.grading.judgement import HOW_DRAWN, Judgement, check_known, judge
from transencoder.grading.tools import SCALES, Scale, Tool, grades_from, interface_for, tasks_for

__all__ = [
    "HOW_DRAWN",
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
