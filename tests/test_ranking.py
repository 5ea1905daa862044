"""MAP, MRR, nDCG and recall against slow statements of their definitions, numbers worked out by hand, and what is refused."""

import logging

import numpy as np
import pytest

from transencoder.errors import InputError
from transencoder.ranking import (
    RANKING_METRICS,
    mean_average_precision,
    mean_reciprocal_rank,
    n_ranked,
    normalised_gain,
    recall,
)


def slow_average_precision(gold: np.ndarray, scores: np.ndarray) -> float:
    """Mean over the positives of the share of positives among all that score at least as high."""
    precisions = []
    for positive in scores[gold == 1]:
        at_least = [label for label, score in zip(gold, scores, strict=True) if score >= positive]
        precisions.append(sum(at_least) / len(at_least))
    return float(np.mean(precisions))


def slow_reciprocal_rank(gold: np.ndarray, scores: np.ndarray) -> float:
    """Walk down the ranking, of equal scores the negatives first, to the tenth place."""
    ranking = sorted(zip(scores, gold, strict=True), key=lambda candidate: (-candidate[0], candidate[1]))
    for rank, (_, label) in enumerate(ranking[:10], start=1):
        if label == 1:
            return 1 / rank
    return 0.0


def slow_gain(gold: np.ndarray, scores: np.ndarray) -> float:
    """DCG@10 over that of the best order; candidates of one score share the mean of their places' gains."""
    discounts = np.array([1 / np.log2(rank + 1) if rank <= 10 else 0 for rank in range(1, len(gold) + 1)])
    found = 0.0
    for score in set(scores):
        places = [place for place, other in enumerate(sorted(scores, reverse=True)) if other == score]
        found += gold[scores == score].mean() * discounts[places].sum()
    return float(found / (np.sort(gold)[::-1] * discounts).sum())


def slow_recall(gold: np.ndarray, scores: np.ndarray) -> float:
    ranking = sorted(zip(scores, gold, strict=True), key=lambda candidate: (-candidate[0], candidate[1]))
    return float(sum(label for _, label in ranking[:10]) / gold.sum())


@pytest.mark.parametrize("n_levels", [2, 5, 100_000])
@pytest.mark.parametrize("n_queries", [1, 3, 40])
def test_all_are_their_definitions(n_queries: int, n_levels: int) -> None:
    generator = np.random.default_rng(n_queries)
    queries = np.concatenate([np.full(generator.integers(2, 30), query) for query in range(n_queries)])
    gold = generator.integers(0, 2, len(queries)).astype(np.float64)
    for query in range(n_queries):
        gold[np.flatnonzero(queries == query)[:2]] = (1, 0)
    scores = generator.integers(0, n_levels, len(queries)) / n_levels
    order = generator.permutation(len(queries))  # pairs of a query need not stand together
    for metric, slow in (
        (mean_average_precision, slow_average_precision),
        (mean_reciprocal_rank, slow_reciprocal_rank),
        (normalised_gain, slow_gain),
        (recall, slow_recall),
    ):
        expected = [slow(gold[queries == query], scores[queries == query]) for query in range(n_queries)]
        found = metric(gold[order], scores[order], [f"query {number}" for number in queries[order]])
        assert found == pytest.approx(100 * np.mean(expected), abs=1e-9)


def test_numbers_worked_out_by_hand() -> None:
    """Query a: + - + -, so (1/1 + 2/3) / 2 = 5/6 and rank 1; query b: - - +, so 1/3 and rank 3."""
    gold = np.array([1.0, 0, 1, 0, 0, 0, 1])
    scores = np.array([0.9, 0.8, 0.7, 0.6, -0.1, -0.2, -0.3])
    queries = ["a"] * 4 + ["b"] * 3
    assert mean_average_precision(gold, scores, queries) == pytest.approx(100 * (5 / 6 + 1 / 3) / 2)
    assert mean_reciprocal_rank(gold, scores, queries) == pytest.approx(100 * (1 + 1 / 3) / 2)


def test_a_model_that_scores_all_alike_gains_nothing_by_the_order() -> None:
    gold, scores, queries = np.array([1.0, 0, 0, 0]), np.zeros(4), [0] * 4
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        assert mean_average_precision(gold[order], scores, queries) == pytest.approx(25.0)
        assert mean_reciprocal_rank(gold[order], scores, queries) == pytest.approx(25.0)


@pytest.mark.parametrize(("n_before", "expected"), [(0, 100.0), (9, 10.0), (10, 0.0)])
def test_the_reciprocal_rank_ends_at_the_tenth(n_before: int, expected: float) -> None:
    gold = np.array([0.0] * n_before + [1.0] + [0.0] * 3)
    scores = -np.arange(len(gold), dtype=np.float64)
    assert mean_reciprocal_rank(gold, scores, [0] * len(gold)) == pytest.approx(expected)


@pytest.mark.parametrize("metric", RANKING_METRICS.values())
def test_queries_of_one_kind_only_are_left_out_and_counted(metric: object, caplog: pytest.LogCaptureFixture) -> None:
    assert callable(metric)
    gold, scores = np.array([1.0, 0, 0, 0, 1]), np.array([0.2, 0.1, 0.9, 0.8, 0.7])
    with caplog.at_level(logging.INFO, logger="transencoder"):
        assert metric(gold, scores, ["a", "a", "b", "b", "c"]) == pytest.approx(100.0)
    assert n_ranked(gold, ["a", "a", "b", "b", "c"]) == 1
    assert "2 of 3 queries are left out" in caplog.text


@pytest.mark.parametrize("metric", RANKING_METRICS.values())
@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ([0.0, 2.5], r"gold labels 0 \(negative\) and 1 \(positive\); got 0, 2\.5"),
        ([1.0, 1.0], "none of the 1 queries has a positive and a negative"),
        ([0.0, 0.0], "none of the 1 queries has a positive and a negative"),
    ],
)
def test_gold_that_ranks_nothing_is_refused(metric: object, gold: list[float], message: str) -> None:
    assert callable(metric)
    with pytest.raises(InputError, match=message):
        metric(np.array(gold), np.array([0.1, 0.2]), ["a", "a"])
