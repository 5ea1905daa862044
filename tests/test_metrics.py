"""Metrics against slow statements of their definitions, numbers worked out by hand, intervals, and refusals."""

import logging
import math

import numpy as np
import pytest

from transencoder.errors import InputError
from transencoder.metrics import (
    METRICS,
    N_RESAMPLES,
    RANKING_METRICS,
    _statistic,
    interval,
    metric_draws,
    n_ranked,
    ranking,
    roc_auc,
    row_intervals,
    spearman,
)


def slow_spearman(gold, scores):
    """Pearson's correlation of mean ranks, from the definition."""

    def ranks(values):
        return np.array([(values < value).sum() + ((values == value).sum() + 1) / 2 for value in values])

    first, second = ranks(gold), ranks(scores)
    first, second = first - first.mean(), second - second.mean()
    return 100 * float((first * second).sum() / math.sqrt((first**2).sum() * (second**2).sum()))


def slow_roc_auc(gold, scores):
    """Share of (positive, negative) pairs in the right order, ties half."""
    wins = [
        1.0 if positive > negative else 0.5 if positive == negative else 0.0
        for positive in scores[gold == 1]
        for negative in scores[gold == 0]
    ]
    return 100 * float(np.mean(wins))


@pytest.mark.parametrize("n_pairs", [2, 3, 17, 200])
@pytest.mark.parametrize("n_levels", [3, 1000])
def test_spearman_is_its_definition(n_pairs, n_levels):
    generator = np.random.default_rng(n_pairs)
    gold = np.concatenate([[0.0, 5.0], generator.integers(0, 6, n_pairs - 2)])
    scores = np.concatenate([[0.0, 1.0], generator.integers(0, n_levels, n_pairs - 2) / n_levels])
    assert spearman(gold, scores) == pytest.approx(slow_spearman(gold, scores), abs=1e-9)


@pytest.mark.parametrize("n_pairs", [2, 5, 60])
def test_roc_auc_is_its_definition(n_pairs):
    generator = np.random.default_rng(n_pairs)
    gold = np.concatenate([[0, 1], generator.integers(0, 2, n_pairs - 2)])
    scores = generator.integers(0, 10, n_pairs) / 10
    assert roc_auc(gold, scores) == pytest.approx(slow_roc_auc(gold, scores), abs=1e-9)


def test_scores_are_not_rounded_before_ranking():
    scores = np.array([0.5, 0.5 + 1e-7, 0.5 + 2e-7], dtype=np.float64)
    assert spearman([1, 2, 3], scores) == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("gold", "scores", "warning"),
    [
        ([1, 2, 3], [0.25, 0.25, 0.25], "the model's scores of all 3 pairs are 0.25"),
        ([2, 2, 2], [0.1, 0.2, 0.3], "the gold scores of all 3 pairs are 2.0"),
    ],
)
def test_equal_values_give_nan_and_a_warning(gold, scores, warning, caplog):
    with caplog.at_level(logging.WARNING):
        assert math.isnan(spearman(gold, scores))
    assert warning in caplog.text


@pytest.mark.parametrize("metric", [spearman, roc_auc])
@pytest.mark.parametrize(
    ("gold", "scores", "message"),
    [
        ([0, 1, 1], [0.1, 0.2], r"shape \(2,\); 3 pairs"),
        ([0, 1], [[0.1], [0.2]], r"shape \(2, 1\)"),
        ([[0, 1]], [0.1, 0.2], r"shape \(1, 2\)"),
        ([0, 1, 1], [0.1, np.nan, np.inf], r"2 of 3 model's scores are not finite numbers: rows 1, 2 "),
        ([0, float("nan")], [0.1, 0.2], r"1 of 2 gold scores are not finite"),
    ],
)
def test_bad_scores_are_refused(metric, gold, scores, message):
    with pytest.raises(InputError, match=message):
        metric(gold, scores)


@pytest.mark.parametrize(
    ("metric", "gold", "message"),
    [
        (spearman, [1], r"at least 2 pairs, got 1\. Give a file of more"),
        (roc_auc, [1, 1], "got 1"),
        (roc_auc, [0, 5], "got 0, 5"),
        (roc_auc, [], "got none"),
    ],
)
def test_too_few_pairs_or_classes_are_refused(metric, gold, message):
    with pytest.raises(InputError, match=message):
        metric(gold, [0.1, 0.2][: len(gold)])


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


@pytest.mark.parametrize("metric", ["map", "mrr_at_10"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0]])
def test_a_model_that_scores_all_alike_gains_nothing_by_the_order(metric, order):
    gold = np.array([1.0, 0, 0, 0])
    assert ranking(metric, gold[order], np.zeros(4), [0] * 4) == pytest.approx(25.0)


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
    with pytest.raises(InputError, match="a ranking has no pairs"):
        ranking("map", [], [], [])


@pytest.mark.parametrize("metric", [*METRICS, *RANKING_METRICS])
def test_a_resample_is_measured_as_a_test_is(metric):
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 2 if metric != "spearman" else 6, 40).astype(np.float64)
    scores = np.round(rng.normal(size=(2, 40)) + gold, 1)  # with ties
    queries = np.repeat(np.arange(8), 5)
    n_units, statistic = _statistic(metric, gold, scores, queries if metric in RANKING_METRICS else None)
    rows = rng.integers(0, n_units, (3, n_units))
    rows[0] = np.arange(n_units)
    found = 100 * statistic(rows)
    assert found.shape == (2, 3)
    if metric in RANKING_METRICS:
        assert found[1, 0] == pytest.approx(ranking(metric, gold, scores[1], queries))
        return
    expected = [[METRICS[metric](gold[drawn], each[drawn]) for drawn in rows] for each in scores]
    assert found == pytest.approx(np.array(expected))


def test_the_draws_are_those_of_the_seed_and_the_test():
    gold, scores = np.arange(30.0), np.random.default_rng(0).normal(size=(2, 30))
    draws = metric_draws("spearman", gold, scores, name="stsb", seed=1)
    assert draws.shape == (2, N_RESAMPLES)
    np.testing.assert_array_equal(metric_draws("spearman", gold, scores, name="stsb", seed=1), draws)
    for name, seed in (("stsb", 2), ("sts12", 1)):
        assert not np.array_equal(metric_draws("spearman", gold, scores, name=name, seed=seed), draws)


def test_an_interval_covers_its_parameter_as_often_as_it_says():
    """Of 200 samples of a population whose correlation is known, about 95 % of the intervals hold it."""
    rng = np.random.default_rng(0)
    n_covered = 0
    for seed in range(200):
        gold = rng.normal(size=80)
        scores = (gold + rng.normal(size=80))[None]
        found = interval(metric_draws("spearman", gold, scores, name="planted", seed=seed)[0])
        n_covered += found[0] <= 100 * 6 / np.pi * np.arcsin(0.5**0.5 / 2) <= found[1]
    assert 180 <= n_covered <= 198


def test_too_few_units_and_unknown_metrics_have_no_draws():
    gold, scores = np.array([1.0, 0.0, 1.0]), np.array([[0.5, 0.2, 0.1]])
    assert metric_draws("map", gold, scores, [0, 0, 1], name="one query that ranks", seed=0) is None
    assert metric_draws("spearman", gold[:1], scores[:, :1], name="one pair", seed=0) is None
    assert metric_draws("accuracy", gold, scores, name="classes", seed=0) is None


def test_gains_are_over_the_first_model():
    found = row_intervals(np.array([[10.0, 20.0], [11.0, 21.0], [np.nan, np.nan]]), ["start", "bi", "collapsed"])
    assert list(found["scores"]) == ["start", "bi"] and found["gains"] == {"bi": (1.0, 1.0)}


def test_a_mostly_undefined_metric_has_no_interval():
    assert interval(np.array([np.nan, np.nan, 50.0])) is None
    assert interval(np.array([np.nan, 50.0, 50.0])) is not None


@pytest.mark.parametrize("queries", [["a"], ["a", "a", "b"]])
def test_a_ranking_has_a_query_for_each_pair(queries):
    with pytest.raises(InputError, match=f"a ranking has 2 gold labels, but {len(queries)} queries"):
        ranking("map", [1, 0], [0.5, 0.2], queries)
