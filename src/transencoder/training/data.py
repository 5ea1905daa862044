"""What a run reads: the unlabelled training text, the dev set, the test sets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from datasets import Dataset, concatenate_datasets

from transencoder import tasks
from transencoder.configs.run import LabelledRows, RunConfig, Text
from transencoder.context import Data, Scored
from transencoder.errors import InputError
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.pairs import read_pairs, read_sentences
from transencoder.records import DataRecord, MiningRecord
from transencoder.runs import stage_seed
from transencoder.scripts import split_words
from transencoder.training.gold import apart, read_gold, with_gold
from transencoder.training.labelled import data_record, read_labelled, reading_options, source_name
from transencoder.training.labelled_rows import read_labelled_rows

Miner = Callable[[Dataset, Dataset | None], tuple[Dataset, MiningRecord | None]]
"""Sentences, `text`, and documents, where they are paired with such, to pairs and how they were mined; None: they are
only as many as would be."""

BAD_ROWS = "bad-rows.tsv"

BAD_EXTRA_ROWS, BAD_DOCUMENTS, BAD_LABELLED = "bad-extra-rows.tsv", "bad-documents.tsv", "bad-labelled-rows.tsv"
"""In the run folder, beside the bad rows of the training text itself."""


def read_data(config: TransEncoder, bad_rows_file: Path | None, mine: Miner | None = None) -> Data:
    """Read the data sets of a config that trains on pairs, and check them; mine the pairs where it has sentences.

    Args:
        config: Whose data sets.
        bad_rows_file: Where bad rows of the training text go if they are skipped; None: nowhere.
        mine: Makes pairs of sentences; None: there are none.

    Raises:
        InputError: A set cannot be read, has bad rows, or has no scores where they are needed.
    """
    _check_order(config)
    dev, tests = read_labelled(config)
    if config.pairs is None:
        pairs, record = _mined_pairs(config, tests, bad_rows_file, mine)
    else:
        pairs, record = _drawn_pairs(config, config.pairs, "n_pairs", tests, bad_rows_file)
    if config.extra_pairs is not None:
        bad_extra_rows = None if bad_rows_file is None else bad_rows_file.with_name(BAD_EXTRA_ROWS)
        extra, extra_record = _drawn_pairs(config, config.extra_pairs, "n_extra_pairs", tests, bad_extra_rows)
        pairs, record = _together(pairs, record, extra, extra_record)
    gold = None
    if config.labelled is not None:
        bad_labelled = None if bad_rows_file is None else bad_rows_file.with_name(BAD_LABELLED)
        pairs, record, gold = with_gold(config, pairs, record, *_labelled_pairs(config, tests, bad_labelled))
    if tests and not config.exclude_test_sentences:
        pairs, record = _apart(pairs, record, tests, exclude=False)
    return Data(pairs, record, "pairs", dev, tests if config.score_tests else [], gold)


def read_start_data(config: RunConfig, text: Text, bad_rows_file: Path | None) -> Data:
    """Read the data sets of a config that trains on text, or on pairs taken for views, and check them.

    Args:
        config: Says what is measured, and how files are read.
        text: What it trains on.
        bad_rows_file: Where bad rows of the training text go if they are skipped; None: nowhere.

    Raises:
        InputError: A set cannot be read, has bad rows, or has no scores where they are needed.
    """
    dev, tests = read_labelled(config)
    if text.labels is not None:
        rows, record = _gold_rows(config, text, text.labels, tests, bad_rows_file)
    elif text.is_paired:
        rows, record = _training_pairs(config, text.source, text.columns, bad_rows_file)
    else:
        rows, record = _training_texts(config, text.source, next(iter(text.columns), None), bad_rows_file)
    if text.least_words:
        long_enough = _long_enough(config, rows, text.least_words)
        if n_short := len(rows) - len(long_enough):
            record = record | data_record(record["source"], long_enough) | {"short_rows": n_short}
        rows = long_enough
    is_compared = bool(tests) and text.kind != "documents"
    if is_compared and config.exclude_test_sentences and text.labels is None:
        rows, record = _apart(rows, record, tests, exclude=True)
    if text.n_sentences is not None:
        rows, record = _drawn(rows, record, text.n_sentences, "n_sentences", config.seed)
    if is_compared and not config.exclude_test_sentences:
        rows, record = _apart(rows, record, tests, exclude=False)  # of those that were drawn
    if len(rows) < text.least_rows:
        how = " of 1 row" if text.n_sentences is None else ", of which n_sentences takes 1"
        raise InputError(f"{record['source']}{how}: there must be at least 2")
    return Data(rows, record, "pairs" if text.is_paired else text.kind, dev, tests if config.score_tests else [])


def _long_enough(config: RunConfig, documents: Dataset, least_words: int) -> Dataset:
    """Leave out the documents that are too short, or refuse them."""
    n_words = [
        len(split_words(text))
        for start in range(0, len(documents), 1024)
        for text in documents[start : start + 1024]["text"]
    ]
    short = [row for row, n in enumerate(n_words) if n < least_words]
    if short and (not config.skip_bad_rows or len(short) == len(documents)):
        raise InputError(
            f"{len(short)} of {len(documents)} documents have fewer than document_words, {least_words}; the first is "
            f"document {short[0] + 1}, with {n_words[short[0]]}, the shortest has {min(n_words)}. Give longer "
            "documents, a smaller document_words (spans shrink with it), or skip_bad_rows, which leaves these out"
        )
    return documents.select([row for row, n in enumerate(n_words) if n >= least_words]) if short else documents


def _gold_rows(
    config: RunConfig, text: Text, labels: LabelledRows, tests: list[Scored], bad_rows_file: Path | None
) -> tuple[Dataset, DataRecord]:
    """Read the labelled pairs that are trained on: none of a test's, as many as there are to be."""
    _check_exclusion(config)
    rows, record = read_labelled_rows(config, text, labels, bad_rows_file)
    if tests and config.exclude_test_sentences:
        rows, record = _apart(rows, record, tests, exclude=True)
    rows, record = apart(rows, record, tests)
    if labels.n_rows is not None:
        seed = stage_seed(config.seed, "n_labelled")
        rows, record = _drawn(rows, record, labels.n_rows, "n_labelled", seed)
    return rows, record | {"gold_rows": len(rows)}


def _check_order(config: TransEncoder) -> None:
    """Refuse to train on both orders of pairs that mean something else in the other."""
    for task in tasks.expand([*_task_names(config.pairs), *_task_names(config.extra_pairs)]):
        if task.unlabelled and config.is_symmetric and not task.symmetric:
            raise InputError(
                f"{task.name}: its pairs mean something else in the other order, but is_symmetric is true; set it false"
            )


def _task_names(source: str | Dataset | None) -> list[str]:
    """The names of tasks and suites that a source consists of; none for a file or a data set."""
    names = source.split(",") if isinstance(source, str) else []
    return names if all(name in tasks.TASKS or name in tasks.SUITES for name in names) else []


def _drawn_pairs(
    config: TransEncoder, source: str | Dataset, field: str, tests: list[Scored], bad_rows_file: Path | None
) -> tuple[Dataset, DataRecord]:
    """The pairs of a source that are trained on: without test sentences if need be, as many as the field says."""
    pairs, record = _training_pairs(config, source, config.columns, bad_rows_file)
    if tests and config.exclude_test_sentences:
        pairs, record = _apart(pairs, record, tests, exclude=True)
    n_pairs: int | None = getattr(config, field)
    return (pairs, record) if n_pairs is None else _drawn(pairs, record, n_pairs, field, stage_seed(config.seed, field))


def _mined_pairs(
    config: TransEncoder, tests: list[Scored], bad_rows_file: Path | None, mine: Miner | None
) -> tuple[Dataset, DataRecord]:
    """The pairs that are mined from a config's sentences, or from these and its documents."""
    assert config.sentences is not None and mine is not None
    column = next(iter(config.columns), None)
    sentences, record = _texts_to_mine(config, config.sentences, column, tests, bad_rows_file)
    if config.n_sentences is not None:
        seed = stage_seed(config.seed, "n_sentences")
        sentences, record = _drawn(sentences, record, config.n_sentences, "n_sentences", seed)
    documents, more = None, {}
    if config.documents is not None:
        bad_documents = None if bad_rows_file is None else bad_rows_file.with_name(BAD_DOCUMENTS)
        documents, of_documents = _texts_to_mine(config, config.documents, config.document_column, tests, bad_documents)
        more = {"documents": of_documents} | _left_out(record, of_documents)
    pairs, mined = mine(sentences, documents)
    how: Any = more if mined is None else more | {"mined": mined}
    return pairs, record | data_record(record["source"], pairs) | how


def _texts_to_mine(
    config: TransEncoder, source: str | Dataset, column: str | None, tests: list[Scored], bad_rows_file: Path | None
) -> tuple[Dataset, DataRecord]:
    """The texts of a source, without test sentences if need be."""
    texts, record = _training_texts(config, source, column, bad_rows_file)
    return _apart(texts, record, tests, exclude=True) if tests and config.exclude_test_sentences else (texts, record)


def _labelled_pairs(
    config: TransEncoder, tests: list[Scored], bad_rows_file: Path | None
) -> tuple[Dataset, DataRecord]:
    """The gold pairs that are trained on: none of a test's, as many as there are to be."""
    skipped = bad_rows_file if config.skip_bad_rows else None
    pairs, record = read_gold(config, skipped)
    record = _with_bad_rows(record, skipped if skipped is not None and skipped.exists() else None)
    if tests and config.exclude_test_sentences:
        pairs, record = _apart(pairs, record, tests, exclude=True)
    pairs, record = apart(pairs, record, tests)
    if config.n_labelled is None:
        return pairs, record
    return _drawn(pairs, record, config.n_labelled, "n_labelled", stage_seed(config.seed, "n_labelled"))


def _together(
    pairs: Dataset, record: DataRecord, extra: Dataset, extra_record: DataRecord
) -> tuple[Dataset, DataRecord]:
    """Two sets of pairs as one: counts of what was left out are of both, the second one's record is kept whole."""
    rows = concatenate_datasets([pairs, extra])
    counts: dict[str, Any] = {"extra": extra_record} | _left_out(record, extra_record)
    counts["transductive"] = record.get("transductive", False) or extra_record.get("transductive", False)
    return rows, record | data_record(record["source"], rows) | counts  # type: ignore[return-value]


def _left_out(record: DataRecord, other: DataRecord) -> dict[str, int]:
    """How many rows of both were left out, for each reason."""
    names: tuple[Literal["missing_rows", "excluded_rows", "bad_rows"], ...] = (
        "missing_rows",
        "excluded_rows",
        "bad_rows",
    )
    return {name: record.get(name, 0) + other.get(name, 0) for name in names}


def _drawn(rows: Dataset, record: DataRecord, n_rows: int, field: str, seed: int) -> tuple[Dataset, DataRecord]:
    """So many rows in their own order, or an error where there are fewer."""
    if n_rows > len(rows):
        raise InputError(f"{field} is {n_rows}, but {record['source']} has {len(rows)}; give at most that, or none")
    chosen = np.sort(np.random.default_rng(seed).choice(len(rows), n_rows, replace=False))
    drawn = rows.select(chosen)
    return drawn, record | data_record(record["source"], drawn) | {"drawn_from": len(rows)}


def _apart(rows: Dataset, record: DataRecord, tests: list[Scored], *, exclude: bool) -> tuple[Dataset, DataRecord]:
    """Leave out rows that hold a sentence of the run's tests (inductive), or record how many do."""
    apart = tasks.without_sentences(rows, tasks.sentences_of(test.pairs for test in tests))
    n_touched = len(rows) - len(apart)
    if not exclude:
        return rows, record | {"transductive": n_touched > 0, "transductive_rows": n_touched}
    if not len(apart):
        raise InputError(
            f"every row of {record['source']} holds a sentence of a test set; give other text, or leave "
            "exclude_test_sentences out"
        )
    excluded = {"transductive": False, "excluded_rows": record.get("excluded_rows", 0) + n_touched}
    return apart, record | data_record(record["source"], apart) | excluded  # type: ignore[return-value]


def _training_pairs(
    config: RunConfig, source: str | Dataset, columns: tuple[str, ...], bad_rows_file: Path | None
) -> tuple[Dataset, DataRecord]:
    if names := _task_names(source):
        pairs, provenance = tasks.unlabelled_pairs(
            names,
            exclude_test_sentences=config.exclude_test_sentences,
            data_folder=config.data_dir,
            cache_folder=config.cache_dir,
            token=config.token,
        )
        more: dict[str, Any] = {name: provenance[name] for name in ("transductive", "missing_rows", "excluded_rows")}
        return pairs, data_record(str(source), pairs) | more  # type: ignore[return-value]
    options, skipped = _reading(config, bad_rows_file)
    pairs = read_pairs(source, columns=columns or None, **options)
    pairs = pairs.select_columns(["sentence1", "sentence2"])
    return pairs, _with_bad_rows(data_record(source_name(source), pairs), skipped)


def _training_texts(
    config: RunConfig, source: str | Dataset, column: str | None, bad_rows_file: Path | None
) -> tuple[Dataset, DataRecord]:
    options, skipped = _reading(config, bad_rows_file)
    texts = read_sentences(source, column=column, **options)
    return texts, _with_bad_rows(data_record(source_name(source), texts), skipped)


def _reading(config: RunConfig, bad_rows_file: Path | None) -> tuple[dict[str, Any], Path | None]:
    """How training text is read from a file, and where its bad rows go if they are skipped."""
    _check_exclusion(config)
    skipped = bad_rows_file if config.skip_bad_rows else None
    return reading_options(config, skipped), skipped


def _check_exclusion(config: RunConfig) -> None:
    if config.exclude_test_sentences and not config.tests:
        raise InputError(
            "exclude_test_sentences needs to know the tests: give tests, or a task or suite as training text"
        )


def _with_bad_rows(record: DataRecord, skipped: Path | None) -> DataRecord:
    return record if skipped is None else record | {"bad_rows": len(skipped.read_bytes().splitlines())}
