"""The tables of tasks and suites, and how a name the user typed is looked up in them."""

from collections.abc import Iterable
from difflib import get_close_matches

from transencoder.errors import InputError
from transencoder.tasks.glue import MRPC, QNLI, QQP
from transencoder.tasks.reranking import ASKUBUNTU, SCIDOCS
from transencoder.tasks.sick import SICKE, SICKR
from transencoder.tasks.snli import SNLI
from transencoder.tasks.sts import STS12, STS13, STS14, STS15, STS16, STSB
from transencoder.tasks.task import Task

TASKS: dict[str, Task] = {
    task.name: task
    for task in (STS12, STS13, STS14, STS15, STS16, STSB, SICKR, QQP, QNLI, MRPC, SICKE, SNLI, ASKUBUNTU, SCIDOCS)
}

SUITES: dict[str, tuple[str, ...]] = {
    "sts": ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"),
    "binary": ("qqp", "qnli", "mrpc"),
    "reranking": ("askubuntu", "scidocs"),
    "nli": ("sicke", "snli"),
}

SUITE_DEV: dict[str, str] = {"sts": "stsb", "reranking": "askubuntu"}
"""Suite -> the task whose dev set chooses checkpoints for all of it: as in the paper (section 4) for sts; ours."""


def expand(names: str | Task | Iterable[str | Task]) -> tuple[Task, ...]:
    """Turn names of tasks and suites into tasks: order kept, each task once.

    Raises:
        InputError: a name is in neither table.
    """
    if isinstance(names, str | Task):
        names = (names,)
    found: dict[str, Task] = {}
    for name in names:
        for task in _tasks_of(name):
            found.setdefault(task.name, task)
    return tuple(found.values())


def dev_task(name: str | Task) -> Task:
    """The task whose dev set chooses checkpoints for `name`, a task or a suite.

    Raises:
        InputError: a name is in neither table, or a suite's whose tasks each have a dev set of their own.
    """
    if isinstance(name, str) and name in SUITE_DEV:
        return TASKS[SUITE_DEV[name]]
    if isinstance(name, str) and name in SUITES:
        raise InputError(
            f"{name!r} is a suite whose tasks each have a dev set of their own; give one of: {', '.join(SUITES[name])}"
        )
    (task,) = _tasks_of(name)
    return TASKS[task.dev_task] if "dev" not in task.splits and task.dev_task else task


def _tasks_of(name: str | Task) -> tuple[Task, ...]:
    if isinstance(name, Task):
        return (name,)
    if name in SUITES:
        return tuple(TASKS[member] for member in SUITES[name])
    if name in TASKS:
        return (TASKS[name],)
    valid = [*TASKS, *SUITES]
    nearest = get_close_matches(name.lower(), valid, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    raise InputError(f"unknown task {name!r}; {hint}tasks: {', '.join(TASKS)}; suites: {', '.join(SUITES)}")
