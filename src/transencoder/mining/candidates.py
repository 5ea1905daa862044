"""Candidate pairs: what the sources found, less near duplicates, and the choice that spreads their scores evenly."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cpdist

from transencoder import progress
from transencoder.mining.corpus import Corpora, plain_words

SOURCES = ("neighbours", "bm25", "random")
N_STRATA = 20

_BEYOND = 0.001
"""Share of the candidates at either end that make no strata of their own: there are too few of them."""
_LEAST_SIMILARITY = 0.98
_BLOCK_PAIRS = 4096


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """n pairs of sentences."""

    first: np.ndarray
    """int32 (n,): rows of the first corpus; where the corpora are one, of the earlier sentence."""
    second: np.ndarray
    """int32 (n,): rows of the second corpus."""
    source: np.ndarray
    """uint8 (n,): position in `SOURCES` of what found the pair, the first where several did."""
    score: np.ndarray
    """float32 (n,): cosine of the base model's embeddings, -1 to 1."""

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: np.ndarray) -> "Candidates":
        """Select some of the pairs, by number or mask."""
        return Candidates(**{name: values[rows] for name, values in vars(self).items()})


def score_candidates(corpora: Corpora, **found: np.ndarray) -> Candidates:
    """Score what all sources found, each pair once and no sentence with itself, in order of rows.

    Args:
        corpora: Where the sentences lie.
        found: Of each of `SOURCES` pairs of rows, int32 (n, 2).
    """
    sources = np.repeat(np.arange(len(SOURCES), dtype=np.uint8), [len(found[source]) for source in SOURCES])
    pairs = np.concatenate([found[source] for source in SOURCES])
    if corpora.are_one:
        pairs = np.sort(pairs, axis=1)
    _, rows = np.unique(pairs[:, 0].astype(np.int64) * len(corpora.second) + pairs[:, 1], return_index=True)
    if corpora.are_one:
        rows = rows[pairs[rows, 0] != pairs[rows, 1]]
    one, other = pairs[rows, 0], pairs[rows, 1]
    return Candidates(first=one, second=other, source=sources[rows], score=_cosines(one, other, corpora))


def without_near_duplicates(found: Candidates, corpora: Corpora) -> tuple[Candidates, int]:
    """Leave out near duplicates: of their plain words at most 2 characters in 100 differ (Levenshtein).

    The later sentence goes, with all its pairs; where it is of another corpus, the pair alone. The rule does not ask
    the base model, whose cosines may all be near 1, and it is strict: a sentence and its negation remain, or one with
    another subject, since such pairs teach. It costs a comparison for each candidate of about the same length; two
    sentences that no source brought together are not compared, and cannot become a pair.

    Returns:
        The others, and how many sentences, or pairs, were left out.
    """
    is_near = _are_near(found, corpora)
    if not corpora.are_one:
        return found.take(~is_near), int(is_near.sum())
    is_out = np.zeros(len(corpora.first), np.bool_)
    is_out[found.second[is_near]] = True
    return found.take(~is_out[found.first] & ~is_out[found.second]), int(is_out.sum())


@dataclass(frozen=True)
class Strata:
    """The range of scores, cut."""

    edges: np.ndarray
    """float (N_STRATA + 1,)."""
    numbers: np.ndarray
    """int (n,): which stratum each candidate is in."""

    def counts(self, rows: np.ndarray | slice = slice(None)) -> list[int]:
        """Count how many of some candidates are in each stratum."""
        found: list[int] = np.bincount(self.numbers[rows], minlength=N_STRATA).tolist()
        return found


def spread(
    found: Candidates, corpora: Corpora, n_pairs: int, max_per_sentence: int, random: np.random.Generator
) -> tuple[np.ndarray, Strata]:
    """Draw pairs evenly from 20 strata of the base model's scores.

    The scarcest stratum draws first, then the others, each its share of what is still wanted: where one has too few,
    the others give more. Within a stratum chance decides. No sentence is in more than `max_per_sentence` pairs.

    Returns:
        int (at most n_pairs,), rows of the candidates, in random order; and the strata.
    """
    strata = _strata(found.score)
    take_room = _room(found, corpora, max_per_sentence)
    rows = [np.flatnonzero(strata.numbers == number) for number in range(N_STRATA)]
    waiting = [iter(random.permutation(each)) for each in sorted(rows, key=len)]
    chosen: list[int] = []
    n_before = -1
    while n_before < len(chosen) < n_pairs:
        n_before = len(chosen)
        for n_left, stratum in zip(range(N_STRATA, 0, -1), waiting, strict=True):
            share = -(-(n_pairs - len(chosen)) // n_left)
            chosen += islice(filter(take_room, stratum), share)
    return random.permutation(np.asarray(chosen, np.int64)), strata


def _cosines(one: np.ndarray, other: np.ndarray, corpora: Corpora) -> np.ndarray:
    cosines = np.empty(len(one), np.float32)
    for rows in progress.blocks("score candidates", len(one), _BLOCK_PAIRS):
        sides = corpora.first.embeddings[one[rows]], corpora.second.embeddings[other[rows]]
        cosines[rows] = np.clip(np.einsum("ij,ij->i", *sides), -1.0, 1.0)
    return cosines


def _are_near(found: Candidates, corpora: Corpora) -> np.ndarray:
    one, other = corpora.first.n_characters[found.first], corpora.second.n_characters[found.second]
    is_near: np.ndarray = np.abs(one - other) <= (1 - _LEAST_SIMILARITY) * np.maximum(one, other)
    maybe = np.flatnonzero(is_near)
    for block in progress.blocks("compare candidates", len(maybe), _BLOCK_PAIRS):
        rows = maybe[block]
        firsts = list(map(plain_words, corpora.first.texts[found.first[rows]]["text"]))
        seconds = list(map(plain_words, corpora.second.texts[found.second[rows]]["text"]))
        similarity = cpdist(firsts, seconds, scorer=Levenshtein.normalized_similarity, score_cutoff=_LEAST_SIMILARITY)
        is_near[rows] = similarity >= _LEAST_SIMILARITY
    return is_near


def _strata(scores: np.ndarray) -> Strata:
    """Cut stretches of equal width between a low and a high quantile; the outermost reach on to the last candidate."""
    low, high = (float(np.quantile(scores, share)) for share in (_BEYOND, 1 - _BEYOND))
    edges = np.linspace(low, high, N_STRATA + 1)
    numbers = np.searchsorted(edges[1:-1], scores, side="right")
    edges[0], edges[-1] = scores.min(), scores.max()
    return Strata(edges, numbers)


def _room(found: Candidates, corpora: Corpora, max_per_sentence: int) -> Callable[[int], bool]:
    """Return a function that says whether both sentences of a candidate may be in one more pair, and counts it."""
    of_first = [max_per_sentence] * len(corpora.first)
    of_second = of_first if corpora.are_one else [max_per_sentence] * len(corpora.second)

    def take_room(row: int) -> bool:
        one, other = found.first[row], found.second[row]
        if not (of_first[one] and of_second[other]):
            return False
        of_first[one] -= 1
        of_second[other] -= 1
        return True

    return take_room
