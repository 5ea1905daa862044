"""The paper's training pairs: those of the tasks' own splits, scores dropped, exact duplicates removed."""

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict

from datasets import Dataset, concatenate_datasets

from transencoder.errors import InputError
from transencoder.pairs import drop_duplicates, read_pairs
from transencoder.tasks.loading import load, read_split
from transencoder.tasks.table import SUITES, expand
from transencoder.tasks.task import Task

logger = logging.getLogger(__name__)

STS_SICKR_PAIRS = "pairs/sts-sickr"
"""Local data set of all STS and SICK-R pairs, with the unscored SemEval ones that the hub does not have."""

_BATCH_ROWS = 10_000


class Provenance(TypedDict):
    """Where unlabelled pairs came from, as it stands in a run's record."""

    tasks: list[str]
    source: str
    """`pairs/sts-sickr`, or the data sets and splits they were built from."""
    rows: int
    missing_rows: int
    """Pairs the paper trains on that could not be had."""
    excluded_rows: int
    """Pairs left out because a sentence of a test split occurs in them."""
    transductive: bool
    """Whether the test sets' sentences are, without their scores, among the training pairs."""


def unlabelled_pairs(
    tasks: str | Task | Iterable[str | Task],
    *,
    exclude_test_sentences: bool = False,
    data_folder: str | Path | None = None,
    cache_folder: str | Path | None = None,
    token: str | None = None,
) -> tuple[Dataset, Provenance]:
    """Build the unlabelled training pairs of tasks, as the paper does: test splits too, without their scores.

    Args:
        tasks: Names of tasks or suites.
        exclude_test_sentences: Keep no pair in which a sentence of any of the tasks' test splits occurs (the
            inductive setting); sentences are compared without regard to case and white space.
        data_folder: Folder in the hub's layout; without it `TRANSENCODER_DATA`, then the hub.
        cache_folder: Where the hub's files and the Arrow files are kept.
        token: Hub token.

    Returns:
        Columns `sentence1` and `sentence2`, each pair once, and where they came from.

    Raises:
        InputError: unknown task, one that is for evaluation only, or no pair is left.
    """
    chosen = expand(tasks)
    without = [task.name for task in chosen if not task.unlabelled]
    if without:
        raise InputError(
            f"{', '.join(without)}: for evaluation only, no method trains on its pairs. Give other tasks, or a file of "
            "pairs"
        )
    pairs, source, missing = _all_pairs(chosen, data_folder=data_folder, cache_folder=cache_folder, token=token)
    n_all = len(pairs)
    if exclude_test_sentences:
        where: dict[str, Any] = {"data_folder": data_folder, "cache_folder": cache_folder, "token": token}
        tests = [load(task, "test", **where) for task in chosen if "test" in task.splits]
        pairs = without_sentences(pairs, sentences_of(tests))
    if not len(pairs):
        raise InputError(
            f"no unlabelled pair is left of {', '.join(task.name for task in chosen)}: "
            f"all {n_all} hold a sentence of a test split; "
            "add tasks with other splits, or keep the test sentences"
        )
    return pairs, {
        "tasks": [task.name for task in chosen],
        "source": source,
        "rows": len(pairs),
        "missing_rows": missing,
        "excluded_rows": n_all - len(pairs),
        "transductive": not exclude_test_sentences and any(_trains_on_test(task) for task in chosen),
    }


def _all_pairs(
    tasks: tuple[Task, ...],
    *,
    data_folder: str | Path | None,
    cache_folder: str | Path | None,
    token: str | None,
) -> tuple[Dataset, str, int]:
    """The pairs without exact duplicates, where they came from, and how many of the paper's are missing."""
    if {task.name for task in tasks} == set(SUITES["sts"]) and _is_local(STS_SICKR_PAIRS, data_folder):
        pairs = read_pairs(
            STS_SICKR_PAIRS,
            columns=("sentence1", "sentence2"),
            split="train",
            data_folder=data_folder,
            cache_folder=cache_folder,
        )
        return drop_duplicates(pairs), STS_SICKR_PAIRS, 0
    splits = [
        read_split(task, split, scored=False, data_folder=data_folder, cache_folder=cache_folder, token=token)
        for task in tasks
        for split in task.unlabelled
    ]
    pairs = drop_duplicates(concatenate_datasets(splits))
    missing = sum(task.unscored_pairs for task in tasks)
    if missing:
        _warn_of_missing(tasks, rows=len(pairs), missing=missing)
    return pairs, _source_of(tasks), missing


def _is_local(source: str, data_folder: str | Path | None) -> bool:
    folder = data_folder or os.environ.get("TRANSENCODER_DATA")
    return bool(folder) and (Path(str(folder)).expanduser() / source).is_dir()


def _source_of(tasks: Iterable[Task]) -> str:
    return "; ".join(f"{task.dataset} ({', '.join(task.unlabelled)})" for task in tasks)


def _warn_of_missing(tasks: Iterable[Task], *, rows: int, missing: int) -> None:
    parts = ", ".join(f"{task.title} {task.unscored_pairs}" for task in tasks if task.unscored_pairs)
    logger.warning(
        "%d unlabelled pairs were built from the tasks' scored splits; the paper's set has %d more (%s): "
        "SemEval released them without a gold score and they are not on the hub.",
        rows,
        missing,
        parts,
    )


def sentences_of(datasets: Iterable[Dataset]) -> set[str]:
    """The sentences of pairs, without regard to case and white space, as `without_sentences` takes them."""
    return {
        _normalised(text) for dataset in datasets for column in ("sentence1", "sentence2") for text in dataset[column]
    }


def without_sentences(rows: Dataset, sentences: set[str]) -> Dataset:
    """The pairs or sentences that hold none of the sentences; `sentences_of` makes the set."""
    columns = [column for column in ("sentence1", "sentence2", "text") if column in rows.column_names]
    kept: list[int] = []
    for offset in range(0, len(rows), _BATCH_ROWS):
        batch = rows[offset : offset + _BATCH_ROWS]
        for row, texts in enumerate(zip(*(batch[column] for column in columns), strict=True), start=offset):
            if not any(_normalised(text) in sentences for text in texts):
                kept.append(row)
    return rows.select(kept)


def _normalised(text: str) -> str:
    return " ".join(text.casefold().split())


def _trains_on_test(task: Task) -> bool:
    """By the names of splits; a run with tests compares the sentences themselves."""
    return "test" in task.splits and _whole(task.splits["test"]) in {_whole(split) for split in task.unlabelled}


def _whole(split: str) -> str:
    return split.partition("[")[0]
