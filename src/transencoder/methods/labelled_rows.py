"""Labelled rows to train on, with classes or with scores (DvBERT)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Value, concatenate_datasets

from transencoder import tasks
from transencoder.errors import InputError
from transencoder.methods.dvbert import DvBERT
from transencoder.methods.labelled import data_record, source_name
from transencoder.pairs import ClassPairs, read_classes, read_pairs
from transencoder.report.result import DataRecord


def read_labelled_rows(config: DvBERT, bad_rows_file: Path | None) -> tuple[Dataset, DataRecord]:
    """All labelled rows: `sentence1`, `sentence2` and `label`, the number of a class or a score in [0, 1].

    Raises:
        InputError: A source cannot be read, or its classes are others than those of the one before.
    """
    sources = [config.labelled, *config.more_labelled]
    read = _classes if config.label_kind == "classes" else _scores
    rows, names = read(config, sources, bad_rows_file)
    record: Any = data_record(" and ".join(map(source_name, sources)), rows)
    record["gold_rows"] = len(rows)
    if names:
        record["classes"] = list(names)
    return rows, record


def _classes(
    config: DvBERT, sources: Sequence[str | Dataset], bad_rows_file: Path | None
) -> tuple[Dataset, tuple[str, ...]]:
    names = config.class_names
    parts = []
    for number, source in enumerate(sources):
        task = _task(source)
        if task is None:
            options = _reading(config, bad_rows_file, number)
            found = read_classes(source, label_column=config.label_column, class_names=names, **options)
        else:
            found = _task_classes(config, task, names)
        names = names or found.names
        parts.append(_with_labels(found.pairs, found.classes))
    return concatenate_datasets(parts), names


def _scores(
    config: DvBERT, sources: Sequence[str | Dataset], bad_rows_file: Path | None
) -> tuple[Dataset, tuple[str, ...]]:
    parts = []
    for number, source in enumerate(sources):
        low, high = config.score_range
        if (task := _task(source)) is not None:
            pairs, low, high = tasks.load(task, "train", **_where(config)), *tasks.range_of(task)
        else:
            options = _reading(config, bad_rows_file, number)
            column = config.label_column or "score"
            pairs = read_pairs(source, score_column=column, score_range=(low, high), **options)
        texts = pairs.select_columns(["sentence1", "sentence2"])
        parts.append(_with_labels(texts, (np.asarray(pairs["score"][:]) - low) / (high - low)))
    return concatenate_datasets(parts), ()


def _task(source: str | Dataset) -> tasks.Task | None:
    """The task that is meant, whose train split it is; None for a file or a data set."""
    return tasks.TASKS.get(source) if isinstance(source, str) else None


def _task_classes(config: DvBERT, task: tasks.Task, names: tuple[str, ...]) -> ClassPairs:
    if task.metric != "accuracy" and task.positive_label is None:
        raise InputError(f"{task.name} has scores, no classes; give label_kind scores, or another task")
    part = "" if task.config is None else f":{task.config}"
    return read_classes(
        f"{task.dataset}{part}@{task.revision}",
        columns=task.columns[:2],
        label_column=task.columns[2],
        class_names=names or task.class_names,
        split=task.splits["train"],
        **_where(config),
    )


def _where(config: DvBERT) -> dict[str, Any]:
    return {"cache_folder": config.cache_dir, "data_folder": config.data_dir, "token": config.token}


def _with_labels(pairs: Dataset, labels: np.ndarray) -> Dataset:
    return pairs.add_column("label", labels.astype(np.float64).tolist(), feature=Value("float64"))


def _reading(config: DvBERT, bad_rows_file: Path | None, number: int) -> dict[str, Any]:
    path = bad_rows_file if config.skip_bad_rows else None
    if path is not None and number:
        path = path.with_name(f"{path.stem}-{number + 1}{path.suffix}")
    return {
        "columns": config.columns or None,
        "header": config.header,
        "file_format": config.file_format,
        "split": config.split,
        **_where(config),
        "skip_bad_rows": config.skip_bad_rows,
        "bad_rows_file": path,
    }
