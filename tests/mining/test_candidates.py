"""What each source finds, against slow statements of the same; near duplicates; pairs drawn evenly over their scores."""

import itertools

import bm25s
import numpy as np
import pytest
import torch

from tests.rounding import rounding
from transencoder.mining import candidates
from transencoder.mining.candidates import (
    N_STRATA,
    RANKS,
    Candidates,
    at_ranks,
    bm25,
    neighbours,
    random_pairs,
    score_candidates,
    spread,
    without_near_duplicates,
)
from transencoder.mining.corpus import Corpora, terms

N = 400
LONG = "the committee will meet again on the second monday of the month to decide about the old bridge over the river"


def pairs_of(*pairs):
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
def test_two_characters_in_a_hundred_make_no_other_sentence(other, is_near, make_corpus):
    corpus = make_corpus(["a short one", LONG, other])
    found, n_near = without_near_duplicates(pairs_of((0, 1), (0, 2), (1, 2)), Corpora(corpus, corpus))
    assert n_near == int(is_near)
    assert rows(found) == ([(0, 1)] if is_near else [(0, 1), (0, 2), (1, 2)])


def test_of_a_query_and_a_document_only_the_pair_goes(make_corpus):
    queries, documents = make_corpus(["same words", "others"]), make_corpus(["Same words!", "more"])
    found, n_near = without_near_duplicates(pairs_of((0, 0), (0, 1), (1, 0)), Corpora(queries, documents))
    assert (rows(found), n_near) == ([(0, 1), (1, 0)], 1)


def test_short_sentences_that_differ_in_a_letter_remain(make_corpus):
    corpus = make_corpus(["he ran home", "we ran home"])
    assert rows(without_near_duplicates(pairs_of((0, 1)), Corpora(corpus, corpus))[0]) == [(0, 1)]


@pytest.fixture(scope="module")
def corpora(make_corpus):
    corpus = make_corpus([f"sentence {i}" for i in range(N)])
    return Corpora(corpus, corpus)


def drawn_candidates(n, seed=0, score=None):
    """Scores as mining finds them: most low, few high."""
    random = np.random.default_rng(seed)
    rows = np.sort(np.stack([random.permutation(N)[:2] for _ in range(n)]), axis=1).astype(np.int32)
    scores = random.beta(1.2, 6, n) if score is None else np.full(n, score)
    return Candidates(
        first=rows[:, 0], second=rows[:, 1], source=np.zeros(n, np.uint8), score=scores.astype(np.float32)
    )


def draw(found, corpora, n_pairs, cap=1000, seed=0):
    return spread(found, corpora, n_pairs, cap, np.random.default_rng(seed))


def test_each_stratum_gives_alike_and_the_scarce_give_all(corpora):
    found = drawn_candidates(5000)
    chosen, strata = draw(found, corpora, 1000)
    counts, there = np.array(strata.counts(chosen)), np.array(strata.counts())
    assert counts.sum() == len(chosen) == len(set(chosen.tolist())) == 1000
    assert (counts <= there).all() and there.sum() == 5000
    is_scarce = counts == there
    assert 0 < is_scarce.sum() < N_STRATA
    assert np.ptp(counts[~is_scarce]) <= 1
    assert counts[is_scarce].max() <= counts[~is_scarce].min()
    plain = np.bincount(strata.numbers[:1000], minlength=N_STRATA)
    assert counts.max() < plain.max() / 2


def test_strata_are_of_equal_width_and_hold_every_candidate(corpora):
    found = drawn_candidates(5000)
    _, strata = draw(found, corpora, 100)
    widths = np.diff(strata.edges[1:-1])
    np.testing.assert_allclose(widths, widths[0], rtol=0, atol=rounding(2, dtype=torch.float64))
    assert (strata.edges[0], strata.edges[-1]) == (found.score.min(), found.score.max())
    low, high = strata.edges[strata.numbers], strata.edges[strata.numbers + 1]
    assert ((low <= found.score) & (found.score <= high)).all()


@pytest.mark.parametrize("cap", [1, 3])
def test_no_sentence_is_in_more_pairs_than_it_may(cap, corpora):
    found = drawn_candidates(3000)
    chosen, _ = draw(found, corpora, 3000, cap)
    taken = found.take(chosen)
    n_times = np.bincount(np.concatenate([taken.first, taken.second]), minlength=N)
    assert n_times.max() == cap
    is_left = np.ones(len(found), bool)
    is_left[chosen] = False
    has_room = (n_times[found.first] < cap) & (n_times[found.second] < cap)
    assert not (is_left & has_room).any(), "a pair that could be chosen was not"


def test_queries_and_documents_have_caps_of_their_own(corpora, make_corpus):
    both = Corpora(corpora.first, make_corpus([f"document {i}" for i in range(N)]))
    found = drawn_candidates(3000)
    taken = found.take(draw(found, both, 3000, 2)[0])
    assert [np.bincount(side).max() for side in (taken.first, taken.second)] == [2, 2]
    assert np.bincount(np.concatenate([taken.first, taken.second])).max() > 2


def test_the_seed_decides(corpora):
    found = drawn_candidates(2000)
    drawn = [draw(found, corpora, 500, seed=seed)[0].tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert sorted(drawn[0]) != drawn[0], "in random order"


@pytest.mark.parametrize("n", [1, 5])
def test_equal_scores_and_few_candidates_are_all_chosen(n, corpora):
    chosen, strata = draw(drawn_candidates(n, score=0.5), corpora, 10)
    assert sorted(chosen) == list(range(n)) and sum(strata.counts()) == n


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


@pytest.fixture
def near(tmp_path):
    """Neighbours as pairs of rows."""
    folders = map(str, itertools.count())
    return lambda first, second, anchors: as_pairs(
        neighbours(Corpora(first, second), np.asarray(anchors), tmp_path / next(folders))
    )


@pytest.mark.parametrize("shard_rows", [1000, 100, 7])
def test_neighbours_are_those_of_the_highest_cosines_whatever_the_shards(corpus, monkeypatch, near, shard_rows):
    monkeypatch.setattr(candidates, "_BLOCK_ROWS", 64)
    monkeypatch.setattr(candidates, "_SHARD_ROWS", shard_rows)
    anchors = np.array([0, 5, 299])
    cosines = corpus.embeddings[anchors] @ corpus.embeddings.T
    order = np.argsort(-cosines, axis=1)
    expected = [(a, order[i, rank]) for i, a in enumerate(anchors) for rank in RANKS]
    assert near(corpus, corpus, anchors) == expected


def test_of_other_documents_the_best_is_the_first(corpus, make_corpus, near):
    documents = make_corpus(sentences(40, seed=1), seed=1)
    order = np.argsort(-(corpus.embeddings[[9]] @ documents.embeddings.T)[0])
    assert near(corpus, documents, [9]) == [(9, order[rank - 1]) for rank in RANKS if rank <= 40]


@pytest.mark.parametrize("shard_rows", [10_000, 2500])
def test_many_sentences_are_searched_in_cells_that_find_most(make_corpus, monkeypatch, near, shard_rows):
    many = make_corpus([f"number {i}" for i in range(5000)], seed=3)
    anchors = np.arange(0, 5000, 50)
    exact = set(near(many, many, anchors)[:: len(RANKS)])
    monkeypatch.setattr(candidates, "EXACT_UP_TO", 1000)
    monkeypatch.setattr(candidates, "_SHARD_ROWS", shard_rows)
    found = near(many, many, anchors)
    assert len(exact & set(found)) > 0.6 * len(exact)
    assert found == near(many, many, anchors)


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
    monkeypatch.setattr("transencoder.mining.candidates._FREQUENT", 3)
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


@pytest.mark.parametrize("are_one", [True, False])
def test_each_rank_searches_words_for_its_share_of_the_sentences(corpus, make_corpus, monkeypatch, are_one):
    corpora = Corpora(corpus if are_one else make_corpus(sentences(9, seed=1)), corpus)
    whole = bm25(corpora, np.arange(7))
    monkeypatch.setattr("transencoder.distributed.world_size", lambda: 8)
    monkeypatch.setattr("transencoder.distributed.concatenate", lambda part: part)
    parts = []
    for rank in range(8):
        monkeypatch.setattr("transencoder.distributed.rank", lambda rank=rank: rank)
        parts.append(bm25(corpora, np.arange(7)))
    assert len(parts[0]) == 0
    np.testing.assert_array_equal(np.concatenate(parts), whole)


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
