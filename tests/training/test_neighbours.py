"""Nearest texts before and after, from embeddings whose neighbours are known."""

import numpy as np
import pytest

from transencoder.training.neighbours import compared

TEXTS = ["east", "nearly east", "north", "nearly north"]
BY_PLACE = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]])
BY_WORD = np.array([[1, 0], [0, 1], [2, 0], [0, 2]])


@pytest.mark.parametrize(
    ("n_texts", "bi", "n_changed", "pairs"),
    [
        (4, BY_PLACE, 0, [(0, 1, 1), (1, 0, 0), (2, 3, 3), (3, 2, 2)]),
        (4, BY_WORD, 4, [(0, 1, 2), (1, 0, 3), (2, 3, 0), (3, 2, 1)]),
        (3, BY_WORD, 2, [(0, 1, 2), (2, 1, 0)]),  # only what changed
        (1, BY_WORD, 0, []),
    ],
)
def test_the_nearest_other_text_before_and_after(n_texts, bi, n_changed, pairs):
    found = compared(TEXTS[:n_texts], BY_PLACE[:n_texts], bi[:n_texts])
    assert (found["texts"], found["changed"]) == (n_texts, n_changed)
    named = [(shown["text"], shown["start"]["text"], shown["bi"]["text"]) for shown in found["shown"]]
    assert named == [tuple(TEXTS[i] for i in each) for each in pairs]


def test_ten_are_shown_of_many_from_the_first_to_the_last():
    rng = np.random.default_rng(0)
    found = compared([f"text {i}" for i in range(300)], rng.normal(size=(300, 8)), rng.normal(size=(300, 8)))
    shown = [int(each["text"].removeprefix("text ")) for each in found["shown"]]
    assert len(shown) == 10 and shown == sorted(shown) and shown[0] < 10 and shown[-1] > 290
