"""Candidate pairs: what the sources found, each pair once, with the start's score."""

from dataclasses import dataclass

import numpy as np

from transencoder import progress
from transencoder.mining.piles import Piles

RANKS = 2 ** np.arange(8)
"""Which of the best found for a sentence become candidates: the 1st, 2nd, 4th, ... 128th, so that few comparisons
reach from its paraphrases to what only shares its subject."""

SOURCES = ("neighbours", "bm25", "random")

_BLOCK_PAIRS = 1 << 14


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """n pairs of sentences."""

    first: np.ndarray
    """int32 (n,): rows of the first pile; where the piles are one, of the earlier sentence."""
    second: np.ndarray
    """int32 (n,): rows of the second pile."""
    source: np.ndarray
    """uint8 (n,): position in `SOURCES` of what found the pair, the first where several did."""
    score: np.ndarray
    """float32 (n,): cosine of the start's embeddings, -1 to 1."""

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: np.ndarray) -> "Candidates":
        """Some of the pairs, by number or mask."""
        return Candidates(**{name: values[rows] for name, values in vars(self).items()})


def at_ranks(anchors: np.ndarray, found: np.ndarray, *, are_one: bool) -> np.ndarray:
    """Pairs of each anchor with those found for it that are at `RANKS`.

    Args:
        anchors: int (n,), rows of the first pile.
        found: int (n, k), rows of the second pile, the best first; -1: none.
        are_one: Whether the piles are one: a sentence then finds itself first.

    Returns:
        int32 (m, 2).
    """
    places = RANKS - (0 if are_one else 1)
    others = found[:, places[places < found.shape[1]]]
    pairs = np.stack([np.broadcast_to(anchors[:, None], others.shape), others], axis=2).reshape(-1, 2)
    rows: np.ndarray = pairs[pairs[:, 1] >= 0].astype(np.int32)
    return rows


def together(piles: Piles, **found: np.ndarray) -> Candidates:
    """What all sources found, each pair once and no sentence with itself, scored; in the order of their rows.

    Args:
        piles: Where the sentences lie.
        found: Of each of `SOURCES` pairs of rows, int32 (n, 2).
    """
    sources = np.repeat(np.arange(len(SOURCES), dtype=np.uint8), [len(found[source]) for source in SOURCES])
    pairs = np.concatenate([found[source] for source in SOURCES])
    if piles.are_one:
        pairs = np.sort(pairs, axis=1)
    _, rows = np.unique(pairs[:, 0].astype(np.int64) * len(piles.second) + pairs[:, 1], return_index=True)
    if piles.are_one:
        rows = rows[pairs[rows, 0] != pairs[rows, 1]]
    one, other = pairs[rows, 0], pairs[rows, 1]
    return Candidates(first=one, second=other, source=sources[rows], score=_cosines(one, other, piles))


def _cosines(one: np.ndarray, other: np.ndarray, piles: Piles) -> np.ndarray:
    cosines = np.empty(len(one), np.float32)
    with progress.task("score candidates", len(one)) as advance:
        for start in range(0, len(one), _BLOCK_PAIRS):
            rows = slice(start, start + _BLOCK_PAIRS)
            sides = piles.first.embeddings[one[rows]], piles.second.embeddings[other[rows]]
            cosines[rows] = np.clip(np.einsum("ij,ij->i", *sides), -1.0, 1.0)
            advance(len(sides[0]))
    return cosines
