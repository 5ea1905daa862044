"""What each source of candidates finds, against slow statements of the same."""

import bm25s
import numpy as np
import pytest

from transencoder.mining import neighbours as neighbours_module
from transencoder.mining.bm25 import bm25
from transencoder.mining.candidates import RANKS, at_ranks, together
from transencoder.mining.neighbours import is_exact, neighbours
from transencoder.mining.piles import Piles
from transencoder.mining.random_pairs import random_pairs
from transencoder.mining.words import terms

WORDS = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "ar", "el", "im", "on")]


def sentences(n, seed=0, words=6):
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(1, len(WORDS) + 1)
    return [" ".join(random.choice(WORDS, words, p=shares / shares.sum())) + f" w{row}" for row in range(n)]


@pytest.fixture(scope="module")
def pile(make_pile):
    return make_pile(sentences(300))


def as_pairs(rows):
    return [tuple(row) for row in rows.tolist()]


def test_ranks_leave_out_the_sentence_itself_and_what_is_not_there():
    found = np.array([[7, 3, 4, 5, -1], [1, 7, 2, 9, 8]])
    assert as_pairs(at_ranks(np.array([7, 1]), found, are_one=True)) == [(7, 3), (7, 4), (1, 7), (1, 2), (1, 8)]
    assert as_pairs(at_ranks(np.array([0]), found[:1], are_one=False)) == [(0, 7), (0, 3), (0, 5)]


def test_neighbours_are_those_of_the_highest_cosines(pile, monkeypatch):
    monkeypatch.setattr(neighbours_module, "_BLOCK_ROWS", 64)
    anchors = np.array([0, 5, 299])
    cosines = pile.embeddings[anchors] @ pile.embeddings.T
    order = np.argsort(-cosines, axis=1)
    expected = [(a, order[i, rank]) for i, a in enumerate(anchors) for rank in RANKS]
    assert is_exact(pile)
    assert as_pairs(neighbours(Piles(pile, pile), anchors)) == expected


def test_of_other_documents_the_best_is_the_first(pile, make_pile):
    documents = make_pile(sentences(40, seed=1), seed=1)
    order = np.argsort(-(pile.embeddings[[9]] @ documents.embeddings.T)[0])
    found = as_pairs(neighbours(Piles(pile, documents), np.array([9])))
    assert found == [(9, order[rank - 1]) for rank in RANKS if rank <= 40]


def test_many_sentences_are_searched_in_cells_that_find_most(pile, make_pile, monkeypatch):
    many = make_pile([f"number {i}" for i in range(5000)], seed=3)
    anchors = np.arange(0, 5000, 50)
    exact = set(as_pairs(neighbours(Piles(many, many), anchors)[:: len(RANKS)]))
    monkeypatch.setattr(neighbours_module, "EXACT_UP_TO", 1000)
    found = neighbours(Piles(many, many), anchors)
    assert not is_exact(many)
    assert len(exact & set(as_pairs(found))) > 0.6 * len(exact)
    assert as_pairs(found) == as_pairs(neighbours(Piles(many, many), anchors))


def test_bm25_finds_what_bm25s_finds(pile):
    anchors = np.array([0, 17, 250])
    index = bm25s.BM25()
    corpus = [terms(text) for text in pile.texts["text"]]
    index.index(corpus, show_progress=False)
    found = as_pairs(bm25(Piles(pile, pile), anchors))
    for anchor in anchors.tolist():
        scores = index.get_scores(corpus[anchor])
        others = [other for first, other in found if first == anchor]
        expected = np.sort(scores[scores > 0])[::-1]
        places = [rank for rank in RANKS if rank < len(expected)]
        assert len(others) == len(places) > 4
        np.testing.assert_allclose(scores[others], expected[places], rtol=1e-5)


def test_bm25_leaves_frequent_words_out(make_pile, monkeypatch):
    monkeypatch.setattr("transencoder.mining.bm25._FREQUENT", 3)
    pile = make_pile(["the cat", "the dog", "the cow", "the hen", "a rare cat"])
    assert as_pairs(bm25(Piles(pile, pile), np.arange(5))) == [(0, 4), (4, 0)]


def test_bm25_needs_no_spaces_between_words(make_pile):
    pile = make_pile(["機械学習の本を読む", "深層学習は楽しい", "今日は雨が降る", "อ่านหนังสือทุกวัน", "หนังสือเล่มนี้ดี"])
    found = as_pairs(bm25(Piles(pile, pile), np.arange(5)))
    assert {(0, 1), (3, 4)} <= set(found)
    assert (0, 3) not in found


def test_bm25_of_queries_knows_the_documents_words_only(make_pile):
    queries = make_pile(["where is the washing machine manual", "zzz qqq"])
    documents = make_pile(["a manual for washing", "a fridge", "the oven"])
    assert as_pairs(bm25(Piles(queries, documents), np.arange(2))) == [(0, 0), (0, 2)]


def test_bm25_of_texts_without_a_word_in_common_is_empty(make_pile):
    pile = make_pile(["one", "two", "?!"])
    assert bm25(Piles(pile, pile), np.arange(3)).shape == (0, 2)


def test_random_pairs_are_of_the_seed(pile):
    anchors = np.arange(3)
    drawn = [random_pairs(Piles(pile, pile), anchors, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert as_pairs(drawn[0]) == as_pairs(drawn[1]) != as_pairs(drawn[2])
    assert drawn[0][:, 0].tolist() == sorted([0, 1, 2] * 8)


def test_candidates_come_once_without_order_with_the_first_source_and_their_cosine(pile):
    found = together(
        Piles(pile, pile),
        neighbours=np.array([[4, 2], [2, 4], [5, 5]], np.int32),
        bm25=np.array([[2, 4], [1, 9]], np.int32),
        random=np.array([[9, 1], [0, 3]], np.int32),
    )
    assert list(zip(found.first, found.second, found.source, strict=True)) == [(0, 3, 2), (1, 9, 1), (2, 4, 0)]
    expected = np.einsum("ij,ij->i", pile.embeddings[found.first], pile.embeddings[found.second])
    np.testing.assert_allclose(found.score, expected, rtol=1e-6)


def test_of_two_piles_pairs_have_an_order_and_rows_may_be_equal(pile, make_pile):
    documents = make_pile(sentences(30, seed=5), seed=5)
    rows = np.array([[4, 2], [2, 4], [5, 5]], np.int32)
    none = np.empty((0, 2), np.int32)
    found = together(Piles(pile, documents), neighbours=rows, bm25=none, random=none)
    assert list(zip(found.first, found.second, strict=True)) == [(2, 4), (4, 2), (5, 5)]
