"""Which pairs a person is asked for."""

import numpy as np
import pytest

from transencoder.errors import RunError
from transencoder.evidence import Evidence, Sample
from transencoder.grading import ScoredPairs, choose
from transencoder.grading.choice import disagreement
from transencoder.results import read_result


def sample_of(texts, **scores):
    return Sample(np.arange(len(texts)), texts, {name: np.array(each, np.float64) for name, each in scores.items()})


def scored(sample):
    return ScoredPairs("run", {"seed": 1}, sample)


def test_disagreement_is_the_furthest_rank_of_any_model():
    sample = sample_of([("a", "b")] * 4, start=[1, 2, 3, 4], bi=[1, 2, 3, 4], cross=[9, 2, 3, 1])
    assert disagreement(sample) == pytest.approx([1.6, 1.0, 1.0, 1.6])


def test_a_model_that_learned_nothing_does_not_decide_alone_which_pairs_are_drawn():
    """Without it a bi-encoder's few differences are drawn first; beside a cross-encoder of noise they still are."""
    n, rng = 600, np.random.default_rng(0)
    ranks = np.arange(n, dtype=float)
    moved = ranks.copy()
    moved[[10, 590, 20, 580]] = moved[[590, 10, 580, 20]]
    texts = [(f"a {i}", f"b {i}") for i in range(n)]
    pairs = choose(scored(sample_of(texts, start=ranks, bi=moved, cross=rng.permutation(n))))[:60]
    assert {texts[10], texts[590], texts[20], texts[580]} <= set(pairs)


def test_pairs_where_models_disagree_come_first_in_either_direction():
    n = 600
    ranks = np.arange(n, dtype=float)
    moved = ranks.copy()
    moved[[10, 590]] = moved[[590, 10]]  # one pair up and one down, all others alike
    texts = [(f"a {i}", f"b {i}") for i in range(n)]
    sample = sample_of(texts, start=ranks, bi=moved)
    pairs = choose(scored(sample))[:100]
    assert len(set(pairs)) == 100
    assert {texts[10], texts[590]} <= set(pairs)
    drawn = np.array([int(first[2:]) for first, _ in pairs])
    assert 200 < drawn.mean() < 400, "the others are drawn evenly"


def test_the_same_pair_is_asked_once():
    sample = sample_of([("a", "b"), ("a", "b"), ("b", "a")], start=[1, 2, 3], bi=[3, 2, 1])
    assert sorted(choose(scored(sample))) == [("a", "b"), ("b", "a")]


@pytest.mark.parametrize("sample", [None, sample_of([("a", "b")], start=[1])])
def test_a_run_without_scored_pairs_is_refused(sample, finished_run, monkeypatch):
    monkeypatch.setattr("transencoder.evidence.Evidence.sample", lambda _: sample)
    with pytest.raises(RunError, match="keeps no scores of pairs"):
        ScoredPairs.of_run(finished_run)


def test_a_real_run_keeps_its_pairs(finished_run):
    pairs = choose(ScoredPairs.of_run(finished_run))[:20]
    texts = Evidence(finished_run, read_result(finished_run)).sample().texts
    assert len(pairs) == 20
    assert set(pairs) <= set(texts)
