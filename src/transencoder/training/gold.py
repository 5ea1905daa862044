"""A few gold scores in a Trans-Encoder's training: beside the labels of teachers, with a growing share (DvBERT).

Neither paper has it.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Value, concatenate_datasets

from transencoder import tasks
from transencoder.context import Gold, Scored
from transencoder.errors import InputError
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.pairs import fingerprint, read_pairs
from transencoder.records import DataRecord
from transencoder.training.labelled import data_record, source_name
from transencoder.wording import plural

logger = logging.getLogger(__name__)

_BATCH_ROWS = 4096


def read_gold(config: TransEncoder, bad_rows_file: Path | None) -> tuple[Dataset, DataRecord]:
    """The labelled pairs of a config, with `score` in [0, 1].

    Args:
        config: Whose `labelled` they are.
        bad_rows_file: Where its bad rows go if they are skipped; None: nowhere.

    Raises:
        InputError: They cannot be read, have no scores, or scores out of range.
    """
    source = config.labelled
    assert source is not None, "only called where there are some"
    is_file = not isinstance(source, str) or Path(source).expanduser().is_file()
    options = {
        "split": None if is_file or task_named(source) else "train",
        "cache_folder": config.cache_dir,
        "data_folder": config.data_dir,
        "token": config.token,
        "skip_bad_rows": config.skip_bad_rows,
        "bad_rows_file": bad_rows_file,
    }
    pairs = read_scores(source, config.score_range, "score", options, "labelled")
    return pairs, data_record(source_name(source), pairs)


def read_scores(
    source: str | Dataset, score_range: Sequence[float], column: str, options: Mapping[str, Any], field: str
) -> Dataset:
    """Pairs with gold scores from 0 to 1: `sentence1`, `sentence2`, `score`.

    Args:
        source: A file, a hub id, a data set, or a task, whose train split and range are taken.
        score_range: Lowest and highest score of a file.
        column: Of the scores in a file.
        options: How a file is read; of a task, where its data are.
        field: The setting that names the source, for messages.

    Raises:
        InputError: They cannot be read, have no scores, or scores out of range.
    """
    task = task_named(source)
    low, high = score_range
    if task is not None:
        if task.metric == "accuracy":
            raise InputError(f"{field} is {source}, whose labels are classes; give pairs with scores, such as stsb")
        if (low, high) != (0.0, 1.0):
            raise InputError(
                f"score_range is of files, and {field} is the task {source}, which has its own; leave it out"
            )
        where = {name: options[name] for name in ("cache_folder", "data_folder", "token")}
        pairs, low, high = tasks.load(task, "train", **where), *tasks.range_of(task)
    else:
        try:
            pairs = read_pairs(source, score_column=column, score_range=(low, high), **options)
        except InputError as error:
            raise InputError(f"{error}{_hint(str(error))}") from error
    scores = (np.asarray(pairs["score"][:], np.float64) - low) / (high - low)
    texts = pairs.select_columns(["sentence1", "sentence2"])
    return texts.add_column("score", scores.tolist(), feature=Value("float64"))


def _hint(error: str) -> str:
    if "out of range" in error:
        return " Where all scores have another range, give it: score_range 0 5"
    if "no column 'score'" in error:
        return " What is learned here are scores, in a column of that name; classes are learned by `train dvbert`"
    return ""


def task_named(source: str | Dataset) -> tasks.Task | None:
    """The task that is meant; None for a file or a data set."""
    return tasks.TASKS.get(source) if isinstance(source, str) else None


def with_gold(
    config: TransEncoder, pairs: Dataset, record: DataRecord, labelled: Dataset, labelled_record: DataRecord
) -> tuple[Dataset, DataRecord, Gold]:
    """The unlabelled pairs, less those that are labelled, then the labelled ones; and which have gold scores.

    Args:
        config: Says whether a pair turned round is the same pair.
        pairs: The unlabelled pairs.
        record: Of these.
        labelled: What `read_gold` gave, or some of it.
        labelled_record: Of this.
    """
    unlabelled = _without(pairs, _keys(labelled, both_orders=config.is_symmetric))
    gold = np.asarray(labelled["score"][:], np.float32)
    rows = concatenate_datasets([unlabelled, labelled.select_columns(["sentence1", "sentence2"])])
    scores = np.concatenate([np.full(len(unlabelled), np.nan, np.float32), gold])
    joined: Any = (
        record
        | data_record(record["source"], rows)
        | {
            "labelled": labelled_record,
            "gold_rows": len(labelled),
        }
    )
    return rows, joined, Gold(scores, fingerprint(labelled))


def apart(labelled: Dataset, record: DataRecord, tests: list[Scored]) -> tuple[Dataset, DataRecord]:
    """Leave out the pairs of test sets, in either order, whose scores must not be learned: 17 of STS-B's train split.

    Raises:
        InputError: None is left.
    """
    tested = {key for test in tests for key in _keys(test.pairs, both_orders=True)}
    kept = _without(labelled, tested)
    if not len(kept):
        raise InputError(f"every labelled pair of {record['source']} is one of a test set; give others")
    n_left_out = len(labelled) - len(kept)
    if not n_left_out:
        return labelled, record
    logger.warning(
        "%s: %s of a test set left out of what is learned", record["source"], plural(n_left_out, "labelled pair")
    )
    more: Any = data_record(record["source"], kept) | {"test_rows": n_left_out}
    return kept, record | more


def _keys(pairs: Dataset, *, both_orders: bool) -> set[tuple[str, str]]:
    keys = set(zip(pairs["sentence1"], pairs["sentence2"], strict=True))
    return keys | {(second, first) for first, second in keys} if both_orders else keys


def _without(pairs: Dataset, keys: set[tuple[str, str]]) -> Dataset:
    kept: list[int] = []
    for offset in range(0, len(pairs), _BATCH_ROWS):
        batch = pairs[offset : offset + _BATCH_ROWS]
        texts = enumerate(zip(batch["sentence1"], batch["sentence2"], strict=True), start=offset)
        kept += [row for row, pair in texts if pair not in keys]
    return pairs if len(kept) == len(pairs) else pairs.select(kept)
