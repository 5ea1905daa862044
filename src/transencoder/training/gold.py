"""Labelled pairs to train on: all pairs of DvBERT, or a few in addition to Trans-Encoder's pseudo-labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Value, concatenate_datasets

from transencoder import tasks
from transencoder.configs.run import LabelledRows, RunConfig, Text
from transencoder.context import GivenScores
from transencoder.errors import InputError
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.pairs import ClassPairs, Source, fingerprint, pair_keys, read_classes, read_pairs
from transencoder.training.text import (
    TrainingText,
    reading,
    source_name,
    task_named,
    where,
    without_pairs,
)

_WITH_SPLIT = re.compile(r"(.+)\[(\w+)\]")


def read_labelled_rows(config: RunConfig, text: Text, labels: LabelledRows, bad_rows_file: Path | None) -> TrainingText:
    """Read all labelled rows: `sentence1`, `sentence2` and `label`, which is a class number or a score in [0, 1].

    Raises:
        InputError: A source cannot be read, or its classes differ from those of the source before it.
    """
    name = " and ".join(map(source_name, labels.sources))
    files = [_numbered(bad_rows_file, number) for number in range(len(labels.sources))]
    stated = [_split_of(source) for source in labels.sources]
    labels = replace(labels, sources=tuple(source for source, _ in stated))
    _check_tasks(config, text, labels)
    for source, split in stated:
        if split is not None and (task := task_named(source)) is not None:
            raise InputError(
                f"{source}[{split}] names a split, and {source} is a task, whose train split is taken; give the hub "
                f"id: {task.dataset}[{split}]"
            )
    readings = [
        reading(config, file) | {"columns": text.columns or None} | ({"split": split} if split else {})
        for file, (_, split) in zip(files, stated, strict=True)
    ]
    if labels.kind == "classes":
        parts, more = _classes(labels, readings)
    else:
        parts, more = _scores(labels, readings), {}
    rows = concatenate_datasets(parts)
    return TrainingText.read(name, rows, *files).noted(**more)


def _split_of(source: str | Dataset) -> tuple[str | Dataset, str | None]:
    """Return a source without its split, and the split: `stanfordnlp/snli[test]` names `test`."""
    named = (
        _WITH_SPLIT.fullmatch(source) if isinstance(source, str) and not Path(source).expanduser().exists() else None
    )
    return (source, None) if named is None else (named[1], named[2])


def read_scores(config: TransEncoder, bad_rows_file: Path | None) -> TrainingText:
    """Read the labelled pairs of a Trans-Encoder run, with `score` in [0, 1].

    Raises:
        InputError: The pairs cannot be read, have no scores, or have scores out of range.
    """
    source = config.labelled
    assert source is not None, "only called where there are some"
    is_file = not isinstance(source, str) or Path(source).expanduser().is_file()
    options = where(config) | {
        "split": None if is_file or task_named(source) else "train",
        "skip_bad_rows": config.skip_bad_rows,
        "bad_rows_file": bad_rows_file,
    }
    pairs = _scored(source, config.score_range, "score", options)
    return TrainingText.read(source, pairs, bad_rows_file if bad_rows_file and bad_rows_file.exists() else None)


def with_gold(text: TrainingText, labelled: TrainingText, *, both_orders: bool) -> tuple[TrainingText, GivenScores]:
    """Return the unlabelled pairs that have no label, followed by the labelled ones, and the gold scores.

    Neither the Trans-Encoder paper nor the DvBERT paper does this.
    """
    unlabelled = without_pairs(text.rows, pair_keys(labelled.rows, both_orders=both_orders))
    gold = np.asarray(labelled.rows["score"][:], np.float32)
    rows = concatenate_datasets([unlabelled, labelled.rows.select_columns(["sentence1", "sentence2"])])
    scores = np.concatenate([np.full(len(unlabelled), np.nan, np.float32), gold])
    together = text.replaced(rows, labelled=labelled.record, gold_rows=len(gold))
    return together, GivenScores(scores, fingerprint(labelled.rows))


def _scored(source: str | Dataset, score_range: tuple[float, ...], column: str, options: Mapping[str, Any]) -> Dataset:
    """Read pairs with gold scores, rescaled to [0, 1]; a task gives its train split, with its own range."""
    task = task_named(source)
    low, high = score_range
    if task is not None:
        if task.metric == "accuracy":
            raise InputError(f"labelled is {source}, whose labels are classes; give pairs with scores, such as stsb")
        if (low, high) != (0.0, 1.0):
            raise InputError(
                f"score_range is of files, and labelled is the task {source}, which has its own; leave it out"
            )
        pairs, low, high = tasks.load(task, "train", **_place(options)), *tasks.range_of(task)
    else:
        try:
            pairs = read_pairs(source, score_column=column, score_range=(low, high), **options)
        except InputError as error:
            raise InputError(f"{error}{_hint(str(error))}") from error
    scores = (np.asarray(pairs["score"][:], np.float64) - low) / (high - low)
    return _with_column(pairs.select_columns(["sentence1", "sentence2"]), "score", scores)


def _hint(error: str) -> str:
    if "out of range" in error:
        return " Where all scores have another range, give it: score_range 0 5"
    if "no column 'score'" in error:
        return " What is learned here are scores, in a column of that name; classes are learned by `train dvbert`"
    return ""


def _scores(labels: LabelledRows, readings: list[dict[str, Any]]) -> list[Dataset]:
    read = [
        _scored(source, labels.score_range, labels.column or "score", options)
        for source, options in zip(labels.sources, readings, strict=True)
    ]
    return [pairs.rename_column("score", "label") for pairs in read]


def _classes(labels: LabelledRows, readings: list[dict[str, Any]]) -> tuple[list[Dataset], dict[str, Any]]:
    names, n_without = labels.class_names, 0
    parts: list[Dataset] = []
    for source, options in zip(labels.sources, readings, strict=True):
        task = task_named(source)
        numbers = None if labels.class_names or not parts else ()  # names found in the first source have no numbers
        if task is None:
            stated = Source(source, score_column=labels.column, **options)
            found = read_classes(stated, class_names=names, numbers=numbers)
        else:
            found = _task_classes(task, names, numbers, options)
        names = names or found.names
        n_without += found.n_without
        parts.append(_with_column(found.pairs, "label", found.classes))
    return parts, {"classes": list(names)} | ({"rows_without_class": n_without} if n_without else {})


def _task_classes(
    task: tasks.Task, names: tuple[str, ...], numbers: tuple[()] | None, options: Mapping[str, Any]
) -> ClassPairs:
    if task.metric != "accuracy" and task.positive_label is None:
        raise InputError(f"{task.name} has scores, no classes; give label_kind scores, or another task")
    source = replace(tasks.source_of(task, task.splits["train"], _place(options)), score_column=task.columns[2])
    return read_classes(source, class_names=names or task.class_names, numbers=task.class_names or numbers)


def _check_tasks(config: RunConfig, text: Text, labels: LabelledRows) -> None:
    """Raise an error for settings of files if all sources are tasks, which have their own columns and train split."""
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


def _place(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for where data are found, the only ones that reading a task takes."""
    return {name: options[name] for name in ("cache_folder", "data_folder", "token")}


def _with_column(pairs: Dataset, name: str, values: np.ndarray) -> Dataset:
    return pairs.add_column(name, values.astype(np.float64).tolist(), feature=Value("float64"))


def _numbered(path: Path | None, number: int) -> Path | None:
    """Return the file for a source's bad rows: `bad-rows.tsv` for the first, `bad-rows-2.tsv` for the second."""
    return path.with_name(f"{path.stem}-{number + 1}{path.suffix}") if path and number else path
