"""Bootstrap intervals: what another draw of the same number of pairs, or of queries, would give."""

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transencoder.ranking import RANKING_METRICS, query_values
from transencoder.runs import stage_seed

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

    @property
    def holds_zero(self) -> bool:
        """Whether, of a gain, another draw might well have given none."""
        return self.low <= 0.0 <= self.high


@dataclass(frozen=True)
class RowIntervals:
    """Of several models on one test, or of their averages over several tests; those that are undefined are left out."""

    scores: dict[str, Interval]
    """Model -> of its metric times 100."""
    gains: dict[str, Interval]
    """Each model but the first -> of its points over the first, both measured on the same resamples."""


def row_intervals(draws: Draws, models: Sequence[str]) -> RowIntervals:
    """Compute intervals of k models and of their gains over the first."""
    scores = {model: interval(drawn) for model, drawn in zip(models, draws, strict=True)}
    gains = {model: interval(drawn - draws[0]) for model, drawn in zip(models[1:], draws[1:], strict=True)}
    return RowIntervals(
        {model: each for model, each in scores.items() if each is not None},
        {model: each for model, each in gains.items() if each is not None},
    )


def interval(draws: NDArray[np.float64]) -> Interval | None:
    """Compute the interval of one number's draws, (resamples,); None where most of them are undefined."""
    defined = draws[np.isfinite(draws)]
    if len(defined) < len(draws) / 2:
        return None
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def metric_draws(
    metric: str,
    gold: NDArray[np.float64],
    scores: NDArray[np.float64],
    queries: Iterable[Hashable] | None = None,
    *,
    name: str,
    seed: int,
) -> Draws | None:
    """Measure several models on the same resamples of a test's pairs, or of its queries where it is a ranking.

    About 0.05 ms a thousand pairs, model and resample.

    Args:
        metric: `spearman`, `roc_auc` or a key of `RANKING_METRICS`.
        gold: Gold scores as the metric takes them, (n,).
        scores: Of k models, finite, on any scales, (k, n).
        queries: Where it is a ranking: what tells the queries apart, one a pair.
        name: The test's name: each test has resamples of its own.
        seed: The run's seed.

    Returns:
        Metrics times 100, (k, N_RESAMPLES), NaN where undefined; None for another metric, or fewer than two pairs
        or ranked queries.
    """
    from scipy.stats import DegenerateDataWarning, bootstrap

    n_units, statistic = _statistic(metric, gold, scores, queries)
    if statistic is None or n_units < 2:
        return None

    def metrics(rows: NDArray[np.int64], axis: int = -1) -> Draws:
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
            rng=np.random.default_rng(stage_seed(seed, f"bootstrap/{name}")),
        )
    return 100.0 * np.asarray(drawn.bootstrap_distribution)


def _statistic(
    metric: str, gold: NDArray[np.float64], scores: NDArray[np.float64], queries: Iterable[Hashable] | None
) -> tuple[int, Callable[[NDArray[np.int64]], Draws] | None]:
    """Return how many units there are to resample, and what turns chosen ones, (resamples, units), into metrics."""
    if metric in RANKING_METRICS and queries is not None:
        values = np.array([query_values(metric, gold, each, queries) for each in scores])
        return values.shape[1], lambda rows: values[:, rows].mean(axis=-1)
    codes = [_codes(each) for each in scores]
    if metric == "spearman":
        gold_codes = _codes(gold)
        return len(gold), lambda rows: _spearman(gold_codes, codes, rows)
    if metric == "roc_auc":
        is_positive = gold == 1.0
        return len(gold), lambda rows: _roc_auc(is_positive, codes, rows)
    return 0, None


def _codes(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number each value by its place among the distinct ones, (n,): all that ranks depend on."""
    codes: NDArray[np.int64] = np.unique(values, return_inverse=True)[1]
    return codes


def _spearman(gold: NDArray[np.int64], scores: Sequence[NDArray[np.int64]], rows: NDArray[np.int64]) -> Draws:
    gold_ranks = _centred_ranks(gold[rows])
    gold_squares = np.einsum("ij,ij->i", gold_ranks, gold_ranks)
    found = []
    for each in scores:
        ranks = _centred_ranks(each[rows])
        squares = np.einsum("ij,ij->i", ranks, ranks)
        found.append(np.einsum("ij,ij->i", gold_ranks, ranks) / np.sqrt(gold_squares * squares))
    return np.array(found)


def _roc_auc(is_positive: NDArray[np.bool_], scores: Sequence[NDArray[np.int64]], rows: NDArray[np.int64]) -> Draws:
    positive = is_positive[rows]
    n_positive = positive.sum(axis=1)
    n_negative = positive.shape[1] - n_positive
    ranks = (_centred_ranks(each[rows]) + (rows.shape[1] + 1) / 2 for each in scores)
    sums = np.array([(each * positive).sum(axis=1) for each in ranks])
    areas: Draws = (sums - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)
    return areas


def _centred_ranks(codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rank within each row, ties sharing theirs, less the mean, (resamples, n); without sorting anything."""
    n_rows, n_codes = len(codes), int(codes.max()) + 1
    places = codes + n_codes * np.arange(n_rows)[:, None]
    counts = np.bincount(places.ravel(), minlength=n_rows * n_codes).reshape(n_rows, n_codes).astype(np.float64)
    ranks = np.cumsum(counts, axis=1)
    ranks -= counts / 2 + codes.shape[1] / 2
    centred: NDArray[np.float64] = ranks.ravel()[places]
    return centred
