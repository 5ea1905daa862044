"""Repetitions before anything is encoded, and near duplicates among candidates."""

import numpy as np
import pytest
from datasets import Dataset

from transencoder.mining.candidates import Candidates
from transencoder.mining.distinct import distinct
from transencoder.mining.near_duplicates import without_near_duplicates
from transencoder.mining.piles import Piles

LONG = "the committee will meet again on the second monday of the month to decide about the old bridge over the river"


def test_the_first_of_equal_and_of_alike_sentences_stays_in_order(monkeypatch):
    monkeypatch.setattr("transencoder.mining.distinct._BLOCK_ROWS", 3)
    texts = ["one two", "three", "One, two!", "three", "three", "four", "two one"]
    found = distinct(Dataset.from_dict({"text": texts}))
    assert found.texts["text"][:] == ["one two", "three", "four", "two one"]
    assert (found.n_exact, found.n_alike, len(found)) == (2, 1, 4)
    assert found.n_characters.tolist() == [7, 5, 4, 7]


def test_without_repetitions_the_data_set_is_itself():
    texts = Dataset.from_dict({"text": ["a", "b"]})
    assert distinct(texts).texts is texts


def candidates(*pairs):
    first, second = np.array(pairs, np.int32).T
    return Candidates(first=first, second=second, source=np.zeros(len(pairs), np.uint8), score=np.zeros(len(pairs)))


def rows(found):
    return list(zip(found.first.tolist(), found.second.tolist(), strict=True))


@pytest.mark.parametrize(
    ("other", "is_near"),
    [
        (LONG.replace("second", "seconds"), True),
        (LONG.replace("will meet", "will not meet"), False),
        (LONG.replace("second monday", "second friday"), False),
        (LONG.replace("old bridge over the river", "river over the old bridge"), False),
    ],
)
def test_two_characters_in_a_hundred_make_no_other_sentence(other, is_near, make_pile):
    pile = make_pile(["a short one", LONG, other])
    found, n_near = without_near_duplicates(candidates((0, 1), (0, 2), (1, 2)), Piles(pile, pile))
    assert n_near == int(is_near)
    assert rows(found) == ([(0, 1)] if is_near else [(0, 1), (0, 2), (1, 2)])


def test_of_a_query_and_a_document_only_the_pair_goes(make_pile):
    queries, documents = make_pile(["same words", "others"]), make_pile(["Same words!", "more"])
    found, n_near = without_near_duplicates(candidates((0, 0), (0, 1), (1, 0)), Piles(queries, documents))
    assert (rows(found), n_near) == ([(0, 1), (1, 0)], 1)


def test_short_sentences_that_differ_in_a_letter_remain(make_pile):
    pile = make_pile(["he ran home", "we ran home"])
    assert rows(without_near_duplicates(candidates((0, 1)), Piles(pile, pile))[0]) == [(0, 1)]
