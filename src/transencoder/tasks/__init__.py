"""Benchmarks as data: where the pairs are, what their scores mean, how agreement is measured."""

from transencoder.tasks.loading import (
    load,
    load_classes,
    load_named,
    range_of,
    sentences_of,
    unlabelled_pairs,
    without_sentences,
)
from transencoder.tasks.table import SUITE_DEV, SUITES, TASKS, Role, StandIn, Task, dev_task, expand

__all__ = [
    "SUITES",
    "SUITE_DEV",
    "TASKS",
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
