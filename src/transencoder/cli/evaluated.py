"""What `evaluate` shows: scores, and gains over the first model, with their intervals; as JSON, CSV or a table."""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from rich.table import Table

from transencoder.bootstrap import Interval, RowIntervals
from transencoder.evaluation import average
from transencoder.finished import intervals_record
from transencoder.records import AVERAGE
from transencoder.report.scores import BRACKETS, GAIN_BRACKETS
from transencoder.report.words import no_difference
from transencoder.wording import ABSENT, plural

ENSEMBLE = "ensemble"


@dataclass(frozen=True)
class Measured:
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
        """Of each model the mean over the sets; None where these have different metrics."""
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
        """Of a row's score."""
        return self.intervals[name].scores.get(model) if name in self.intervals else None

    def gain_interval(self, name: str, model: str) -> Interval | None:
        """Of a row's gain."""
        return self.intervals[name].gains.get(model) if name in self.intervals else None

    def size(self, name: str) -> str:
        """How large a row's data are: `100 pairs`, of a ranking `20 queries`, of an average `7 tests`."""
        if name in self.n_queries:
            n_queries = self.n_queries[name]
            return "1 query" if n_queries == 1 else f"{n_queries:,} queries"
        return plural(self.n_pairs[name], "pair") if name in self.n_pairs else plural(len(self.metrics), "test")


def as_json(measured: Measured, weights: Sequence[float]) -> str:
    """`scores` and `average` are the only model's, or the ensemble's, which has the models' own below `each`."""
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
    return json.dumps(_without_nan(record))


def as_csv(measured: Measured) -> str:
    """The rows of the table, unrounded; columns for each model and the ensemble, then for intervals and gains."""
    rows = [list(_csv_cells(measured, name)) for name in measured.rows]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [[column for column, _ in rows[0]], *([value for _, value in row] for row in rows)]
    )
    return text.getvalue().rstrip()


def as_table(measured: Measured) -> Table:
    """A row for each set; with several models one for each model."""
    return _table_of_one(measured) if len(measured.scores) == 1 else _table_of_several(measured)


def remarks(measured: Measured) -> list[str]:
    """What the brackets hold, and which gains they say nothing of: the average's, where there is one."""
    lines = []
    if measured.intervals:
        lines.append(f"{BRACKETS}; {GAIN_BRACKETS}." if len(measured.scores) > 1 else f"{BRACKETS}.")
    for name in [AVERAGE] if AVERAGE in measured.rows else measured.metrics:
        intervals = {model: measured.gain_interval(name, model) for model in measured.gains[name]}
        unknown = [model for model, interval in intervals.items() if interval and interval.holds_zero]
        if unknown:
            models = ["the ensemble" if model == ENSEMBLE else model for model in unknown]
            said = no_difference(models, next(iter(measured.scores)), f"these {measured.size(name)}")
            lines.append(f"{name}: {said}.")
    return lines


def _csv_cells(measured: Measured, name: str) -> Iterator[tuple[str, object]]:
    """Columns and what a set, or the average, has there."""

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


def _table_of_one(measured: Measured) -> Table:
    (model,) = measured.scores
    table = Table("", "metric x 100", "", caption=model)
    table.add_column("score", justify="right")
    for name, row in measured.rows.items():
        if name == AVERAGE:
            table.add_section()
        score = _cell(row[model], measured.interval(name, model))
        table.add_row(name, measured.metrics.get(name), measured.size(name), score)
    return table


def _table_of_several(measured: Measured) -> Table:
    """A section for each set, whose name, metric and size stand below each other beside the models."""
    table = Table(pad_edge=False)  # three models' fit in 80 columns
    for title in ("", "model"):
        table.add_column(title, overflow="fold")
    for title in ("score x 100", "gain over the first"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, row in measured.rows.items():
        titles = filter(None, (name, measured.metrics.get(name), measured.size(name)))
        for title, model in zip_longest(titles, row):
            gain = measured.gains[name].get(model)
            table.add_row(
                title,
                model,
                _cell(row[model], measured.interval(name, model)),
                "" if gain is None else _cell(gain, measured.gain_interval(name, model), sign="+"),
            )
        table.add_section()
    return table


def _cell(value: float, interval: Interval | None, sign: str = "") -> str:
    if math.isnan(value):
        return ABSENT
    bounds = f" [{interval.low:.1f}, {interval.high:.1f}]" if interval else ""
    return f"{value:{sign}.2f}{bounds}"


def _without_nan(record: Any) -> Any:
    """NaN, which JSON does not have, as null."""
    if isinstance(record, dict):
        return {name: _without_nan(value) for name, value in record.items()}
    return None if isinstance(record, float) and math.isnan(record) else record
