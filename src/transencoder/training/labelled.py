"""The labelled sets of a run: the dev set that chooses, the test sets that are scored once."""

from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from transencoder import tasks
from transencoder.configs.run import RunConfig
from transencoder.context import Scored
from transencoder.errors import InputError
from transencoder.evaluation import agreement
from transencoder.pairs import fingerprint, read_pairs
from transencoder.records import DataRecord

METRIC_OF_KIND = {"graded": "spearman", "binary": "roc_auc"}


def read_labelled(config: RunConfig) -> tuple[Scored | None, list[Scored]]:
    """Read a config's dev and test sets and check them.

    Raises:
        InputError: A set cannot be read, has bad rows, or has no scores that anything can be measured against.
    """
    dev = None if config.dev is None else _scored(config, config.dev, "dev")
    tests = [test for name in config.tests for test in _tests(config, name)]
    _check_names(tests)
    return dev, tests


def data_record(source: str, rows: Dataset) -> DataRecord:
    """A data set for result.json."""
    return {"source": source, "rows": len(rows), "fingerprint": fingerprint(rows)}


def reading_options(config: RunConfig, bad_rows_file: Path | None) -> dict[str, Any]:
    """How a config's training text is read, as the readers of `transencoder.pairs` take it.

    Args:
        config: Any method's.
        bad_rows_file: Where bad rows go; None: nowhere.
    """
    return {
        "header": config.header,
        "file_format": config.file_format,
        "split": config.split,
        "cache_folder": config.cache_dir,
        "data_folder": config.data_dir,
        "token": config.token,
        "skip_bad_rows": config.skip_bad_rows,
        "bad_rows_file": bad_rows_file,
    }


def source_name(source: str | Dataset) -> str:
    """Where a data set came from."""
    return source if isinstance(source, str) else "a Dataset given in Python"


def _check_names(tests: list[Scored]) -> None:
    sources: dict[str, str] = {}
    for test in tests:
        if test.name in sources:
            raise InputError(
                f"two test sets are called {test.name}: {sources[test.name]} and {test.record['source']}; "
                "give each once, and files different names up to their first dot"
            )
        sources[test.name] = test.record["source"]


def _tests(config: RunConfig, name: str) -> list[Scored]:
    if name in tasks.SUITES:
        return [_scored(config, task.name, "test") for task in tasks.expand(name)]
    return [_scored(config, name, "test")]


def _scored(config: RunConfig, source: str | Dataset, role: Any) -> Scored:
    if isinstance(source, str) and (source in tasks.TASKS or source in tasks.SUITES):
        task = tasks.dev_task(source) if role == "dev" else tasks.TASKS[source]
        if task.metric == "accuracy":
            return _classes(config, task, role)
        pairs, rows = tasks.load_named(
            task, role, data_folder=config.data_dir, cache_folder=config.cache_dir, token=config.token
        )
        name = task.dataset if task.config is None else f"{task.dataset}/{task.config}"
        return _measurable(task.name, pairs, task.metric, f"{name} ({rows})")
    pairs = read_pairs(source, cache_folder=config.cache_dir, data_folder=config.data_dir, token=config.token)
    if "score" not in pairs.column_names:
        raise InputError(
            f"{source_name(source)} is given as {role}, but no column of it is called `score`. "
            "Give a labelled file with a header sentence1, sentence2, score"
        )
    name = Path(source).name.partition(".")[0] if isinstance(source, str) else role
    return _measurable(name, pairs, METRIC_OF_KIND[config.task_kind], source_name(source))


def _classes(config: RunConfig, task: tasks.Task, role: Any) -> Scored:
    if role == "dev":
        raise InputError(
            f"dev is {task.name}, where a classifier is trained anew at each evaluation; give one of its graded or "
            "binary neighbours, such as stsb, and leave it to tests"
        )
    sets = tasks.load_classes(task, data_folder=config.data_dir, cache_folder=config.cache_dir, token=config.token)
    if len(set(sets["train"]["score"][:])) < 2:
        raise InputError(f"{task.name}: the rows of its train split are all of one class; a classifier needs two")
    record = data_record(f"{task.dataset} (a classifier of train, chosen on dev, on test)", sets["test"])
    record["metric"] = task.metric
    return Scored(sets["test"], task.metric, sets, name=task.name, record=record)


def _measurable(name: str, pairs: Dataset, metric: str, source: str) -> Scored:
    """Refuse, before anything is trained, gold scores that no model can be measured against."""
    gold = np.asarray(pairs["score"][:], np.float64)
    if len(set(gold)) < 2:
        raise InputError(
            f"{source}: its gold scores are all {gold[0] if len(gold) else 'missing'}; "
            "nothing can be measured against them. Give pairs of different scores"
        )
    agreement(pairs, gold, metric)
    record = data_record(source, pairs)
    record["metric"] = metric
    return Scored(pairs, metric, name=name, record=record)
