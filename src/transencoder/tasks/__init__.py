"""Benchmarks as data: where the pairs are, what their scores mean, how agreement is measured."""

from transencoder.tasks.loading import load
from transencoder.tasks.table import SUITE_DEV, SUITES, TASKS, dev_task, expand
from transencoder.tasks.task import Role, Task
from transencoder.tasks.unlabelled import Provenance, sentences_of, unlabelled_pairs, without_sentences

__all__ = [
    "SUITES",
    "SUITE_DEV",
    "TASKS",
    "Provenance",
    "Role",
    "Task",
    "dev_task",
    "expand",
    "load",
    "sentences_of",
    "unlabelled_pairs",
    "without_sentences",
]
