"""Edit distance and similarity of the two texts of pairs."""

import numpy as np
import pytest
from datasets import Dataset

from transencoder.views import compare
from transencoder.views import pairs as makers

PAIRS = [("kitten", "sitting"), ("", "abc"), ("same", "same"), ("Größe", "Grosse"), ("ab", "ba")]


def slow_distance(first, second):
    table = np.zeros((len(first) + 1, len(second) + 1), int)
    table[:, 0], table[0] = range(len(first) + 1), range(len(second) + 1)
    for i, a in enumerate(first, 1):
        for j, b in enumerate(second, 1):
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (a != b))
    return table[-1, -1]


class Fixed:
    def __init__(self, scores):
        self.scores = np.array(scores, np.float32)

    def score(self, pairs):
        return self.scores[: len(pairs)]


@pytest.mark.parametrize("block", [2, 100])
def test_distances_and_similarities_are_averaged_over_the_pairs(block, monkeypatch):
    monkeypatch.setattr(makers, "_BLOCK_ROWS", block)
    pairs = Dataset.from_dict({"sentence1": [a for a, _ in PAIRS], "sentence2": [b for _, b in PAIRS]})
    found = compare(pairs, {"one": Fixed([1.0, 0.5, 0.0, -0.5, 0.5]), "two": Fixed([0.25] * 5)})
    distances = [slow_distance(*pair) for pair in PAIRS]
    assert distances == [3, 3, 0, 3, 2]
    assert found.n_pairs == 5
    assert found.edit_distance == pytest.approx(np.mean(distances))
    assert found.edit_distance_std == pytest.approx(np.std(distances))
    assert found.similarity == {"one": pytest.approx(0.3), "two": pytest.approx(0.25)}


def test_equal_distances_have_no_deviation():
    pairs = Dataset.from_dict({"sentence1": ["a" * 1000] * 7, "sentence2": ["b" * 1001] * 7})
    found = compare(pairs, {})
    assert (found.edit_distance, found.edit_distance_std, found.similarity) == (1001.0, 0.0, {})
