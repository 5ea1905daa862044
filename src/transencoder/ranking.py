"""How well scores rank each query's candidates, times 100: average precision, reciprocal rank, nDCG and recall.

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


def ranking(metric: str, gold: NDArray[np.float64], scores: NDArray[np.float64], queries: Iterable[Hashable]) -> float:
    """Return the mean of a ranking metric over the queries, and log how many are left out.

    Args:
        metric: A key of `RANKING_METRICS`.
        gold: 0 or 1, shape (n,).
        scores: A model's finite scores on any scale, shape (n,).
        queries: What tells the queries apart, one a pair: numbers or texts.

    Returns:
        The mean times 100, in [0, 100].

    Raises:
        InputError: gold other than 0 and 1, or no query with both.
    """
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


def query_values(
    metric: str, gold: NDArray[np.float64], scores: NDArray[np.float64], queries: Iterable[Hashable]
) -> NDArray[np.float64]:
    """Return each query's own value, in [0, 1], of those with positive and negative candidates; see `ranking`."""
    labels = np.unique(gold)
    if not np.isin(labels, [0.0, 1.0]).all():
        shown = ", ".join(f"{label:g}" for label in labels[:_LABELS_NAMED])
        raise InputError(f"a ranking needs gold labels 0 (negative) and 1 (positive); got {shown}")
    numbers = numbered(queries)
    order = np.argsort(numbers, kind="stable")  # equal queries need not stand together
    groups = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    ranked = [rows for rows in groups if gold[rows].min() != gold[rows].max()]
    if not ranked:
        raise InputError(
            f"none of the {len(groups)} queries has a positive and a negative candidate (gold labels 1 and 0), so "
            "there is nothing to rank. Pairs of one query have the same first sentence"
        )
    value = RANKING_METRICS[metric]
    return np.array([value(gold[rows] == 1.0, scores[rows]) for rows in ranked], np.float64)


def n_ranked(gold: NDArray[np.float64], queries: Iterable[Hashable]) -> int:
    """Count the queries that have positive and negative candidates; arguments as in `ranking`."""
    numbers = numbered(queries)
    n_positive, n_candidates = np.bincount(numbers, gold), np.bincount(numbers)
    return int(np.count_nonzero((n_positive > 0) & (n_positive < n_candidates)))


def numbered(queries: Iterable[Hashable]) -> NDArray[np.intp]:
    """Number queries by first appearance, shape (n,)."""
    numbers: dict[Hashable, int] = {}
    return np.fromiter((numbers.setdefault(query, len(numbers)) for query in queries), np.intp)


def _reciprocal_rank(is_positive: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    """Return 1 / rank of the best positive, 0 beyond the tenth rank, as sentence-transformers has it.

    A negative of the same score ranks before the positive: a model that scores all alike gains nothing by the
    order of the data.
    """
    rank = 1 + int(np.count_nonzero(scores[~is_positive] >= scores[is_positive].max()))
    return 1.0 / rank if rank <= _LAST_RANK else 0.0


def _gain(is_positive: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    """Return nDCG@10 as sentence-transformers has it; tied candidates share their mean gain."""
    return float(ndcg_score([is_positive], [scores], k=_LAST_RANK))


def _recall(is_positive: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    """Return the share of positives among the first ten; of equal scores the negatives rank first."""
    first = np.lexsort((is_positive, -scores))[:_LAST_RANK]
    return float(np.count_nonzero(is_positive[first]) / np.count_nonzero(is_positive))


RANKING_METRICS: dict[str, Callable[[NDArray[np.bool_], NDArray[np.float64]], float]] = {
    "map": average_precision_score,  # tied candidates share one rank, the last
    "mrr_at_10": _reciprocal_rank,
    "ndcg_at_10": _gain,
    "recall_at_10": _recall,
}
"""Value of one query by the metric's name: which of its candidates are positive, and their scores."""
