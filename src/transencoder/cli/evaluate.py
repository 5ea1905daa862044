"""The command `evaluate`: measure models, and on request their mean, and print a table, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from rich.table import Table

import transencoder
from transencoder import progress
from transencoder.cli.files import PairRows
from transencoder.cli.flags import option
from transencoder.cli.scoring import Models, checked_weights, loaded
from transencoder.cli.terminal import show
from transencoder.configs.ranges import Config, Contradictions
from transencoder.errors import ABSENT, InputError, plural, spreadsheet_cell
from transencoder.records import AVERAGE, Interval, IntervalRecord

if TYPE_CHECKING:
    from transencoder import evaluation, scorers

_ENSEMBLE = "ensemble"
_SEED = 2021
"""Seed of the bootstrap: the default of runs, so that intervals agree with a run's report."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(Config):
    """Measure models on tasks or your own scored pairs, with gains over the first; for a run, both of its models."""

    scoring: Models
    tasks: tuple[str, ...] = option((), metavar="TASK", one_of="data!")
    """tasks or suites, such as sts or stsb askubuntu"""
    pairs: str | None = option(None, one_of="data!")
    """pairs with gold scores: TSV, CSV, JSONL or Parquet file, - for stdin, hub id (id:config@revision)"""
    score_column: str | None = None
    """name of the gold score in --pairs (default: score)"""
    metric: Literal["spearman", "roc_auc", "map", "mrr_at_10", "ndcg_at_10", "recall_at_10"] | None = None
    """metric; all but spearman and roc_auc rank the pairs that share a first sentence (default: spearman, for --tasks
    their own)"""
    ensemble: bool = False
    """measure the mean of the models' scores too"""
    weights: tuple[float, ...] = option(())
    """measure the mean, with this weight for each model (default: equal)"""
    json: bool = option(False, one_of="form")
    """print JSON instead of a table"""
    csv: bool = option(False, one_of="form")
    """print CSV instead of a table"""
    rows: PairRows

    def contradictions(self) -> Contradictions:
        if self.tasks and (self.score_column or self.rows.is_said):
            yield (
                "--score-column, --columns, --split, --header, --file-format, --skip-bad-rows and --bad-rows-file are "
                "for --pairs; a task has its own"
            )
        if self.has_ensemble and _ENSEMBLE in self.scoring.models:
            yield f"a model is called {_ENSEMBLE}, as their mean is in the table; give it as ./{_ENSEMBLE}"

    @property
    def has_ensemble(self) -> bool:
        """Whether the models' mean is measured."""
        return self.ensemble or bool(self.weights)

    def __call__(self) -> None:
        from transencoder import distributed

        distributed.start()
        models = tuple(each for name in self.scoring.models for each in _of_run(name))
        if self.has_ensemble and len(models) < 2:
            raise InputError(f"an ensemble (--ensemble, --weights) needs two models or more; there is only {models[0]}")
        weights = checked_weights(self.weights, len(models)) if self.has_ensemble else []
        rows = _measured(replace(self, scoring=replace(self.scoring, models=models)), _labelled_sets(self), weights)
        if self.json:
            show(json.dumps(_record(rows, weights)), as_it_is=True)
        elif self.csv:
            show(_csv(rows), as_it_is=True)
        else:
            show(_table_of_one(rows) if len(rows[0].scores) == 1 else table_of_several(rows))
            for line in _remarks(rows):
                show(line)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Results on a data set, or their average over several data sets with the same metric."""

    name: str
    metric: str | None
    """Name of the metric; None for the average."""
    n_pairs: int | None = None
    n_queries: int | None = None
    """Number of queries that can be ranked, for a ranking metric."""
    n_sets: int = 1
    scores: Mapping[str, float]
    """Model -> metric times 100; the ensemble, if any, is last."""
    draws: np.ndarray | None
    """The models' metrics on bootstrap samples, (models, samples); None for classes, and where they are undefined."""

    @cached_property
    def intervals(self) -> IntervalRecord | None:
        """Intervals of the models' scores and gains."""
        from transencoder.metrics import row_intervals

        return None if self.draws is None else row_intervals(self.draws, list(self.scores))

    @property
    def gains(self) -> dict[str, float]:
        """Each model except the first -> points gained over the first."""
        first, *others = self.scores
        return {model: self.scores[model] - self.scores[first] for model in others}

    def interval(self, model: str, of: Literal["scores", "gains"] = "scores") -> Interval | None:
        """Return the interval of a model's score, or of its gain, if any."""
        return self.intervals[of].get(model) if self.intervals else None

    @property
    def size(self) -> str:
        """Size of the data: `100 pairs`, `20 queries` for a ranking metric, `7 tests` for an average."""
        if self.n_queries is not None:
            return "1 query" if self.n_queries == 1 else f"{self.n_queries:,} queries"
        return plural(self.n_sets, "test") if self.n_pairs is None else plural(self.n_pairs, "pair")


def _of_run(name: str) -> list[str]:
    """Return the name of a model or, for a run, the names of its bi-encoder and its cross-encoder."""
    folder = Path(os.path.expandvars(name)).expanduser()
    found = [f"{name}/{form}" for form in ("bi-encoder", "cross-encoder") if (folder / form).is_dir()]
    return found if (folder / "recipe.toml").exists() and found else [name]


def _labelled_sets(options: Evaluate) -> dict[str, evaluation.LabelledSet]:
    from transencoder import evaluation, tasks

    if options.pairs is not None:
        pairs = transencoder.read_pairs(
            options.pairs, score_column=options.score_column, needs_score=True, **vars(options.rows)
        )
        return {options.pairs: evaluation.LabelledSet(pairs, options.metric or "spearman")}
    classes = [task.name for task in tasks.expand(options.tasks) if task.metric == "accuracy"]
    if options.metric and classes:
        raise InputError(
            f"--metric is {options.metric}, but {', '.join(classes)} is of classes and has accuracy; leave one of them "
            "out"
        )
    rows = options.rows
    where = {"data_folder": rows.data_folder, **rows.hub}
    return evaluation.load_sets(options.tasks, metric=options.metric, **where)


def _measured(options: Evaluate, sets: Mapping[str, evaluation.LabelledSet], weights: list[float]) -> list[Row]:
    """Measure each model and, with weights, their ensemble on each set; the last row may be the average."""
    from transencoder.scorers import MeanScorer

    rows = []
    with loaded(options.scoring, options.rows) as found, progress.task("sets", len(sets)) as advance:
        models = dict(zip(options.scoring.models, found, strict=True))
        ensemble = MeanScorer(found, weights) if weights else None
        for name, each in sets.items():
            rows.append(_row(name, each, models, ensemble))
            advance(1)
    if len(rows) > 1 and len({row.metric for row in rows}) == 1:
        scores = {model: float(np.mean([row.scores[model] for row in rows])) for model in rows[0].scores}
        draws = [row.draws for row in rows if row.draws is not None]
        drawn = np.mean(draws, axis=0) if len(draws) == len(rows) else None
        rows.append(Row(name=AVERAGE, metric=None, n_sets=len(rows), scores=scores, draws=drawn))
    return rows


def _row(
    name: str,
    labelled: evaluation.LabelledSet,
    models: Mapping[str, scorers.Scorer],
    ensemble: scorers.MeanScorer | None,
) -> Row:
    from transencoder import evaluation, metrics

    metric, n_queries, drawn = labelled.metric, None, None
    measured = {model: evaluation.measure_with_scores(scorer, labelled) for model, scorer in models.items()}
    given = [scores for _, scores in measured.values() if scores is not None]
    if ensemble is not None:
        mean = ensemble.mean_of(given) if given else None  # without embeddings it has no classifier
        measured[_ENSEMBLE] = (math.nan if mean is None else evaluation.agreement(labelled.pairs, mean, metric), mean)
    scores = [each for _, each in measured.values() if each is not None]
    if scores:
        gold, queries = evaluation.gold_of(labelled.pairs, metric)
        n_queries = None if queries is None else metrics.n_ranked(gold, queries)
        test = Path(name).name.partition(".")[0]  # the name that runs use
        drawn = metrics.metric_draws(metric, gold, np.array(scores, np.float64), queries, name=test, seed=_SEED)
    n_pairs = len(labelled.pairs)
    return Row(
        name=name,
        metric=metric,
        n_pairs=n_pairs,
        n_queries=n_queries,
        scores={model: value for model, (value, _) in measured.items()},
        draws=drawn,
    )


def _record(rows: Sequence[Row], weights: Sequence[float]) -> dict[str, Any]:
    """Build the JSON record: each model's scores under `each`, and on top those of the ensemble or the only model."""
    from transencoder.metrics import defined

    sets = [row for row in rows if row.metric]
    average = defined(rows[-1].scores) if len({row.metric for row in sets}) == 1 else {}
    each = {
        model: {"scores": defined({row.name: row.scores[model] for row in sets}), "average": average.get(model)}
        for model in rows[0].scores
    }
    top = each.pop(_ENSEMBLE) if weights else next(iter(each.values())) if len(each) == 1 else {}
    record: dict[str, Any] = {
        "models": list(each),
        "metrics": {row.name: row.metric for row in sets},
        "n_pairs": {row.name: row.n_pairs for row in sets},
        "n_queries": {row.name: row.n_queries for row in sets if row.n_queries is not None},
        **top,
        "each": each,
        "intervals": {row.name: row.intervals for row in rows if row.intervals},
    }
    if len(each) > 1:
        record |= {"gains": {row.name: defined(row.gains) for row in rows}}
    return record | ({"weights": weights} if weights else {})


def _csv(rows: Sequence[Row]) -> str:
    """Return the rows of the table as CSV, unrounded, with intervals and gains in their own columns.

    A text that a spreadsheet would compute gets an apostrophe in front. Data that other commands write stay unchanged.
    """
    cells = [list(_csv_cells(row)) for row in rows]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([spreadsheet_cell(column) for column, _ in cells[0]])
    writer.writerows([spreadsheet_cell(value) for _, value in row] for row in cells)
    return text.getvalue().rstrip()


def _csv_cells(row: Row) -> Iterator[tuple[str, object]]:
    """Yield the names of the columns and a row's values."""
    yield from (("set", row.name), ("metric", row.metric), *row.scores.items())
    yield from (("n_pairs", row.n_pairs), ("n_queries", row.n_queries))
    for model in row.scores:
        yield from _bounds(model, row.interval(model))
    for model, gain in row.gains.items():
        yield f"{model} gain", gain
        yield from _bounds(f"{model} gain", row.interval(model, "gains"))


def _bounds(column: str, interval: Interval | None) -> Iterator[tuple[str, object]]:
    yield f"{column} low", interval[0] if interval else None
    yield f"{column} high", interval[1] if interval else None


def _table_of_one(rows: Sequence[Row]) -> Table:
    (model,) = rows[0].scores
    table = Table("", "metric x 100", "", caption=model)
    table.add_column("score", justify="right")
    for row in rows:
        if row.name == AVERAGE:
            table.add_section()
        table.add_row(row.name, row.metric, row.size, _cell(row.scores[model], row.interval(model)))
    return table


def table_of_several(rows: Sequence[Row]) -> Table:
    """Build a table with a section for each set: its name, metric and size below each other, beside the models."""
    table = Table(pad_edge=False)  # so that a table of three models fits in 80 columns
    for title in ("", "model"):
        table.add_column(title, overflow="fold")
    for title in ("score x 100", "gain over the first"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        for title, model in zip_longest(filter(None, (row.name, row.metric, row.size)), row.scores):
            if model is None:
                table.add_row(title)
                continue
            gain = row.gains.get(model)
            gain_cell = "" if gain is None else _cell(gain, row.interval(model, "gains"), sign="+")
            table.add_row(title, model, _cell(row.scores[model], row.interval(model)), gain_cell)
        table.add_section()
    return table


def _cell(value: float, interval: Interval | None, sign: str = "") -> str:
    if math.isnan(value):
        return ABSENT
    bounds = f" [{interval[0]:.1f}, {interval[1]:.1f}]" if interval else ""
    return f"{value:{sign}.2f}{bounds}"


def _remarks(rows: Sequence[Row]) -> Iterator[str]:
    """Yield remarks on what the brackets hold, and on gains without significance: of the average, if there is one."""
    from transencoder.metrics import includes_zero
    from transencoder.report.scores import BRACKETS, GAIN_BRACKETS
    from transencoder.report.words import no_difference

    first, *others = rows[0].scores
    if any(row.intervals for row in rows):
        yield f"{BRACKETS}; {GAIN_BRACKETS}." if others else f"{BRACKETS}."
    for row in rows[-1:] if rows[-1].name == AVERAGE else rows:
        intervals = {model: row.interval(model, "gains") for model in others}
        unknown = [model for model, interval in intervals.items() if interval and includes_zero(interval)]
        if unknown:
            models = ["the ensemble" if model == _ENSEMBLE else model for model in unknown]
            yield f"{row.name}: {no_difference(models, first, f'these {row.size}')}."
