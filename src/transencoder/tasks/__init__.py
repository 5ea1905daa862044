"""Benchmarks as data: where the pairs are, what their scores mean, how agreement is measured."""

from transencoder.tasks.loading import load, load_classes, load_named, range_of
from transencoder.tasks.table import SUITE_DEV, SUITES, TASKS, dev_task, expand
from transencoder.tasks.task import Role, StandIn, Task
from transencoder.tasks.unlabelled import Provenance, sentences_of, unlabelled_pairs, without_sentences

__all__ = [
    "SUITES",
    "SUITE_DEV",
    "TASKS",
    "Provenance",
    "Role",
    "StandIn",
    "Task",
    "dev_task",
    "expand",
    "load",
    "load_classes",
    "load_named",
    "range_of",
    "sentences_of",
    "unlabelled_pairs",
    "without_sentences",
]
