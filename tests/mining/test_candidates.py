"""Near duplicates among candidates, and how pairs are drawn evenly over their scores."""

import numpy as np
import pytest
import torch

from tests.rounding import rounding
from transencoder.mining.candidates import N_STRATA, Candidates, spread, without_near_duplicates
from transencoder.mining.corpus import Corpora

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


def candidates(n, seed=0, score=None):
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
    found = candidates(5000)
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
    found = candidates(5000)
    _, strata = draw(found, corpora, 100)
    widths = np.diff(strata.edges[1:-1])
    np.testing.assert_allclose(widths, widths[0], rtol=0, atol=rounding(2, dtype=torch.float64))
    assert (strata.edges[0], strata.edges[-1]) == (found.score.min(), found.score.max())
    low, high = strata.edges[strata.numbers], strata.edges[strata.numbers + 1]
    assert ((low <= found.score) & (found.score <= high)).all()


@pytest.mark.parametrize("cap", [1, 3])
def test_no_sentence_is_in_more_pairs_than_it_may(cap, corpora):
    found = candidates(3000)
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
    found = candidates(3000)
    taken = found.take(draw(found, both, 3000, 2)[0])
    assert [np.bincount(side).max() for side in (taken.first, taken.second)] == [2, 2]
    assert np.bincount(np.concatenate([taken.first, taken.second])).max() > 2


def test_the_seed_decides(corpora):
    found = candidates(2000)
    drawn = [draw(found, corpora, 500, seed=seed)[0].tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert sorted(drawn[0]) != drawn[0], "in random order"


@pytest.mark.parametrize("n", [1, 5])
def test_equal_scores_and_few_candidates_are_all_chosen(n, corpora):
    chosen, strata = draw(candidates(n, score=0.5), corpora, 10)
    assert sorted(chosen) == list(range(n)) and sum(strata.counts()) == n
