"""Bootstrap intervals of scores and of their gains: what another draw of the same number of pairs would give."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transencoder import progress
from transencoder.config import Form
from transencoder.ranking import RANKING_METRICS, query_values
from transencoder.report.evidence import DEV, Evidence, Gold
from transencoder.report.reading import best_start, forms_of, tests_by_metric
from transencoder.report.result import IntervalRecord, Result
from transencoder.report.tables import AVERAGE
from transencoder.report.text import metric_mark
from transencoder.runs import stage_seed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Draws = NDArray[np.float64]
    """Metrics times 100 of k models on the same resamples, (k, resamples)."""

N_RESAMPLES = 1000
LEVEL = 0.95
_NUMBERS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Interval:
    """Where LEVEL of the resamples lie."""

    low: float
    high: float


@dataclass(frozen=True)
class RowIntervals:
    """Of one test, or of the average of the tests of a metric."""

    scores: dict[str, Interval]
    """`start` and the forms."""
    gains: dict[Form, Interval]
    """Of each form over the start, both measured on the same resamples."""


def intervals_of(result: Result) -> dict[str, RowIntervals]:
    """Intervals for the rows of the score table, by the row's name; rows without kept scores have none."""
    return {
        name: RowIntervals(
            {model: Interval(*ends) for model, ends in row["scores"].items()},
            {form: Interval(*ends) for form, ends in row["gains"].items()},
        )
        for name, row in result.get("intervals", {}).items()
    }


def intervals_record(intervals: Mapping[str, RowIntervals]) -> dict[str, IntervalRecord]:
    """The intervals for result.json."""
    return {
        name: {
            "scores": {model: (each.low, each.high) for model, each in row.scores.items()},
            "gains": {form: (each.low, each.high) for form, each in row.gains.items()},
        }
        for name, row in intervals.items()
    }


def drawn_intervals(evidence: Evidence) -> dict[str, RowIntervals]:
    """Intervals by resampling pairs, or queries, of the tests, of dev where there are none; by the row's name.

    About 0.05 ms a thousand pairs, model and resample. Training with another seed is not in these intervals.
    """
    result = evidence.result
    groups, found = tests_by_metric(result), {}
    if not groups and result["dev"]:
        on_dev = draws_of([(evidence, model) for model in ("start", *forms_of(result))], None, result["metric"])
        return {} if on_dev is None else {DEV: _row(on_dev, forms_of(result))}
    with progress.task("intervals of the tests", sum(map(len, groups.values()))) as advance:
        for metric, names in groups.items():
            mark = metric_mark(metric, groups)
            models = [best_start(result, names), *forms_of(result)]
            draws = {}
            for name in names:
                drawn = draws_of([(evidence, model) for model in models], name, metric)
                if drawn is not None:
                    draws[name] = drawn
                    found[name + mark] = _row(drawn, models[1:])
                advance(1)
            if len(names) > 1 and len(draws) == len(names):
                found[AVERAGE + mark] = _row(np.mean(list(draws.values()), axis=0), models[1:])
    return found


def draws_of(models: Sequence[tuple[Evidence, str]], test: str | None, metric: str) -> "Draws | None":
    """Metrics of several models on the same resamples of a test's pairs, or of its queries where it is a ranking.

    Args:
        models: A run's evidence, and which of its models: `start`, `start_as_is` or a form.
        test: The test's name, the same data in all runs; None: dev.
        metric: How it is measured.

    Returns:
        Metrics times 100, (models, N_RESAMPLES), or None where gold or a model's scores were not kept.
    """
    from scipy.stats import DegenerateDataWarning, bootstrap

    gold = models[0][0].gold(test)
    scores = [evidence.scores(model, test) for evidence, model in models]
    if gold is None or any(each is None or each.shape != gold.scores.shape for each in scores):
        return None
    n_units, statistic = _statistic(metric, gold, np.array(scores))
    if statistic is None or n_units < 2:
        return None

    def metrics(rows: "NDArray[np.int64]", axis: int = -1) -> "Draws":
        return statistic(rows) if rows.ndim > 1 else statistic(rows[None])[:, 0]

    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)  # undefined where a resample's scores are all equal
        drawn = bootstrap(
            (np.arange(n_units),),
            metrics,
            n_resamples=N_RESAMPLES,
            batch=max(1, _NUMBERS_AT_ONCE // n_units),
            vectorized=True,
            method="percentile",
            rng=np.random.default_rng(stage_seed(models[0][0].result["seed"], f"bootstrap/{test or DEV}")),
        )
    return 100.0 * np.asarray(drawn.bootstrap_distribution)


def interval(draws: "NDArray[np.float64]") -> Interval | None:
    """The interval of one number's draws, (resamples,); None where most of them are undefined."""
    defined = draws[np.isfinite(draws)]
    if len(defined) < len(draws) / 2:
        return None
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def _row(draws: "Draws", forms: "Sequence[str]") -> RowIntervals:
    """Intervals of the start, the first row of the draws, and of the forms, the others."""
    scores = {name: interval(drawn) for name, drawn in zip(["start", *forms], draws, strict=True)}
    gains = {form: interval(drawn - draws[0]) for form, drawn in zip(forms, draws[1:], strict=True)}
    return RowIntervals(
        {name: each for name, each in scores.items() if each is not None},
        {form: each for form, each in gains.items() if each is not None},  # type: ignore[misc]
    )


def _statistic(
    metric: str, gold: Gold, scores: "NDArray[np.float64]"
) -> "tuple[int, Callable[[NDArray[np.int64]], Draws] | None]":
    """How many units there are to resample, and what turns chosen ones, (resamples, units), into metrics."""
    if metric in RANKING_METRICS and gold.queries is not None:
        values = np.array([query_values(metric, gold.scores, each, gold.queries) for each in scores])
        return values.shape[1], lambda rows: values[:, rows].mean(axis=-1)
    codes = [_codes(each) for each in scores]
    if metric == "spearman":
        gold_codes = _codes(gold.scores)
        return len(gold.scores), lambda rows: _spearman(gold_codes, codes, rows)
    if metric == "roc_auc":
        is_positive = gold.scores == 1.0
        return len(gold.scores), lambda rows: _roc_auc(is_positive, codes, rows)
    return 0, None


def _codes(values: "NDArray[np.float64]") -> "NDArray[np.int64]":
    """Each value by its place among the distinct ones, (n,): all that ranks depend on."""
    codes: NDArray[np.int64] = np.unique(values, return_inverse=True)[1]
    return codes


def _spearman(gold: "NDArray[np.int64]", scores: "Sequence[NDArray[np.int64]]", rows: "NDArray[np.int64]") -> "Draws":
    gold_ranks = _centred_ranks(gold[rows])
    gold_squares = np.einsum("ij,ij->i", gold_ranks, gold_ranks)
    found = []
    for each in scores:
        ranks = _centred_ranks(each[rows])
        squares = np.einsum("ij,ij->i", ranks, ranks)
        found.append(np.einsum("ij,ij->i", gold_ranks, ranks) / np.sqrt(gold_squares * squares))
    return np.array(found)


def _roc_auc(
    is_positive: "NDArray[np.bool_]", scores: "Sequence[NDArray[np.int64]]", rows: "NDArray[np.int64]"
) -> "Draws":
    positive = is_positive[rows]
    n_positive = positive.sum(axis=1)
    n_negative = positive.shape[1] - n_positive
    ranks = (_centred_ranks(each[rows]) + (rows.shape[1] + 1) / 2 for each in scores)
    sums = np.array([(each * positive).sum(axis=1) for each in ranks])
    areas: Draws = (sums - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)
    return areas


def _centred_ranks(codes: "NDArray[np.int64]") -> "NDArray[np.float64]":
    """Ranks within each row, ties sharing theirs, less their mean, (resamples, n); without sorting anything."""
    n_rows, n_codes = len(codes), int(codes.max()) + 1
    places = codes + n_codes * np.arange(n_rows)[:, None]
    counts = np.bincount(places.ravel(), minlength=n_rows * n_codes).reshape(n_rows, n_codes).astype(np.float64)
    ranks = np.cumsum(counts, axis=1)
    ranks -= counts / 2 + codes.shape[1] / 2
    centred: NDArray[np.float64] = ranks.ravel()[places]
    return centred
