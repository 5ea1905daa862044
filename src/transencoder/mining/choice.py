"""Which candidates become pairs: as many from each stretch of the start's scores, as far as there are as many."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from transencoder.mining.candidates import Candidates
from transencoder.mining.piles import Piles

N_STRATA = 20

_BEYOND = 0.001
"""Share of the candidates at either end that make no strata of their own: there are too few of them."""


@dataclass(frozen=True)
class Strata:
    """The range of scores, cut."""

    edges: np.ndarray
    """float (N_STRATA + 1,)."""
    numbers: np.ndarray
    """int (n,): which stratum each candidate is in."""

    def counts(self, rows: np.ndarray | slice = slice(None)) -> list[int]:
        """How many of some candidates are in each stratum."""
        found: list[int] = np.bincount(self.numbers[rows], minlength=N_STRATA).tolist()
        return found


def spread(
    found: Candidates, piles: Piles, n_pairs: int, max_per_sentence: int, random: np.random.Generator
) -> tuple[np.ndarray, Strata]:
    """Draw pairs evenly from 20 strata of the start's scores.

    The scarcest stratum draws first, then the others, each its share of what is still wanted: where one has too few,
    the others give more. Within a stratum chance decides.

    Args:
        found: n candidates.
        piles: Where their sentences lie.
        n_pairs: How many are wanted.
        max_per_sentence: Pairs that a sentence may be in.
        random: Draws.

    Returns:
        int (at most n_pairs,), rows of the candidates, in random order; and the strata.
    """
    strata = _strata(found.score)
    take_room = _room(found, piles, max_per_sentence)
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


def _strata(scores: np.ndarray) -> Strata:
    """Stretches of equal width between a low and a high quantile; the outermost reach on to the last candidate."""
    low, high = (float(np.quantile(scores, share)) for share in (_BEYOND, 1 - _BEYOND))
    edges = np.linspace(low, high, N_STRATA + 1)
    numbers = np.searchsorted(edges[1:-1], scores, side="right")
    edges[0], edges[-1] = scores.min(), scores.max()
    return Strata(edges, numbers)


def _room(found: Candidates, piles: Piles, max_per_sentence: int) -> Callable[[int], bool]:
    """What says whether both sentences of a candidate may be in one more pair, and counts it."""
    of_first = [max_per_sentence] * len(piles.first)
    of_second = of_first if piles.are_one else [max_per_sentence] * len(piles.second)

    def take_room(row: int) -> bool:
        one, other = found.first[row], found.second[row]
        if not (of_first[one] and of_second[other]):
            return False
        of_first[one] -= 1
        of_second[other] -= 1
        return True

    return take_room
