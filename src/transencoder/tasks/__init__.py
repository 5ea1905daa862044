"""Benchmarks as data (`table`), and readers of their rows: scored pairs of one role, and unlabelled training pairs.

Rows are read from the local data folder or the hub.
"""

import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from datasets import Dataset, concatenate_datasets

from transencoder import pairs as reading
from transencoder.errors import InputError
from transencoder.tasks.table import SUITE_DEV as SUITE_DEV
from transencoder.tasks.table import SUITES as SUITES
from transencoder.tasks.table import TASKS as TASKS
from transencoder.tasks.table import Role as Role
from transencoder.tasks.table import StandIn as StandIn
from transencoder.tasks.table import Task as Task
from transencoder.tasks.table import dev_task as dev_task
from transencoder.tasks.table import expand as expand

logger = logging.getLogger(__name__)

STS_SICKR_PAIRS = "pairs/sts-sickr"
"""Local data set of all STS and SICK-R pairs, including the unscored SemEval pairs that are not on the hub."""

_NO_LABEL = -1.0
"""Value with which the hub marks a label that was withheld."""
_BATCH_ROWS = 10_000


def load(
    task: Task | str,
    role: Role,
    *,
    data_folder: str | Path | None = None,
    cache_folder: str | Path | None = None,
    token: str | None = None,
) -> Dataset:
    """Read the scored pairs of a task.

    Args:
        task: A task or its name; for `dev` also a suite's name, which gives the suite's dev set.
        role: `train`, `dev` or `test`. If a task has no dev set of its own, the one the paper uses is read. If the
            labels of a test split were withheld, the task's stand-in is read, with a warning.
        data_folder: Folder in the hub's layout; without it `TRANSENCODER_DATA`, then the hub.
        cache_folder: Folder for the hub's files and the Arrow files.
        token: Hub token.

    Returns:
        Columns `sentence1`, `sentence2` and `score` in the task's own range, in the order of the data set; for a
        task of queries with candidates also `query`, the number of the query.

    Raises:
        InputError: unknown name, a role the task does not have, or a score out of the task's range.
    """
    return load_named(task, role, data_folder=data_folder, cache_folder=cache_folder, token=token)[0]


def load_named(
    task: Task | str,
    role: Role,
    *,
    data_folder: str | Path | None = None,
    cache_folder: str | Path | None = None,
    token: str | None = None,
) -> tuple[Dataset, str]:
    """Return the pairs as `load` does, and their rows: `test`, or `validation[1000:], 10000 rows drawn with seed 0`."""
    task = dev_task(task) if role == "dev" else _single(task)
    if role not in task.splits:
        has = f"it has: {', '.join(task.splits)}" if task.splits else "its pairs are for training, without labels"
        raise InputError(f"task {task.name!r} has no {role} split; {has}. Choose another split or task.")
    where = {"data_folder": data_folder, "cache_folder": cache_folder, "token": token}
    split, stand_in = task.splits[role], task.stand_in
    if role != "test" or stand_in is None:
        rows = _scored(task, split, where)
        return (_with_class(rows, task, split) if task.metric == "accuracy" else rows), split
    rows = _scored(replace(task, score_range=(_NO_LABEL, task.score_range[1]), positive_label=None), split, where)
    has_label = np.asarray(rows["score"][:]) != _NO_LABEL
    if has_label.all():
        return _as_scores(rows, task), split
    if has_label.any():
        raise InputError(
            f"{task.name}: row {int(has_label.argmin()) + 1} of {split} has the label -1, which means none, but others "
            "have labels. Take such rows out"
        )
    drawn = f"{stand_in.split}, {stand_in.rows} rows drawn with seed {stand_in.seed}"
    logger.warning("%s: the split %s has no labels; in its place: %s", task.name, split, drawn)
    others = _scored(task, stand_in.split, where)
    n_rows = min(stand_in.rows, len(others))
    chosen = np.random.default_rng(stand_in.seed).choice(len(others), n_rows, replace=False)
    return others.select(np.sort(chosen)), drawn


def range_of(task: Task) -> tuple[float, float]:
    """Return the lowest and the highest score that pairs from `load` can have."""
    return (0.0, 1.0) if task.positive_label is not None else task.score_range


class Provenance(TypedDict):
    """Origin of unlabelled pairs, as stored in a run's record."""

    tasks: list[str]
    source: str
    """`pairs/sts-sickr`, or the data sets and splits that the pairs were built from."""
    rows: int
    missing_rows: int
    """Number of pairs that the paper trains on but that are not available."""
    excluded_rows: int
    """Number of pairs left out because they contain a sentence of a test split."""
    transductive: bool
    """Whether the training pairs contain the test sets' sentences, without their scores."""


def unlabelled_pairs(
    tasks: str | Task | Iterable[str | Task],
    *,
    exclude_test_sentences: bool = False,
    data_folder: str | Path | None = None,
    cache_folder: str | Path | None = None,
    token: str | None = None,
) -> tuple[Dataset, Provenance]:
    """Build the unlabelled training pairs of tasks, as the paper does: from test splits too, without their scores.

    Args:
        tasks: Tasks, or names of tasks or suites.
        exclude_test_sentences: Whether to drop all pairs that contain a sentence of the pairs that the tasks are tested
            on (the inductive setting); sentences are compared without regard to case and white space.
        data_folder: As in `load`.
        cache_folder: As in `load`.
        token: As in `load`.

    Returns:
        Columns `sentence1` and `sentence2`, each pair once, and the origin of the pairs.

    Raises:
        InputError: unknown task, a task for evaluation only, or no pair is left.
    """
    chosen = expand(tasks)
    without = [task.name for task in chosen if not task.unlabelled]
    if without:
        raise InputError(
            f"{', '.join(without)}: for evaluation only, no method trains on its pairs. Give other tasks, or a file of "
            "pairs"
        )
    where: dict[str, Any] = {"data_folder": data_folder, "cache_folder": cache_folder, "token": token}
    pairs, source, missing = _all_pairs(chosen, where)
    n_all = len(pairs)
    if exclude_test_sentences:
        tests = [load(task, "test", **where) for task in chosen if "test" in task.splits]
        pairs = without_sentences(pairs, sentences_of(tests))
    if not len(pairs):
        raise InputError(
            f"no unlabelled pair is left of {', '.join(task.name for task in chosen)}: all {n_all} hold a sentence of "
            "a test split; add tasks with other splits, or keep the test sentences"
        )
    return pairs, {
        "tasks": [task.name for task in chosen],
        "source": source,
        "rows": len(pairs),
        "missing_rows": missing,
        "excluded_rows": n_all - len(pairs),
        "transductive": not exclude_test_sentences and any(_trains_on_test(task) for task in chosen),
    }


def sentences_of(datasets: Iterable[Dataset]) -> set[str]:
    """Collect the sentences of pairs, normalised in case and white space, for `without_sentences`."""
    columns = ("sentence1", "sentence2")
    return {_normalised(text) for dataset in datasets for column in columns for text in dataset[column][:]}


def without_sentences(rows: Dataset, sentences: set[str]) -> Dataset:
    """Drop the rows (pairs or sentences) that contain one of the given sentences; `sentences_of` builds the set."""
    columns = [column for column in ("sentence1", "sentence2", "text") if column in rows.column_names]
    kept: list[int] = []
    for offset in range(0, len(rows), _BATCH_ROWS):
        batch = rows[offset : offset + _BATCH_ROWS]
        for row, texts in enumerate(zip(*(batch[column] for column in columns), strict=True), start=offset):
            if not any(_normalised(text) in sentences for text in texts):
                kept.append(row)
    return rows.select(kept)


def _scored(task: Task, split: str, where: dict[str, Any]) -> Dataset:
    """Read a split such as `test` or `validation[:1000]` with its scores."""
    source = source_of(task, split, where)
    if task.layout == "candidates":
        return reading.read_candidates(replace(source, columns=task.columns))
    source = replace(source, score_column=task.columns[2], score_range=task.score_range)
    return _as_scores(reading.read_rows(source, reading.PAIRS), task)


def source_of(task: Task, split: str, where: dict[str, Any]) -> reading.Source:
    """Return the source of a split's texts."""
    return reading.Source(
        task.dataset, columns=task.columns[:2], split=split, config=task.config, revision=task.revision, **where
    )


def _as_scores(rows: Dataset, task: Task) -> Dataset:
    """Turn classes into scores: 1 for the positive class, 0 for the others."""
    if task.positive_label is None:
        return rows
    is_positive = np.asarray(rows["score"][:]) == task.positive_label
    return rows.remove_columns("score").add_column("score", is_positive.astype(np.float64).tolist())


def _with_class(rows: Dataset, task: Task, split: str) -> Dataset:
    """Drop the rows without a class, on which annotators did not agree."""
    has_class = np.asarray(rows["score"][:]) != _NO_LABEL
    if has_class.all():
        return rows
    if not has_class.any():
        raise InputError(f"{task.name}: none of the {len(rows)} rows of {split} has a class (all are -1)")
    n_without = len(rows) - int(has_class.sum())
    logger.info("%s: %d of %d rows of %s have no class and are left out", task.name, n_without, len(rows), split)
    return rows.select(np.flatnonzero(has_class))


def _single(name: Task | str) -> Task:
    tasks = expand(name)
    if len(tasks) > 1:
        names = ", ".join(task.name for task in tasks)
        raise InputError(f"{name!r} is a suite of several tasks ({names}); load them one at a time")
    return tasks[0]


def _all_pairs(tasks: tuple[Task, ...], where: dict[str, Any]) -> tuple[Dataset, str, int]:
    """Return the pairs without exact duplicates, their origin, and the number of the paper's pairs that are missing."""
    data_folder = where["data_folder"] or os.environ.get("TRANSENCODER_DATA") or ""
    is_local = bool(data_folder) and (Path(data_folder).expanduser() / STS_SICKR_PAIRS).is_dir()
    if is_local and {task.name for task in tasks} == set(SUITES["sts"]):
        pairs = reading.read_pairs(STS_SICKR_PAIRS, columns=("sentence1", "sentence2"), split="train", **where)
        return reading.drop_duplicates(pairs), STS_SICKR_PAIRS, 0
    sources = [source_of(task, split, where) for task in tasks for split in task.unlabelled]
    splits = [reading.read_rows(source, reading.PAIRS).select_columns(["sentence1", "sentence2"]) for source in sources]
    pairs = reading.drop_duplicates(concatenate_datasets(splits))
    missing = sum(task.unscored_pairs for task in tasks)
    if missing:
        parts = ", ".join(f"{task.title} {task.unscored_pairs}" for task in tasks if task.unscored_pairs)
        logger.warning(
            "%d unlabelled pairs were built from the tasks' scored splits; the paper's set has %d more (%s): "
            "SemEval released them without a gold score and they are not on the hub.",
            len(pairs),
            missing,
            parts,
        )
    return pairs, "; ".join(f"{task.dataset} ({', '.join(task.unlabelled)})" for task in tasks), missing


def _normalised(text: str) -> str:
    return " ".join(text.casefold().split())


def _trains_on_test(task: Task) -> bool:
    """Check by the names of splits whether a task trains on its test split; a run with tests compares the sentences."""
    unlabelled = {split.partition("[")[0] for split in task.unlabelled}
    return "test" in task.splits and task.splits["test"].partition("[")[0] in unlabelled
