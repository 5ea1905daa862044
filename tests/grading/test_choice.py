"""Which pairs a person is asked for."""

from types import SimpleNamespace

import numpy as np
import pytest

from transencoder.errors import RunError
from transencoder.grading import choose
from transencoder.grading.choice import disagreement
from transencoder.results import Evidence, Sample, read_result


def sample_of(texts, **scores):
    return Sample(np.arange(len(texts)), texts, {name: np.array(each, np.float64) for name, each in scores.items()})


def test_disagreement_is_the_furthest_rank_of_any_model():
    sample = sample_of([("a", "b")] * 4, start=[1, 2, 3, 4], bi=[1, 2, 3, 4], cross=[9, 2, 3, 1])
    assert disagreement(sample) == pytest.approx([1.0, 0.25, 0.25, 1.0])


@pytest.fixture
def kept(monkeypatch):
    """Let every run keep a sample."""

    def keep(sample):
        monkeypatch.setattr("transencoder.grading.choice.read_result", lambda _: {"seed": 1})
        monkeypatch.setattr(
            "transencoder.grading.choice.Evidence", lambda *_: SimpleNamespace(folder="run", sample=lambda: sample)
        )

    return keep


def test_pairs_where_models_disagree_come_first_in_either_direction(kept):
    n = 600
    ranks = np.arange(n, dtype=float)
    moved = ranks.copy()
    moved[[10, 590]] = moved[[590, 10]]  # one pair up and one down, all others alike
    texts = [(f"a {i}", f"b {i}") for i in range(n)]
    kept(sample_of(texts, start=ranks, bi=moved))
    pairs = choose("run", 100)
    assert len(set(pairs)) == 100
    assert {texts[10], texts[590]} <= set(pairs)
    assert choose("run", 30) == pairs[:30], "whoever stops early has graded such a draw too"
    drawn = np.array([int(first[2:]) for first, _ in pairs])
    assert 200 < drawn.mean() < 400, "the others are drawn evenly"


def test_the_same_pair_is_asked_once(kept):
    kept(sample_of([("a", "b"), ("a", "b"), ("b", "a")], start=[1, 2, 3], bi=[3, 2, 1]))
    assert sorted(choose("run")) == [("a", "b"), ("b", "a")]


@pytest.mark.parametrize("sample", [None, sample_of([("a", "b")], start=[1])])
def test_a_run_without_scored_pairs_is_refused(sample, kept):
    kept(sample)
    with pytest.raises(RunError, match="keeps no scores of pairs"):
        choose("run")


def test_a_real_run_keeps_its_pairs(finished_run):
    pairs = choose(finished_run, 20)
    texts = Evidence(finished_run, read_result(finished_run)).sample().texts
    assert len(pairs) == 20
    assert set(pairs) <= set(texts)
