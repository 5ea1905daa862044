"""Bootstrap intervals: the same metrics as elsewhere, pairs resampled together."""

import numpy as np
import pytest

from transencoder.bootstrap import N_RESAMPLES, _statistic, interval, metric_draws, row_intervals
from transencoder.evaluation import METRICS
from transencoder.ranking import RANKING_METRICS, ranking


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
        n_covered += found.low <= 100 * 6 / np.pi * np.arcsin(0.5**0.5 / 2) <= found.high
    assert 180 <= n_covered <= 198


def test_too_few_units_and_unknown_metrics_have_no_draws():
    gold, scores = np.array([1.0, 0.0, 1.0]), np.array([[0.5, 0.2, 0.1]])
    assert metric_draws("map", gold, scores, [0, 0, 1], name="one query that ranks", seed=0) is None
    assert metric_draws("spearman", gold[:1], scores[:, :1], name="one pair", seed=0) is None
    assert metric_draws("accuracy", gold, scores, name="classes", seed=0) is None


def test_gains_are_over_the_first_model():
    found = row_intervals(np.array([[10.0, 20.0], [11.0, 21.0], [np.nan, np.nan]]), ["start", "bi", "collapsed"])
    assert list(found.scores) == ["start", "bi"] and list(found.gains) == ["bi"]
    assert (found.gains["bi"].low, found.gains["bi"].high) == (1.0, 1.0)


def test_a_mostly_undefined_metric_has_no_interval():
    assert interval(np.array([np.nan, np.nan, 50.0])) is None
    assert interval(np.array([np.nan, 50.0, 50.0])) is not None
