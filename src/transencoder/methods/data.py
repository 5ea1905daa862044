"""What a run reads: the unlabelled pairs, the dev set, the test sets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from transencoder import tasks
from transencoder.errors import InputError
from transencoder.evaluation import METRICS
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.pairs import fingerprint, read_pairs
from transencoder.report.result import DataRecord, RunData

METRIC_OF_KIND = {"graded": "spearman", "binary": "roc_auc"}


@dataclass(frozen=True)
class Scored:
    """A labelled set and how it is measured."""

    name: str
    pairs: Dataset
    """With `score`."""
    metric: str
    record: DataRecord

    @property
    def fingerprint(self) -> str:
        """Of the data and of how it is measured."""
        return f"{self.metric} {self.record['fingerprint']}"


@dataclass(frozen=True)
class Data:
    """Everything a run reads."""

    pairs: Dataset
    """`sentence1` and `sentence2` only: gold scores never reach training."""
    record: DataRecord
    dev: Scored | None
    tests: list[Scored]

    def as_record(self) -> RunData:
        """For result.json."""
        return {
            "pairs": self.record,
            "dev": self.dev.record if self.dev else None,
            "tests": {test.name: test.record for test in self.tests},
        }


def read_data(config: TransEncoder, bad_rows_file: Path | None) -> Data:
    """Read a config's data sets and check them.

    Raises:
        InputError: A set cannot be read, has bad rows, or has no scores where they are needed.
    """
    dev = None if config.dev is None else _scored(config, config.dev, "dev")
    tests = [test for name in config.tests for test in _tests(config, name)]
    _check_names(tests)
    pairs, record = _training_pairs(config, bad_rows_file)
    if tests:
        pairs, record = _apart(pairs, record, tests, exclude=config.exclude_test_sentences)
    return Data(pairs, record, dev, tests)


def _check_names(tests: list[Scored]) -> None:
    sources: dict[str, str] = {}
    for test in tests:
        if test.name in sources:
            raise InputError(
                f"two test sets are called {test.name}: {sources[test.name]} and {test.record['source']}; "
                "give each once, and files different names up to their first dot"
            )
        sources[test.name] = test.record["source"]


def _apart(pairs: Dataset, record: DataRecord, tests: list[Scored], *, exclude: bool) -> tuple[Dataset, DataRecord]:
    """Leave out pairs that hold a sentence of the run's tests (inductive), or record whether there are any."""
    apart = tasks.without_sentences(pairs, tasks.sentences_of(test.pairs for test in tests))
    n_touched = len(pairs) - len(apart)
    if not exclude:
        return pairs, record | {"transductive": n_touched > 0}
    if not len(apart):
        raise InputError(
            f"every pair of {record['source']} holds a sentence of a test set; give other pairs, or leave "
            "exclude_test_sentences out"
        )
    excluded = {"transductive": False, "excluded_rows": record.get("excluded_rows", 0) + n_touched}
    return apart, record | _record(record["source"], apart) | excluded  # type: ignore[return-value]


def _training_pairs(config: TransEncoder, bad_rows_file: Path | None) -> tuple[Dataset, DataRecord]:
    names = config.pairs.split(",") if isinstance(config.pairs, str) else []
    if names and all(name in tasks.TASKS or name in tasks.SUITES for name in names):
        pairs, provenance = tasks.unlabelled_pairs(
            names,
            exclude_test_sentences=config.exclude_test_sentences,
            data_folder=config.data_dir,
            cache_folder=config.cache_dir,
            token=config.token,
        )
        more: dict[str, Any] = {name: provenance[name] for name in ("transductive", "missing_rows", "excluded_rows")}
        return pairs, _record(str(config.pairs), pairs) | more  # type: ignore[return-value]
    if config.exclude_test_sentences and not config.tests:
        raise InputError("exclude_test_sentences needs to know the tests: give tests, or a task or suite as pairs")
    pairs = read_pairs(
        config.pairs,
        columns=config.columns or None,
        header=config.header,
        file_format=config.file_format,
        split=config.split,
        cache_folder=config.cache_dir,
        data_folder=config.data_dir,
        token=config.token,
        skip_bad_rows=config.skip_bad_rows,
        bad_rows_file=bad_rows_file if config.skip_bad_rows else None,
    ).select_columns(["sentence1", "sentence2"])
    record = _record(_source(config.pairs), pairs)
    if config.skip_bad_rows and bad_rows_file is not None:
        record["bad_rows"] = len(bad_rows_file.read_bytes().splitlines())
    return pairs, record


def _tests(config: TransEncoder, name: str) -> list[Scored]:
    if name in tasks.SUITES:
        return [_scored(config, task.name, "test") for task in tasks.expand(name)]
    return [_scored(config, name, "test")]


def _scored(config: TransEncoder, source: str | Dataset, role: Any) -> Scored:
    if isinstance(source, str) and (source in tasks.TASKS or source in tasks.SUITES):
        task = tasks.dev_task(source) if role == "dev" else tasks.TASKS[source]
        pairs = tasks.load(task, role, data_folder=config.data_dir, cache_folder=config.cache_dir, token=config.token)
        return _measurable(
            Scored(task.name, pairs, task.metric, _record(f"{task.dataset} ({task.splits[role]})", pairs))
        )
    pairs = read_pairs(source, cache_folder=config.cache_dir, data_folder=config.data_dir, token=config.token)
    if "score" not in pairs.column_names:
        raise InputError(
            f"{_source(source)} is given as {role}, but no column of it is called `score`. "
            "Give a labelled file with a header sentence1, sentence2, score"
        )
    name = Path(source).name.partition(".")[0] if isinstance(source, str) else role
    return _measurable(Scored(name, pairs, METRIC_OF_KIND[config.task_kind], _record(_source(source), pairs)))


def _measurable(scored: Scored) -> Scored:
    """Refuse, before anything is trained, gold scores that no model can be measured against."""
    gold = np.asarray(scored.pairs["score"][:], np.float64)
    if len(set(gold)) < 2:
        raise InputError(
            f"{scored.record['source']}: its gold scores are all {gold[0] if len(gold) else 'missing'}; "
            "nothing can be measured against them. Give pairs of different scores"
        )
    METRICS[scored.metric](gold, gold)
    return scored


def _record(source: str, pairs: Dataset) -> DataRecord:
    return {"source": source, "rows": len(pairs), "fingerprint": fingerprint(pairs)}


def _source(source: str | Dataset) -> str:
    return source if isinstance(source, str) else "a Dataset given in Python"
