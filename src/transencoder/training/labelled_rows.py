"""Labelled rows to train on, with classes or with scores (DvBERT)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Value, concatenate_datasets

from transencoder import tasks
from transencoder.configs.run import LabelledRows, RunConfig, Text
from transencoder.errors import InputError
from transencoder.pairs import ClassPairs, Source, read_classes
from transencoder.records import DataRecord
from transencoder.training.gold import read_scores, task_named
from transencoder.training.labelled import data_record, reading_options, source_name


def read_labelled_rows(
    config: RunConfig, text: Text, labels: LabelledRows, bad_rows_file: Path | None
) -> tuple[Dataset, DataRecord]:
    """Read all labelled rows: `sentence1`, `sentence2` and `label`, the number of a class or a score in [0, 1].

    Args:
        config: Says how files are read.
        text: Names the columns.
        labels: The sources, and what their labels are.
        bad_rows_file: Where bad rows go if they are skipped; None: nowhere.

    Raises:
        InputError: A source cannot be read, or its classes are others than those of the one before.
    """
    _check_tasks(config, text, labels)
    readings = [_reading(config, text, bad_rows_file, number) for number in range(len(labels.sources))]
    if labels.kind == "classes":
        parts, more = _classes(labels, readings)
    else:
        parts, more = _scores(labels, readings), {}
    rows = concatenate_datasets(parts)
    record: Any = data_record(" and ".join(map(source_name, labels.sources)), rows) | more
    if config.skip_bad_rows and bad_rows_file is not None:
        written = [_bad_rows(bad_rows_file, number) for number in range(len(labels.sources))]
        record["bad_rows"] = sum(path.read_bytes().count(b"\n") for path in written if path.exists())
    return rows, record


def _classes(labels: LabelledRows, readings: list[dict[str, Any]]) -> tuple[list[Dataset], dict[str, Any]]:
    names, n_without = labels.class_names, 0
    parts: list[Dataset] = []
    for source, reading in zip(labels.sources, readings, strict=True):
        task = task_named(source)
        numbers = None if labels.class_names or not parts else ()  # what occurred first says nothing of numbers
        if task is None:
            stated = Source(source, score_column=labels.column, **reading)
            found = read_classes(stated, class_names=names, numbers=numbers)
        else:
            found = _task_classes(task, names, numbers, reading)
        names = names or found.names
        n_without += found.n_without
        parts.append(_with_labels(found.pairs, found.classes))
    return parts, {"classes": list(names)} | ({"rows_without_class": n_without} if n_without else {})


def _scores(labels: LabelledRows, readings: list[dict[str, Any]]) -> list[Dataset]:
    parts = []
    for source, reading in zip(labels.sources, readings, strict=True):
        pairs = read_scores(source, labels.score_range, labels.column or "score", reading, "labelled")
        parts.append(_with_labels(pairs.remove_columns("score"), np.asarray(pairs["score"][:])))
    return parts


def _task_classes(
    task: tasks.Task, names: tuple[str, ...], numbers: tuple[()] | None, reading: Mapping[str, Any]
) -> ClassPairs:
    if task.metric != "accuracy" and task.positive_label is None:
        raise InputError(f"{task.name} has scores, no classes; give label_kind scores, or another task")
    where = {name: reading[name] for name in ("cache_folder", "data_folder", "token")}
    source = Source(
        task.dataset,
        config=task.config,
        revision=task.revision,
        columns=task.columns[:2],
        score_column=task.columns[2],
        split=task.splits["train"],
        **where,
    )
    return read_classes(source, class_names=names or task.class_names, numbers=task.class_names or numbers)


def _check_tasks(config: RunConfig, text: Text, labels: LabelledRows) -> None:
    """Refuse what is said of files where all sources are tasks, which have columns and a train split of their own."""
    if not all(map(task_named, labels.sources)):
        return
    given = {"columns": text.columns, "label_column": labels.column, "header": config.header}
    given |= {"file_format": config.file_format, "split": config.split if config.split != "train" else None}
    for name, value in given.items():
        if value not in (None, ()):
            raise InputError(
                f"{name} is of files and hub ids, and labelled is the task {labels.sources[0]}, whose train split is "
                "taken; leave it out, or give the hub id"
            )


def _with_labels(pairs: Dataset, labels: np.ndarray) -> Dataset:
    return pairs.add_column("label", labels.astype(np.float64).tolist(), feature=Value("float64"))


def _bad_rows(path: Path, number: int) -> Path:
    """Where the bad rows of the first source and of the later ones go: `bad-rows.tsv`, `bad-rows-2.tsv`."""
    return path.with_name(f"{path.stem}-{number + 1}{path.suffix}") if number else path


def _reading(config: RunConfig, text: Text, bad_rows_file: Path | None, number: int) -> dict[str, Any]:
    skipped = _bad_rows(bad_rows_file, number) if bad_rows_file and config.skip_bad_rows else None
    return {"columns": text.columns or None, **reading_options(config, skipped)}
