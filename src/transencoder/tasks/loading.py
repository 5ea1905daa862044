"""Read one role of a task, from the local data folder or the hub."""

from pathlib import Path

from datasets import Dataset

from transencoder.errors import InputError
from transencoder.pairs import read_candidates, read_pairs
from transencoder.tasks.table import dev_task, expand
from transencoder.tasks.task import Role, Task


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
    resolved = dev_task(task) if role == "dev" else _single(task)
    if role not in resolved.splits:
        raise InputError(
            f"task {resolved.name!r} has no {role} split; it has: {', '.join(resolved.splits)}. "
            "Choose one of those, or another task."
        )
    return read_split(
        resolved,
        resolved.splits[role],
        scored=True,
        data_folder=data_folder,
        cache_folder=cache_folder,
        revision=revision,
        token=token,
    )


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
    return dataset.select_columns(["sentence1", "sentence2", *(["score"] if scored else [])])


def _single(name: Task | str) -> Task:
    tasks = expand(name)
    if len(tasks) > 1:
        names = ", ".join(task.name for task in tasks)
        raise InputError(f"{name!r} is a suite of several tasks ({names}); load them one at a time")
    return tasks[0]
