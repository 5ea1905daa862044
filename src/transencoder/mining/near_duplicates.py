"""Candidates that say the same in nearly the same characters: worth no training, and they crowd the upper end."""

import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cpdist

from transencoder import progress
from transencoder.mining.candidates import Candidates
from transencoder.mining.piles import Piles
from transencoder.mining.words import plain_words

_BLOCK_PAIRS = 4096
_LEAST_SIMILARITY = 0.98


def without_near_duplicates(found: Candidates, piles: Piles) -> tuple[Candidates, int]:
    """Leave out near duplicates: of their plain words at most 2 characters in 100 differ (Levenshtein).

    The later sentence goes, with all its pairs; where it is of another pile, the pair alone. The rule does not ask
    the start, whose cosines may all be near 1, and it is strict: a sentence and its negation remain, or one with
    another subject, since such pairs teach. It costs a comparison for each candidate of about the same length; two
    sentences that no source brought together are not compared, and cannot become a pair.

    Args:
        found: The candidates.
        piles: Where the sentences lie.

    Returns:
        The others, and how many sentences, or pairs, were left out.
    """
    is_near = _are_near(found, piles)
    if not piles.are_one:
        return found.take(~is_near), int(is_near.sum())
    is_out = np.zeros(len(piles.first), np.bool_)
    is_out[found.second[is_near]] = True
    return found.take(~is_out[found.first] & ~is_out[found.second]), int(is_out.sum())


def _are_near(found: Candidates, piles: Piles) -> np.ndarray:
    one, other = piles.first.n_characters[found.first], piles.second.n_characters[found.second]
    is_near: np.ndarray = np.abs(one - other) <= (1 - _LEAST_SIMILARITY) * np.maximum(one, other)
    maybe = np.flatnonzero(is_near)
    with progress.task("compare candidates", len(maybe)) as advance:
        for start in range(0, len(maybe), _BLOCK_PAIRS):
            rows = maybe[start : start + _BLOCK_PAIRS]
            sides = [
                [plain_words(text) for text in pile.texts[numbers[rows]]["text"]]
                for pile, numbers in ((piles.first, found.first), (piles.second, found.second))
            ]
            similarity = cpdist(*sides, scorer=Levenshtein.normalized_similarity, score_cutoff=_LEAST_SIMILARITY)
            is_near[rows] = similarity >= _LEAST_SIMILARITY
            advance(len(rows))
    return is_near
