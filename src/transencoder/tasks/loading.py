"""Read one role of a task, from the local data folder or the hub."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from transencoder.errors import InputError
from transencoder.pairs import read_candidates, read_pairs
from transencoder.tasks.table import dev_task, expand
from transencoder.tasks.task import Role, StandIn, Task

logger = logging.getLogger(__name__)

_NO_LABEL = -1.0
"""The hub's mark of a label that was kept back."""


def load(
    task: Task | str,
    role: Role,
    *,
    data_folder: str | Path | None = None,
    cache_folder: str | Path | None = None,
    revision: str | None = None,
    token: str | None = None,
) -> Dataset:
    """Read the scored pairs of a task.

    Args:
        task: A task or its name; for `dev` also a suite's name, which gives the suite's dev set.
        role: `train`, `dev` or `test`. A task without its own dev set gives the one the paper uses; a test split whose
            labels were kept back gives the task's stand-in, with a warning.
        data_folder: Folder in the hub's layout; without it `TRANSENCODER_DATA`, then the hub.
        cache_folder: Where the hub's files and the Arrow files are kept.
        revision: Hub revision instead of the task's own.
        token: Hub token.

    Returns:
        Columns `sentence1`, `sentence2` and `score` in the task's own range, in the order of the data set; for a
        task of queries with candidates also `query`, the number of the query.

    Raises:
        InputError: unknown name, a role the task does not have, or a score out of the task's range.
    """
    return load_named(
        task,
        role,
        data_folder=data_folder,
        cache_folder=cache_folder,
        revision=revision,
        token=token,
    )[0]


def load_named(
    task: Task | str,
    role: Role,
    *,
    data_folder: str | Path | None = None,
    cache_folder: str | Path | None = None,
    revision: str | None = None,
    token: str | None = None,
) -> tuple[Dataset, str]:
    """What `load` gives, and which rows they are: `test`, or `validation[1000:], 10000 rows drawn with seed 0`."""
    resolved = dev_task(task) if role == "dev" else _single(task)
    if role not in resolved.splits:
        has = (
            f"it has: {', '.join(resolved.splits)}" if resolved.splits else "its pairs are for training, without labels"
        )
        raise InputError(f"task {resolved.name!r} has no {role} split; {has}. Choose another split or task.")
    where: dict[str, Any] = {
        "data_folder": data_folder,
        "cache_folder": cache_folder,
        "revision": revision,
        "token": token,
    }
    split, stand_in = resolved.splits[role], resolved.stand_in if role == "test" else None
    if stand_in is None:
        rows = read_split(resolved, split, scored=True, **where)
        return (_with_class(rows, resolved, split) if resolved.metric == "accuracy" else rows), split
    open_range = replace(resolved, score_range=(_NO_LABEL, resolved.score_range[1]), positive_label=None)
    rows = read_split(open_range, split, scored=True, **where)
    labels = np.asarray(rows["score"][:])
    if (labels == _NO_LABEL).all():
        drawn = f"{stand_in.split}, {stand_in.rows} rows drawn with seed {stand_in.seed}"
        logger.warning("%s: the split %s has no labels; in its place: %s", resolved.name, split, drawn)
        return _drawn(read_split(resolved, stand_in.split, scored=True, **where), stand_in), drawn
    if (labels == _NO_LABEL).any():
        row = int((labels == _NO_LABEL).argmax())
        raise InputError(
            f"{resolved.name}: row {row + 1} of {split} has the label -1, which means none, but others have labels. "
            "Take such rows out"
        )
    return _as_scores(rows, resolved), split


def range_of(task: Task) -> tuple[float, float]:
    """Lowest and highest of the scores that `load` gives."""
    return (0.0, 1.0) if task.positive_label is not None else task.score_range


def load_classes(
    task: Task | str,
    *,
    data_folder: str | Path | None = None,
    cache_folder: str | Path | None = None,
    token: str | None = None,
) -> dict[Role, Dataset]:
    """What a classifier is trained, chosen and measured on: `train`, `dev` and `test` as `load` reads them."""
    where: dict[str, Any] = {"data_folder": data_folder, "cache_folder": cache_folder, "token": token}
    roles: tuple[Role, ...] = ("train", "dev", "test")
    return {role: load(task, role, **where) for role in roles}


def _with_class(rows: Dataset, task: Task, split: str) -> Dataset:
    """Without the rows on whose class annotators did not agree."""
    has_class = np.asarray(rows["score"][:]) != _NO_LABEL
    if has_class.all():
        return rows
    if not has_class.any():
        raise InputError(f"{task.name}: none of the {len(rows)} rows of {split} has a class (all are -1)")
    logger.info(
        "%s: %d of %d rows of %s have no class and are left out", task.name, (~has_class).sum(), len(rows), split
    )
    return rows.select(np.flatnonzero(has_class))


def _drawn(rows: Dataset, stand_in: StandIn) -> Dataset:
    n_rows = min(stand_in.rows, len(rows))
    return rows.select(np.sort(np.random.default_rng(stand_in.seed).choice(len(rows), n_rows, replace=False)))


def read_split(
    task: Task,
    split: str,
    *,
    scored: bool,
    data_folder: str | Path | None,
    cache_folder: str | Path | None,
    revision: str | None = None,
    token: str | None = None,
) -> Dataset:
    """Read a split such as `test` or `validation[:1000]` of a task's data set, with or without its scores."""
    if task.layout == "candidates":
        return read_candidates(
            task.dataset,
            columns=task.columns,
            split=split,
            config=task.config,
            revision=revision or task.revision,
            token=token,
            cache_folder=cache_folder,
            data_folder=data_folder,
        )
    first, second, score = task.columns
    dataset = read_pairs(
        task.dataset,
        columns=(first, second),
        score_column=score if scored else None,
        score_range=task.score_range if scored else None,
        split=split,
        config=task.config,
        revision=revision or task.revision,
        token=token,
        cache_folder=cache_folder,
        data_folder=data_folder,
    )
    dataset = dataset.select_columns(["sentence1", "sentence2", *(["score"] if scored else [])])
    return _as_scores(dataset, task) if scored else dataset


def _as_scores(rows: Dataset, task: Task) -> Dataset:
    """Classes as scores: 1 for the one that means yes, 0 for the others."""
    if task.positive_label is None:
        return rows
    is_positive = np.asarray(rows["score"][:]) == task.positive_label
    return rows.remove_columns("score").add_column("score", is_positive.astype(np.float64).tolist())


def _single(name: Task | str) -> Task:
    tasks = expand(name)
    if len(tasks) > 1:
        names = ", ".join(task.name for task in tasks)
        raise InputError(f"{name!r} is a suite of several tasks ({names}); load them one at a time")
    return tasks[0]
