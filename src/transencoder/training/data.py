"""Data sets that a run reads: the unlabelled training text, the dev set, the test sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from datasets import Dataset, concatenate_datasets

from transencoder import tasks
from transencoder.configs.run import RunConfig, Text
from transencoder.context import Data, GivenScores, Scored
from transencoder.errors import InputError
from transencoder.evaluation import agreement
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.pairs import read_pairs, read_sentences
from transencoder.runs import stage_seed
from transencoder.scripts import split_words
from transencoder.training.gold import read_labelled_rows, read_scores, with_gold
from transencoder.training.text import TrainingText, data_record, reading, source_name, where

BAD_ROWS = "bad-rows.tsv"
"""File in the run folder for the bad rows of the training text, if they are skipped."""
BAD_EXTRA_ROWS, BAD_DOCUMENTS, BAD_LABELLED = "bad-extra-rows.tsv", "bad-documents.tsv", "bad-labelled-rows.tsv"
ALL_BAD_ROWS = "bad-*.tsv"
"""Pattern of all files with bad rows."""


class PairsReader:
    """Reader of the data sets of a config that trains on pairs, or on pairs mined from its sentences.

    Args:
        config: Config to read for.
        run_folder: Folder that skipped bad rows are written to; None: they are not written.

    Raises:
        InputError: The dev set or a test cannot be read, has bad rows, or has no scores to measure models by. The
            methods raise it for the training text.
    """

    def __init__(self, config: TransEncoder, run_folder: Path | None) -> None:
        _check_order(config)
        self._config = config
        self._reader = _Reader(config, *_labelled_sets(config), run_folder)

    def text(self) -> TrainingText:
        """Read all pairs, or all sentences to mine pairs from."""
        config = self._config
        if config.sentences is None:
            assert config.pairs is not None
            return self._reader.pairs(config.pairs, config.columns)
        return self._reader.texts(config.sentences, next(iter(config.columns), None))

    def documents(self) -> TrainingText | None:
        """Read the documents that sentences are to be paired with; None: there are none."""
        config = self._config
        if config.documents is None:
            return None
        return self._reader.texts(config.documents, config.document_column, BAD_DOCUMENTS)

    def drawn(self, text: TrainingText, most: int | None = None) -> TrainingText:
        """Draw as many rows of the text as the config says, or else at most `most`; None: all."""
        field = "n_pairs" if self._config.sentences is None else "n_sentences"
        n_rows: int | None = getattr(self._config, field)
        if n_rows is None and most is not None and most < len(text.rows):
            n_rows = most
        return self._rows_of(text, n_rows, field)

    def data(self, text: TrainingText) -> Data:
        """Return the data sets of a run on these pairs, with the config's extra and labelled pairs added."""
        config, reader = self._config, self._reader
        if config.extra_pairs is not None:
            extra = reader.pairs(config.extra_pairs, config.columns, BAD_EXTRA_ROWS)
            text = _together(text, self._rows_of(extra, config.n_extra_pairs, "n_extra_pairs"))
        gold: GivenScores | None = None
        if config.labelled is not None:
            labelled = read_scores(config, reader.bad_rows(BAD_LABELLED))
            labelled = reader.learnable(labelled, config.n_labelled)
            text, gold = with_gold(text, labelled, both_orders=config.is_symmetric)
        if reader.tests and not config.exclude_test_sentences:
            text = text.compared_with(reader.tests)
        return Data(text.rows, text.record, "pairs", reader.dev, reader.tests if config.score_tests else [], gold)

    def _rows_of(self, text: TrainingText, n_rows: int | None, field: str) -> TrainingText:
        return text.drawn(n_rows, field, stage_seed(self._config.seed, field))


def read_text_data(config: RunConfig, wanted: Text, run_folder: Path | None) -> Data:
    """Read and check the data sets of a config that trains on text, or on pairs used as views.

    Raises:
        InputError: A set cannot be read, has bad rows, or has no scores where they are needed.
    """
    dev, tests = _labelled_sets(config)
    reader = _Reader(config, dev, tests, run_folder)
    if wanted.labels is not None:
        reader.check_exclusion()
        text = read_labelled_rows(config, wanted, wanted.labels, reader.bad_rows())
        text = reader.learnable(text, wanted.labels.n_rows)
        text = text.noted(gold_rows=len(text.rows))
    elif wanted.is_paired:
        text = reader.pairs(wanted.source, wanted.columns)
    else:
        text = reader.texts(wanted.source, next(iter(wanted.columns), None))
    if wanted.least_words:
        text = _long_enough(text, wanted.least_words, skip=config.skip_bad_rows)
    compared = tests if wanted.kind != "documents" else []
    text = text.drawn(wanted.n_sentences, "n_sentences", config.seed)
    if compared and not config.exclude_test_sentences:
        text = text.compared_with(compared)  # counts the drawn rows only
    if len(text.rows) < wanted.least_rows:
        how = " of 1 row" if wanted.n_sentences is None else ", of which n_sentences takes 1"
        raise InputError(f"{text.record['source']}{how}: there must be at least 2")
    kind = "pairs" if wanted.is_paired else wanted.kind
    return Data(text.rows, text.record, kind, dev, tests if config.score_tests else [])


def _long_enough(text: TrainingText, least_words: int, *, skip: bool) -> TrainingText:
    """Leave out the documents that are too short if `skip` is set, else raise an error."""
    documents = text.rows
    n_words = [len(split_words(each)) for rows in documents.iter(1024) for each in rows["text"]]
    short = [row for row, n in enumerate(n_words) if n < least_words]
    if not short:
        return text
    if not skip or len(short) == len(documents):
        raise InputError(
            f"{len(short)} of {len(documents)} documents have fewer than document_words, {least_words}; the first is "
            f"document {short[0] + 1}, with {n_words[short[0]]}, the shortest has {min(n_words)}. Give longer "
            "documents, a smaller document_words (spans shrink with it), or skip_bad_rows, which leaves these out"
        )
    kept = documents.select([row for row, n in enumerate(n_words) if n >= least_words])
    return text.replaced(kept, short_rows=len(short))


@dataclass(frozen=True)
class _Reader:
    """Reader of a run's training text, which keeps the run's tests out of it."""

    config: RunConfig
    dev: Scored | None
    tests: list[Scored]
    run_folder: Path | None

    def bad_rows(self, name: str = BAD_ROWS) -> Path | None:
        """Return the file that skipped bad rows are written to; None: they are not written."""
        return self.run_folder / name if self.run_folder and self.config.skip_bad_rows else None

    def pairs(self, source: str | Dataset, columns: tuple[str, ...], bad_rows: str = BAD_ROWS) -> TrainingText:
        """Read pairs from a file, a data set, or tasks, without those of the tests' sentences."""
        config = self.config
        if names := task_names(source):
            pairs, found = tasks.unlabelled_pairs(
                names, exclude_test_sentences=config.exclude_test_sentences, **where(config)
            )
            counted = {name: found[name] for name in ("transductive", "missing_rows", "excluded_rows")}
            return self.apart(TrainingText.read(source, pairs).noted(**counted))
        self.check_exclusion()
        file = self.bad_rows(bad_rows)
        pairs = read_pairs(source, columns=columns or None, **reading(config, file))
        pairs = pairs.select_columns(["sentence1", "sentence2"])
        return self.apart(TrainingText.read(source, pairs, file))

    def texts(self, source: str | Dataset, column: str | None, bad_rows: str = BAD_ROWS) -> TrainingText:
        """Read sentences or documents, without those of the tests."""
        self.check_exclusion()
        file = self.bad_rows(bad_rows)
        texts = read_sentences(source, column=column, **reading(self.config, file))
        return self.apart(TrainingText.read(source, texts, file))

    def apart(self, text: TrainingText) -> TrainingText:
        """Leave out rows that contain a sentence of the tests, if `exclude_test_sentences` is set."""
        return text.without_sentences_of(self.tests) if self.tests and self.config.exclude_test_sentences else text

    def learnable(self, labelled: TrainingText, n_rows: int | None) -> TrainingText:
        """Return the labelled pairs to train on: `n_rows` of those in no test and not in dev (None: all of them)."""
        labelled = self.apart(labelled).without_pairs_of([*self.tests, *([self.dev] if self.dev else [])])
        return labelled.drawn(n_rows, "n_labelled", stage_seed(self.config.seed, "n_labelled"))

    def check_exclusion(self) -> None:
        """Raise an error if sentences of the tests are to be left out, but no tests are given."""
        if self.config.exclude_test_sentences and not self.config.tests:
            raise InputError(
                "exclude_test_sentences needs to know the tests: give tests, or a task or suite as training text"
            )


def _together(text: TrainingText, extra: TrainingText) -> TrainingText:
    """Concatenate two texts: counts of left-out rows are summed, and the record of `extra` is kept whole."""
    is_transductive = any(each.record.get("transductive", False) for each in (text, extra))
    rows = concatenate_datasets([text.rows, extra.rows])
    return text.replaced(rows, extra=extra.record, **text.left_out_with(extra), transductive=is_transductive)


def _check_order(config: TransEncoder) -> None:
    """Raise an error if pairs whose order matters would be trained on in both orders."""
    for task in tasks.expand([*task_names(config.pairs), *task_names(config.extra_pairs)]):
        if task.unlabelled and config.is_symmetric and not task.symmetric:
            raise InputError(
                f"{task.name}: its pairs mean something else in the other order, but is_symmetric is true; set it false"
            )


def task_names(source: str | Dataset | None) -> list[str]:
    """Return the names of the tasks and suites that a source lists; empty for a file or a data set."""
    names = source.split(",") if isinstance(source, str) else []
    return names if all(name in tasks.TASKS or name in tasks.SUITES for name in names) else []


_METRIC_OF_KIND = {"graded": "spearman", "binary": "roc_auc"}

_Role = Literal["dev", "test"]


def _labelled_sets(config: RunConfig) -> tuple[Scored | None, list[Scored]]:
    """Read and check a config's dev and test sets.

    Raises:
        InputError: A set cannot be read, has bad rows, or has no scores that models can be measured against.
    """
    dev = None if config.dev is None else _read(config, config.dev, "dev")
    names = [each for name in config.tests for each in tasks.SUITES.get(name, (name,))]
    tests = [_read(config, name, "test") for name in names]
    sources: dict[str, str] = {}
    for test in tests:
        if test.name in sources:
            raise InputError(
                f"two test sets are called {test.name}: {sources[test.name]} and {test.record['source']}; "
                "give each once, and files different names up to their first dot"
            )
        sources[test.name] = test.record["source"]
    return dev, tests


def _read(config: RunConfig, source: str | Dataset, role: _Role) -> Scored:
    if isinstance(source, str) and (source in tasks.TASKS or source in tasks.SUITES):
        task = tasks.dev_task(source) if role == "dev" else tasks.TASKS[source]
        if task.metric == "accuracy":
            return _read_classes(config, task, role)
        pairs, rows = tasks.load_named(task, role, **where(config))
        name = task.dataset if task.config is None else f"{task.dataset}/{task.config}"
        return _measurable(task.name, pairs, task.metric, f"{name} ({rows})")
    try:
        pairs = read_pairs(source, needs_score=True, **where(config))
    except InputError as error:
        raise InputError(f"{role}: {error}") from error
    name = Path(source).name.partition(".")[0] if isinstance(source, str) else role
    return _measurable(name, pairs, _METRIC_OF_KIND[config.task_kind], source_name(source))


def _read_classes(config: RunConfig, task: tasks.Task, role: _Role) -> Scored:
    if role == "dev":
        raise InputError(
            f"dev is {task.name}, where a classifier is trained anew at each evaluation; give one of its graded or "
            "binary neighbours, such as stsb, and leave it to tests"
        )
    sets = {split: tasks.load(task, split, **where(config)) for split in task.splits}
    if len(set(sets["train"]["score"][:])) < 2:
        raise InputError(f"{task.name}: the rows of its train split are all of one class; a classifier needs two")
    record = data_record(f"{task.dataset} (a classifier of train, chosen on dev, on test)", sets["test"])
    return Scored(sets["test"], task.metric, sets, name=task.name, record={**record, "metric": task.metric})


def _measurable(name: str, pairs: Dataset, metric: str, source: str) -> Scored:
    """Return pairs as a labelled set; raise an error, before training, if their gold scores can measure no model."""
    gold = np.asarray(pairs["score"][:], np.float64)
    if len(set(gold)) < 2:
        raise InputError(
            f"{source}: its gold scores are all {gold[0] if len(gold) else 'missing'}; "
            "nothing can be measured against them. Give pairs of different scores"
        )
    agreement(pairs, gold, metric)
    return Scored(pairs, metric, name=name, record={**data_record(source, pairs), "metric": metric})
