"""What each source of candidates finds, against slow statements of the same."""

import bm25s
import numpy as np
import pytest

from tests.rounding import rounding
from transencoder.mining import sources
from transencoder.mining.candidates import score_candidates
from transencoder.mining.corpus import Corpora, terms
from transencoder.mining.sources import RANKS, at_ranks, bm25, neighbours, random_pairs

WORDS = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "ar", "el", "im", "on")]


def sentences(n, seed=0, words=6):
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(1, len(WORDS) + 1)
    return [" ".join(random.choice(WORDS, words, p=shares / shares.sum())) + f" w{row}" for row in range(n)]


@pytest.fixture(scope="module")
def corpus(make_corpus):
    return make_corpus(sentences(300))


def as_pairs(rows):
    return [tuple(row) for row in rows.tolist()]


def test_ranks_leave_out_the_sentence_itself_and_what_is_not_there():
    found = np.array([[7, 3, 4, 5, -1], [1, 7, 2, 9, 8]])
    assert as_pairs(at_ranks(np.array([7, 1]), found, are_one=True)) == [(7, 3), (7, 4), (1, 7), (1, 2), (1, 8)]
    assert as_pairs(at_ranks(np.array([0]), found[:1], are_one=False)) == [(0, 7), (0, 3), (0, 5)]


def test_neighbours_are_those_of_the_highest_cosines(corpus, monkeypatch):
    monkeypatch.setattr(sources, "_BLOCK_ROWS", 64)
    anchors = np.array([0, 5, 299])
    cosines = corpus.embeddings[anchors] @ corpus.embeddings.T
    order = np.argsort(-cosines, axis=1)
    expected = [(a, order[i, rank]) for i, a in enumerate(anchors) for rank in RANKS]
    assert as_pairs(neighbours(Corpora(corpus, corpus), anchors)) == expected


def test_of_other_documents_the_best_is_the_first(corpus, make_corpus):
    documents = make_corpus(sentences(40, seed=1), seed=1)
    order = np.argsort(-(corpus.embeddings[[9]] @ documents.embeddings.T)[0])
    found = as_pairs(neighbours(Corpora(corpus, documents), np.array([9])))
    assert found == [(9, order[rank - 1]) for rank in RANKS if rank <= 40]


def test_many_sentences_are_searched_in_cells_that_find_most(corpus, make_corpus, monkeypatch):
    many = make_corpus([f"number {i}" for i in range(5000)], seed=3)
    anchors = np.arange(0, 5000, 50)
    exact = set(as_pairs(neighbours(Corpora(many, many), anchors)[:: len(RANKS)]))
    monkeypatch.setattr(sources, "EXACT_UP_TO", 1000)
    found = neighbours(Corpora(many, many), anchors)
    assert len(exact & set(as_pairs(found))) > 0.6 * len(exact)
    assert as_pairs(found) == as_pairs(neighbours(Corpora(many, many), anchors))


def test_bm25_finds_what_bm25s_finds(corpus):
    anchors = np.array([0, 17, 250])
    index = bm25s.BM25()
    words = [terms(text) for text in corpus.texts["text"]]
    index.index(words, show_progress=False)
    found = as_pairs(bm25(Corpora(corpus, corpus), anchors))
    for anchor in anchors.tolist():
        scores = index.get_scores(words[anchor])
        others = [other for first, other in found if first == anchor]
        expected = np.sort(scores[scores > 0])[::-1]
        places = [rank for rank in RANKS if rank < len(expected)]
        assert len(others) == len(places) > 4
        atol = rounding(len(words[anchor]), scores)
        np.testing.assert_allclose(scores[others], expected[places], rtol=0, atol=atol)


def test_bm25_leaves_frequent_words_out(make_corpus, monkeypatch):
    monkeypatch.setattr("transencoder.mining.sources._FREQUENT", 3)
    corpus = make_corpus(["the cat", "the dog", "the cow", "the hen", "a rare cat"])
    assert as_pairs(bm25(Corpora(corpus, corpus), np.arange(5))) == [(0, 4), (4, 0)]


def test_bm25_needs_no_spaces_between_words(make_corpus):
    corpus = make_corpus(["機械学習の本を読む", "深層学習は楽しい", "今日は雨が降る", "อ่านหนังสือทุกวัน", "หนังสือเล่มนี้ดี"])
    found = as_pairs(bm25(Corpora(corpus, corpus), np.arange(5)))
    assert {(0, 1), (3, 4)} <= set(found)
    assert (0, 3) not in found


def test_bm25_of_queries_knows_the_documents_words_only(make_corpus):
    queries = make_corpus(["where is the washing machine manual", "zzz qqq"])
    documents = make_corpus(["a manual for washing", "a fridge", "the oven"])
    assert as_pairs(bm25(Corpora(queries, documents), np.arange(2))) == [(0, 0), (0, 2)]


def test_bm25_of_texts_without_a_word_in_common_is_empty(make_corpus):
    corpus = make_corpus(["one", "two", "?!"])
    assert bm25(Corpora(corpus, corpus), np.arange(3)).shape == (0, 2)


def test_random_pairs_are_of_the_seed(corpus):
    anchors = np.arange(3)
    drawn = [random_pairs(Corpora(corpus, corpus), anchors, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert as_pairs(drawn[0]) == as_pairs(drawn[1]) != as_pairs(drawn[2])
    assert drawn[0][:, 0].tolist() == sorted([0, 1, 2] * 8)


def test_candidates_come_once_without_order_with_the_first_source_and_their_cosine(corpus):
    found = score_candidates(
        Corpora(corpus, corpus),
        neighbours=np.array([[4, 2], [2, 4], [5, 5]], np.int32),
        bm25=np.array([[2, 4], [1, 9]], np.int32),
        random=np.array([[9, 1], [0, 3]], np.int32),
    )
    assert list(zip(found.first, found.second, found.source, strict=True)) == [(0, 3, 2), (1, 9, 1), (2, 4, 0)]
    expected = np.einsum("ij,ij->i", corpus.embeddings[found.first], corpus.embeddings[found.second])
    np.testing.assert_allclose(found.score, expected, rtol=0, atol=rounding(corpus.embeddings.shape[1]))


def test_of_two_corpora_pairs_have_an_order_and_rows_may_be_equal(corpus, make_corpus):
    documents = make_corpus(sentences(30, seed=5), seed=5)
    rows = np.array([[4, 2], [2, 4], [5, 5]], np.int32)
    none = np.empty((0, 2), np.int32)
    found = score_candidates(Corpora(corpus, documents), neighbours=rows, bm25=none, random=none)
    assert list(zip(found.first, found.second, strict=True)) == [(2, 4), (4, 2), (5, 5)]
