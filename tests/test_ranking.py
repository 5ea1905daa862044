"""MAP, MRR, nDCG and recall against slow statements of their definitions, numbers worked out by hand, and refusals."""

import logging

import numpy as np
import pytest

from transencoder.errors import InputError
from transencoder.ranking import RANKING_METRICS, n_ranked, ranking


def slow_average_precision(gold, scores):
    """Mean over the positives of the share of positives among all that score at least as high."""
    precisions = []
    for positive in scores[gold == 1]:
        at_least = [label for label, score in zip(gold, scores, strict=True) if score >= positive]
        precisions.append(sum(at_least) / len(at_least))
    return np.mean(precisions)


def slow_ranking(gold, scores):
    """Labels of the first ten places, of equal scores the negatives first."""
    order = sorted(zip(scores, gold, strict=True), key=lambda candidate: (-candidate[0], candidate[1]))
    return [label for _, label in order[:10]]


def slow_reciprocal_rank(gold, scores):
    return next((1 / rank for rank, label in enumerate(slow_ranking(gold, scores), 1) if label == 1), 0.0)


def slow_recall(gold, scores):
    return sum(slow_ranking(gold, scores)) / gold.sum()


def slow_gain(gold, scores):
    """DCG@10 over that of the best order; candidates of one score share the mean of their places' gains."""
    discounts = np.array([1 / np.log2(rank + 1) if rank <= 10 else 0 for rank in range(1, len(gold) + 1)])
    found = 0.0
    for score in set(scores):
        places = [place for place, other in enumerate(sorted(scores, reverse=True)) if other == score]
        found += gold[scores == score].mean() * discounts[places].sum()
    return found / (np.sort(gold)[::-1] * discounts).sum()


SLOW = {
    "map": slow_average_precision,
    "mrr_at_10": slow_reciprocal_rank,
    "ndcg_at_10": slow_gain,
    "recall_at_10": slow_recall,
}


@pytest.mark.parametrize("n_levels", [2, 5, 100_000])
@pytest.mark.parametrize("n_queries", [1, 3, 40])
def test_all_are_their_definitions(n_queries, n_levels):
    generator = np.random.default_rng(n_queries)
    queries = np.concatenate([np.full(generator.integers(2, 30), query) for query in range(n_queries)])
    gold = generator.integers(0, 2, len(queries)).astype(np.float64)
    for query in range(n_queries):
        gold[np.flatnonzero(queries == query)[:2]] = (1, 0)
    scores = generator.integers(0, n_levels, len(queries)) / n_levels
    order = generator.permutation(len(queries))  # pairs of a query need not stand together
    assert SLOW.keys() == RANKING_METRICS.keys()
    for metric, slow in SLOW.items():
        expected = [slow(gold[queries == query], scores[queries == query]) for query in range(n_queries)]
        found = ranking(metric, gold[order], scores[order], [f"query {number}" for number in queries[order]])
        assert found == pytest.approx(100 * np.mean(expected), abs=1e-9)


def test_numbers_worked_out_by_hand():
    """Query a: + - + -, so (1/1 + 2/3) / 2 = 5/6 and rank 1; query b: - - +, so 1/3 and rank 3."""
    gold = np.array([1.0, 0, 1, 0, 0, 0, 1])
    scores = np.array([0.9, 0.8, 0.7, 0.6, -0.1, -0.2, -0.3])
    queries = ["a"] * 4 + ["b"] * 3
    assert ranking("map", gold, scores, queries) == pytest.approx(100 * (5 / 6 + 1 / 3) / 2)
    assert ranking("mrr_at_10", gold, scores, queries) == pytest.approx(100 * (1 + 1 / 3) / 2)


@pytest.mark.parametrize("metric", ["map", "mrr_at_10"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0]])
def test_a_model_that_scores_all_alike_gains_nothing_by_the_order(metric, order):
    gold = np.array([1.0, 0, 0, 0])
    assert ranking(metric, gold[order], np.zeros(4), [0] * 4) == pytest.approx(25.0)


@pytest.mark.parametrize(("n_before", "expected"), [(0, 100.0), (9, 10.0), (10, 0.0)])
def test_the_reciprocal_rank_ends_at_the_tenth(n_before, expected):
    gold = np.array([0.0] * n_before + [1.0] + [0.0] * 3)
    scores = -np.arange(len(gold), dtype=np.float64)
    assert ranking("mrr_at_10", gold, scores, [0] * len(gold)) == pytest.approx(expected)


@pytest.mark.parametrize("metric", RANKING_METRICS)
def test_queries_of_one_kind_only_are_left_out_and_counted(metric, caplog):
    gold, scores = np.array([1.0, 0, 0, 0, 1]), np.array([0.2, 0.1, 0.9, 0.8, 0.7])
    with caplog.at_level(logging.INFO, logger="transencoder"):
        assert ranking(metric, gold, scores, ["a", "a", "b", "b", "c"]) == pytest.approx(100.0)
    assert n_ranked(gold, ["a", "a", "b", "b", "c"]) == 1
    assert "2 of 3 queries are left out" in caplog.text


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ([0.0, 2.5], r"gold labels 0 \(negative\) and 1 \(positive\); got 0, 2\.5"),
        ([1.0, 1.0], "none of the 1 queries has a positive and a negative"),
        ([0.0, 0.0], "none of the 1 queries has a positive and a negative"),
    ],
)
def test_gold_that_ranks_nothing_is_refused(gold, message):
    with pytest.raises(InputError, match=message):
        ranking("map", np.array(gold), np.array([0.1, 0.2]), ["a", "a"])
