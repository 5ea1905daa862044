"""Read one role of a task, from the local data folder or the hub."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from transencoder.errors import InputError
from transencoder.pairs import read_candidates, read_pairs
from transencoder.tasks.table import dev_task, expand
from transencoder.tasks.task import Role, StandIn, Task


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
        role: `train`, `dev` or `test`. A task without its own dev set gives the one the paper uses.
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
        raise InputError(
            f"task {resolved.name!r} has no {role} split; it has: {', '.join(resolved.splits)}. "
            "Choose one of those, or another task."
        )
    where: dict[str, Any] = {
        "data_folder": data_folder,
        "cache_folder": cache_folder,
        "revision": revision,
        "token": token,
    }
    split = resolved.splits[role]
    stand_in = resolved.stand_in if role == "test" else None
    if stand_in is not None and not _is_labelled(resolved, split, **where):
        rows = read_split(resolved, stand_in.split, scored=True, **where)
        return _drawn(rows, stand_in), f"{stand_in.split}, {stand_in.rows} rows drawn with seed {stand_in.seed}"
    return read_split(resolved, split, scored=True, **where), split


def _is_labelled(task: Task, split: str, **where: Any) -> bool:
    """Whether a split has gold labels: on the hub those of tests that were kept back are all -1."""
    kept_back = replace(task, score_range=(-1.0, task.score_range[1]), positive_label=None)
    labels = np.asarray(read_split(kept_back, split, scored=True, **where)["score"][:])
    return bool((labels != -1).any())


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
    if not scored or task.positive_label is None:
        return dataset
    is_positive = np.asarray(dataset["score"][:]) == task.positive_label
    return dataset.remove_columns("score").add_column("score", is_positive.astype(np.float64).tolist())


def _single(name: Task | str) -> Task:
    tasks = expand(name)
    if len(tasks) > 1:
        names = ", ".join(task.name for task in tasks)
        raise InputError(f"{name!r} is a suite of several tasks ({names}); load them one at a time")
    return tasks[0]
