"""`evaluate`: how far models, each and all together, agree with gold; as a table, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from rich.table import Table

from transencoder import progress
from transencoder.cli.files import PairRows, Where
from transencoder.cli.flags import OneOf, option
from transencoder.cli.scoring import Models, loaded, weights_of
from transencoder.cli.terminal import show
from transencoder.errors import InputError
from transencoder.records import AVERAGE
from transencoder.wording import ABSENT, plural

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder.evaluation import LabelledSet
    from transencoder.metrics import Interval, RowIntervals
    from transencoder.scorers import KeptScores

_ENSEMBLE = "ensemble"
_SEED = 2021
"""The runs' default: intervals are then those of a run's report."""
_DATA, _FORM = OneOf(is_required=True), OneOf()


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Options of `evaluate`."""

    scoring: Models
    tasks: tuple[str, ...] = option((), metavar="TASK", one_of=_DATA)
    """tasks or suites, such as sts or stsb askubuntu"""
    pairs: str | None = option(None, one_of=_DATA)
    """pairs with gold scores: TSV, CSV, JSONL or Parquet file, - for stdin, hub id (id:config@revision)"""
    score_column: str | None = None
    """name of the gold score in --pairs (default: score)"""
    metric: Literal["spearman", "roc_auc", "map", "mrr_at_10", "ndcg_at_10", "recall_at_10"] | None = None
    """those from map on rank the pairs of equal first sentences (default: spearman, for --tasks their own)"""
    weights: tuple[float, ...] = option(())
    """share of each model in the ensemble, the mean of several models' scores (default: equal)"""
    json: bool = option(False, one_of=_FORM)
    """print JSON instead of a table"""
    csv: bool = option(False, one_of=_FORM)
    """print CSV instead of a table"""
    rows: PairRows
    where: Where


def evaluate(options: Evaluate) -> None:
    """Measure models on tasks or your own scored pairs, and gains over the first."""
    if options.tasks and (options.score_column or options.rows != PairRows()):
        raise InputError(
            "--score-column, --columns, --split, --header, --file-format, --skip-bad-rows and --bad-rows-file are for "
            "--pairs; a task has its own"
        )
    models = options.scoring.models
    if len(models) > 1 and _ENSEMBLE in models:
        raise InputError(f"a model is called {_ENSEMBLE}, as their mean is in the table; give it as ./{_ENSEMBLE}")
    weights = weights_of(options.scoring, options.weights)
    measured = _measured(options, _labelled_sets(options), weights)
    if options.json:
        show(json.dumps(_without_nan(_record(measured, weights))))
    elif options.csv:
        show(_csv(measured))
    else:
        show(_table_of_one(measured) if len(measured.scores) == 1 else _table_of_several(measured))
        for line in _remarks(measured):
            show(line)


def _labelled_sets(options: Evaluate) -> dict[str, LabelledSet]:
    from transencoder.evaluation import LabelledSet, load_sets
    from transencoder.pairs import read_pairs
    from transencoder.tasks import expand

    if options.pairs is not None:
        reading = {**vars(options.rows), **vars(options.where)}
        pairs = read_pairs(options.pairs, score_column=options.score_column, **reading)
        return {options.pairs: LabelledSet(pairs, options.metric or "spearman")}
    classes = [task.name for task in expand(options.tasks) if task.metric == "accuracy"]
    if options.metric and classes:
        raise InputError(
            f"--metric is {options.metric}, but {', '.join(classes)} is of classes and has accuracy; leave one of them "
            "out"
        )
    return load_sets(options.tasks, metric=options.metric, **vars(options.where))


def _measured(options: Evaluate, sets: Mapping[str, LabelledSet], weights: list[float]) -> _Measured:
    """Measure the models and, of several, their ensemble; each scores each set once."""
    from transencoder.evaluation import gold_of, measure
    from transencoder.metrics import n_ranked
    from transencoder.scorers import KeptScores, MeanScorer

    with loaded(options.scoring, options.where) as teachers:
        kept = {teacher.name: KeptScores(teacher.scorer) for teacher in teachers}
        found = {model: {name: measure(scorer, each) for name, each in sets.items()} for model, scorer in kept.items()}
    if len(kept) > 1:
        ensemble = KeptScores(MeanScorer([_Again(each.scores) for each in kept.values()], weights))
        found[_ENSEMBLE] = {name: measure(ensemble, each) for name, each in sets.items()}
        kept[_ENSEMBLE] = ensemble
    metrics = {name: each.metric for name, each in sets.items()}
    gold = {name: gold_of(each.pairs, each.metric) for name, each in sets.items() if each.classes is None}
    return _Measured(
        metrics=metrics,
        n_pairs={name: len(each.pairs) for name, each in sets.items()},
        n_queries={name: n_ranked(scores, queries) for name, (scores, queries) in gold.items() if queries is not None},
        scores=found,
        intervals=_intervals(metrics, gold, kept),
    )


class _Again:
    """A scorer that gives kept scores again, in the order of the sets."""

    def __init__(self, scores: list[np.ndarray]) -> None:
        self.scores = iter(scores)

    def score(self, pairs: Dataset) -> np.ndarray:  # noqa: ARG002 - they are those that were scored
        """Return the next set's."""
        return next(self.scores)


def _intervals(
    metrics: Mapping[str, str],
    gold: Mapping[str, tuple[np.ndarray, np.ndarray | None]],
    kept: Mapping[str, KeptScores],
) -> dict[str, RowIntervals]:
    """Compute those of the sets whose pairs are scored and, where these are all and of one metric, of their average.

    `gold` has, of n pairs, (n,) gold scores and, of a ranking, (n,) numbers of the queries.
    """
    from transencoder.metrics import metric_draws, row_intervals

    draws = {}
    with progress.task("intervals", len(gold)) as advance:
        for i, (name, (gold_scores, queries)) in enumerate(gold.items()):
            scores = np.array([scorer.scores[i] for scorer in kept.values()], np.float64)
            test = Path(name).name.partition(".")[0]  # as runs call it
            drawn = metric_draws(metrics[name], gold_scores, scores, queries, name=test, seed=_SEED)
            if drawn is not None:
                draws[name] = drawn
            advance(1)
    found = {name: row_intervals(drawn, list(kept)) for name, drawn in draws.items()}
    if len(draws) == len(metrics) > 1 and len(set(metrics.values())) == 1:
        found[AVERAGE] = row_intervals(np.mean(list(draws.values()), axis=0), list(kept))
    return found


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """Models on labelled sets and, last of several models, their ensemble."""

    metrics: Mapping[str, str]
    """Set -> metric."""
    n_pairs: Mapping[str, int]
    """Set -> how many pairs it has."""
    n_queries: Mapping[str, int]
    """Set that is a ranking -> how many queries have positive and negative candidates."""
    scores: Mapping[str, Mapping[str, float]]
    """Model -> set -> metric times 100; NaN where it is undefined."""
    intervals: Mapping[str, RowIntervals]
    """Of the sets whose pairs are scored, and of their average."""

    @property
    def averages(self) -> dict[str, float | None]:
        """Each model's mean over the sets; None where these have different metrics."""
        from transencoder.evaluation import average

        has_mean = len(set(self.metrics.values())) == 1
        return {model: average(scores) if has_mean else None for model, scores in self.scores.items()}

    @property
    def rows(self) -> dict[str, dict[str, float]]:
        """Set, or the average of several -> model -> metric times 100."""
        rows = {test: {model: scores[test] for model, scores in self.scores.items()} for test in self.metrics}
        averages = {model: value for model, value in self.averages.items() if value is not None}
        return {**rows, AVERAGE: averages} if len(rows) > 1 and averages else rows

    @property
    def gains(self) -> dict[str, dict[str, float]]:
        """Row -> each model but the first -> points over the first."""
        first, *others = self.scores
        return {name: {model: row[model] - row[first] for model in others} for name, row in self.rows.items()}

    def interval(self, name: str, model: str) -> Interval | None:
        """Return that of a row's score."""
        return self.intervals[name].scores.get(model) if name in self.intervals else None

    def gain_interval(self, name: str, model: str) -> Interval | None:
        """Return that of a row's gain."""
        return self.intervals[name].gains.get(model) if name in self.intervals else None

    def size(self, name: str) -> str:
        """Say how large a row's data are: `100 pairs`, of a ranking `20 queries`, of an average `7 tests`."""
        if name in self.n_queries:
            n_queries = self.n_queries[name]
            return "1 query" if n_queries == 1 else f"{n_queries:,} queries"
        return plural(self.n_pairs[name], "pair") if name in self.n_pairs else plural(len(self.metrics), "test")


def _record(measured: _Measured, weights: Sequence[float]) -> dict[str, Any]:
    """Build what `--json` prints: scores of the only model, or of the ensemble with the models' own below `each`."""
    from transencoder.finished import intervals_record

    *models, last = measured.scores
    averages = measured.averages
    record: dict[str, Any] = {
        "models": models or [last],
        "metrics": measured.metrics,
        "n_pairs": measured.n_pairs,
        "n_queries": measured.n_queries,
        "scores": measured.scores[last],
        "average": averages[last],
        "intervals": intervals_record(measured.intervals),
    }
    if models:
        record["weights"] = weights
        record["each"] = {name: {"scores": measured.scores[name], "average": averages[name]} for name in models}
        record["gains"] = measured.gains
    return record


def _without_nan(record: Any) -> Any:
    """Put null for NaN, which JSON does not have."""
    if isinstance(record, dict):
        return {name: _without_nan(value) for name, value in record.items()}
    return None if isinstance(record, float) and math.isnan(record) else record


def _csv(measured: _Measured) -> str:
    """Write the rows of the table, unrounded, with their intervals and gains in columns of their own."""
    rows = [list(_csv_cells(measured, name)) for name in measured.rows]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column for column, _ in rows[0]])
    writer.writerows([value for _, value in row] for row in rows)
    return text.getvalue().rstrip()


def _csv_cells(measured: _Measured, name: str) -> Iterator[tuple[str, object]]:
    """Yield the columns and what a set, or the average, has there."""

    def bounds(column: str, interval: Interval | None) -> Iterator[tuple[str, object]]:
        yield f"{column} low", interval.low if interval else None
        yield f"{column} high", interval.high if interval else None

    yield from (("set", name), ("metric", measured.metrics.get(name)))
    yield from measured.rows[name].items()
    yield from (("n_pairs", measured.n_pairs.get(name)), ("n_queries", measured.n_queries.get(name)))
    for model in measured.scores:
        yield from bounds(model, measured.interval(name, model))
    for model, gain in measured.gains[name].items():
        yield f"{model} gain", gain
        yield from bounds(f"{model} gain", measured.gain_interval(name, model))


def _table_of_one(measured: _Measured) -> Table:
    (model,) = measured.scores
    table = Table("", "metric x 100", "", caption=model)
    table.add_column("score", justify="right")
    for name, row in measured.rows.items():
        if name == AVERAGE:
            table.add_section()
        score = _cell(row[model], measured.interval(name, model))
        table.add_row(name, measured.metrics.get(name), measured.size(name), score)
    return table


def _table_of_several(measured: _Measured) -> Table:
    """Build a section for each set, whose name, metric and size stand below each other beside the models."""
    table = Table(pad_edge=False)  # three models' fit in 80 columns
    for title in ("", "model"):
        table.add_column(title, overflow="fold")
    for title in ("score x 100", "gain over the first"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, row in measured.rows.items():
        titles = filter(None, (name, measured.metrics.get(name), measured.size(name)))
        for title, model in zip_longest(titles, row):
            gain = measured.gains[name].get(model)
            gain_cell = "" if gain is None else _cell(gain, measured.gain_interval(name, model), sign="+")
            table.add_row(title, model, _cell(row[model], measured.interval(name, model)), gain_cell)
        table.add_section()
    return table


def _cell(value: float, interval: Interval | None, sign: str = "") -> str:
    if math.isnan(value):
        return ABSENT
    bounds = f" [{interval.low:.1f}, {interval.high:.1f}]" if interval else ""
    return f"{value:{sign}.2f}{bounds}"


def _remarks(measured: _Measured) -> Iterator[str]:
    """Say what the brackets hold, and which gains they say nothing of: the average's, where there is one."""
    from transencoder.report.scores import BRACKETS, GAIN_BRACKETS
    from transencoder.report.words import no_difference

    if measured.intervals:
        yield f"{BRACKETS}; {GAIN_BRACKETS}." if len(measured.scores) > 1 else f"{BRACKETS}."
    for name in [AVERAGE] if AVERAGE in measured.rows else measured.metrics:
        intervals = {model: measured.gain_interval(name, model) for model in measured.gains[name]}
        unknown = [model for model, interval in intervals.items() if interval and interval.holds_zero]
        if unknown:
            models = ["the ensemble" if model == _ENSEMBLE else model for model in unknown]
            said = no_difference(models, next(iter(measured.scores)), f"these {measured.size(name)}")
            yield f"{name}: {said}."
