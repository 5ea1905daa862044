"""Each criterion against its equation written out, and where it must be highest and lowest."""

import math

import numpy as np
import pytest

from transencoder.selection import criteria

SHAPES = [(2, 3), (7, 4), (12, 2)]


def random_unit(n, dim, seed):
    rows = np.random.default_rng(seed).normal(size=(n, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize(("n", "dim"), SHAPES)
def test_alignment_and_uniformity_as_the_equations_say(n, dim):
    first, second = random_unit(n, dim, 1), random_unit(n, dim, 2)
    squared = [sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) for x, y in zip(first, second, strict=True)]
    assert criteria.alignment(3 * first, 0.1 * second) == pytest.approx(sum(squared) / n)
    potential = [
        math.exp(-2 * sum((a - b) ** 2 for a, b in zip(first[i], first[j], strict=True)))
        for i in range(n)
        for j in range(i)
    ]
    assert criteria.uniformity(5 * first) == pytest.approx(math.log(sum(potential) / len(potential)))


def test_what_is_all_the_same_is_aligned_and_not_uniform():
    same = np.ones((5, 3))
    assert criteria.alignment(same, same) == 0
    assert criteria.uniformity(same) == pytest.approx(0)
    assert criteria.uniformity(np.eye(2)) == pytest.approx(-4)  # a right angle apart


@pytest.mark.parametrize(("n", "dim"), SHAPES)
def test_self_retrieval_is_the_mean_reciprocal_rank(n, dim):
    sentences, views = random_unit(n, dim, 3), random_unit(n, dim, 4)
    ranks = []
    for i, view in enumerate(views):
        order = sorted(range(n), key=lambda j: -float(view @ sentences[j]))
        ranks.append(order.index(i) + 1)
    assert criteria.self_retrieval(views, 2 * sentences) == pytest.approx(100 * np.mean([1 / rank for rank in ranks]))


def test_an_encoder_that_says_the_same_of_all_finds_nothing():
    assert criteria.self_retrieval(np.eye(4), np.eye(4)) == 100
    assert criteria.self_retrieval(np.ones((9, 2)), np.ones((9, 2))) == pytest.approx(100 / 5)  # the middle one of nine
    assert criteria.self_retrieval(np.zeros((9, 2)), np.zeros((9, 2))) == pytest.approx(100 / 5)


def test_view_preference_counts_equals_half():
    assert criteria.view_preference(np.array([3, 1, 2, 2]), np.array([1, 3, 2, 0])) == pytest.approx(62.5)


def test_effective_rank_is_the_number_of_directions():
    rows = np.zeros((8, 6))
    rows[:, :3] = np.linalg.qr(np.random.default_rng(0).normal(size=(8, 3)))[0]
    assert criteria.effective_rank(7 * rows) == pytest.approx(3, rel=1e-4)
    assert criteria.effective_rank(np.outer(np.arange(1.0, 9), np.ones(6))) == pytest.approx(1, rel=1e-4)
    values = np.linalg.svd(rows + 0.1, compute_uv=False)
    shares = values / values.sum()
    entropy = -sum(share * math.log(share) for share in shares if share > 1e-12)
    assert criteria.effective_rank(rows + 0.1) == pytest.approx(math.exp(entropy), rel=1e-4)
    assert criteria.effective_rank(np.zeros((4, 3))) == pytest.approx(1, abs=0.01)  # no NaN
