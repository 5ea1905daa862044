"""How well scores rank each query's candidates: mean average precision, reciprocal rank, nDCG and recall, times 100.

Each query counts alike, however many candidates it has. One without a positive or without a negative candidate
cannot be ranked well or badly and is left out, as sentence-transformers and mteb do.
"""

import logging
from collections.abc import Callable, Hashable, Iterable

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, ndcg_score

from transencoder.errors import InputError

logger = logging.getLogger(__name__)

_LAST_RANK = 10
_LABELS_NAMED = 5

Ranking = tuple[NDArray[np.bool_], NDArray[np.float64]]
"""Of one query's n candidates: which are positive, shape (n,), and their scores, shape (n,)."""


def mean_average_precision(
    gold: NDArray[np.float64], scores: NDArray[np.float64], queries: Iterable[Hashable]
) -> float:
    """Mean over queries of the average precision, by scikit-learn.

    A positive's precision is the share of positives among the candidates that score at least as high, so tied
    candidates share one rank, the last; a query's average is over its positives.

    Args:
        gold: 0 or 1, shape (n,).
        scores: A model's finite scores on any scale, shape (n,).
        queries: What tells the queries apart, one a pair: numbers or texts.

    Returns:
        The mean times 100, in (0, 100].

    Raises:
        InputError: gold other than 0 and 1, or no query with both.
    """
    return _mean("map", gold, scores, queries)


def mean_reciprocal_rank(gold: NDArray[np.float64], scores: NDArray[np.float64], queries: Iterable[Hashable]) -> float:
    """Mean over queries of 1 / rank of the best positive, 0 beyond the tenth rank, as sentence-transformers has it.

    A negative of the same score ranks before the positive: a model that scores all alike gains nothing by the
    order of the data.

    Args:
        gold: As in `mean_average_precision`.
        scores: As in `mean_average_precision`.
        queries: As in `mean_average_precision`.

    Returns:
        The mean times 100, in [0, 100].

    Raises:
        InputError: as in `mean_average_precision`.
    """
    return _mean("mrr_at_10", gold, scores, queries)


def normalised_gain(gold: NDArray[np.float64], scores: NDArray[np.float64], queries: Iterable[Hashable]) -> float:
    """Mean over queries of nDCG@10, by scikit-learn as in sentence-transformers; tied candidates share their mean gain.

    Args:
        gold: As in `mean_average_precision`.
        scores: As in `mean_average_precision`.
        queries: As in `mean_average_precision`.

    Returns:
        The mean times 100, in [0, 100].

    Raises:
        InputError: as in `mean_average_precision`.
    """
    return _mean("ndcg_at_10", gold, scores, queries)


def recall(gold: NDArray[np.float64], scores: NDArray[np.float64], queries: Iterable[Hashable]) -> float:
    """Mean over queries of the share of positives among the first ten; of equal scores the negatives rank first.

    Args:
        gold: As in `mean_average_precision`.
        scores: As in `mean_average_precision`.
        queries: As in `mean_average_precision`.

    Returns:
        The mean times 100, in [0, 100].

    Raises:
        InputError: as in `mean_average_precision`.
    """
    return _mean("recall_at_10", gold, scores, queries)


RANKING_METRICS: dict[str, Callable[[NDArray[np.float64], NDArray[np.float64], Iterable[Hashable]], float]] = {
    "map": mean_average_precision,
    "mrr_at_10": mean_reciprocal_rank,
    "ndcg_at_10": normalised_gain,
    "recall_at_10": recall,
}


def query_values(
    metric: str, gold: NDArray[np.float64], scores: NDArray[np.float64], queries: Iterable[Hashable]
) -> NDArray[np.float64]:
    """What a ranking metric is the mean of: each query's own value, in [0, 1].

    Args:
        metric: A key of `RANKING_METRICS`.
        gold: As in `mean_average_precision`.
        scores: As in `mean_average_precision`.
        queries: As in `mean_average_precision`.

    Returns:
        One value for each query that has positive and negative candidates, whatever the scores.

    Raises:
        InputError: as in `mean_average_precision`.
    """
    of_query = _OF_QUERY[metric]
    return np.array([of_query(*ranking) for ranking in _rankings(gold, scores, queries)], np.float64)


def n_ranked(gold: NDArray[np.float64], queries: Iterable[Hashable]) -> int:
    """How many queries have positive and negative candidates; arguments as in `mean_average_precision`."""
    numbers = numbered(queries)
    n_positive, n_candidates = np.bincount(numbers, gold), np.bincount(numbers)
    return int(np.count_nonzero((n_positive > 0) & (n_positive < n_candidates)))


def numbered(queries: Iterable[Hashable]) -> NDArray[np.intp]:
    """Queries by number of first appearance, shape (n,)."""
    numbers: dict[Hashable, int] = {}
    return np.fromiter((numbers.setdefault(query, len(numbers)) for query in queries), np.intp)


def _mean(metric: str, gold: NDArray[np.float64], scores: NDArray[np.float64], queries: Iterable[Hashable]) -> float:
    """The mean over queries times 100; says how many are left out."""
    numbers = numbered(queries)
    values = query_values(metric, gold, scores, numbers)
    n_queries = int(numbers.max()) + 1
    if len(values) < n_queries:
        logger.info(
            "%d of %d queries are left out: they have no positive or no negative candidate",
            n_queries - len(values),
            n_queries,
        )
    return 100.0 * float(np.mean(values))


def _reciprocal_rank(is_positive: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    rank = 1 + int(np.count_nonzero(scores[~is_positive] >= scores[is_positive].max()))
    return 1.0 / rank if rank <= _LAST_RANK else 0.0


def _recall(is_positive: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    first = np.lexsort((is_positive, -scores))[:_LAST_RANK]
    return float(np.count_nonzero(is_positive[first]) / np.count_nonzero(is_positive))


def _normalised_gain(is_positive: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    return float(ndcg_score([is_positive], [scores], k=_LAST_RANK))


def _rankings(gold: NDArray[np.float64], scores: NDArray[np.float64], queries: Iterable[Hashable]) -> list[Ranking]:
    """The candidates of each query that has positive and negative ones; equal queries need not stand together."""
    labels = np.unique(gold)
    if not np.isin(labels, [0.0, 1.0]).all():
        shown = ", ".join(f"{label:g}" for label in labels[:_LABELS_NAMED])
        raise InputError(f"a ranking needs gold labels 0 (negative) and 1 (positive); got {shown}")
    numbers = numbered(queries)
    order = np.argsort(numbers, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    rankings = [(gold[rows] == 1.0, scores[rows]) for rows in groups if gold[rows].min() != gold[rows].max()]
    if not rankings:
        raise InputError(
            f"none of the {len(groups)} queries has a positive and a negative candidate (gold labels 1 and 0), so "
            "there is nothing to rank. Pairs of one query have the same first sentence"
        )
    return rankings


_OF_QUERY: dict[str, Callable[[NDArray[np.bool_], NDArray[np.float64]], float]] = {
    "map": average_precision_score,
    "mrr_at_10": _reciprocal_rank,
    "ndcg_at_10": _normalised_gain,
    "recall_at_10": _recall,
}
