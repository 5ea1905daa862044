"""Grading of a run's pairs by a person: choice of pairs, files of other tools, and metrics of models by the grades."""

from transencoder.grading.choice import Pair as Pair
from transencoder.grading.choice import ScoredPairs as ScoredPairs
from transencoder.grading.choice import choose as choose
from transencoder.grading.judgement import HOW_DRAWN as HOW_DRAWN
from transencoder.grading.judgement import check_known as check_known
from transencoder.grading.judgement import judge as judge
from transencoder.grading.tools import SCALES as SCALES
from transencoder.grading.tools import Scale as Scale
from transencoder.grading.tools import grades_from as grades_from
from transencoder.grading.tools import interface_for as interface_for
from transencoder.grading.tools import tasks_for as tasks_for
