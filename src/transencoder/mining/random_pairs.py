"""Candidates that nothing brought together: most are strangers."""

import numpy as np

from transencoder.mining.candidates import RANKS
from transencoder.mining.piles import Piles


def random_pairs(piles: Piles, anchors: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Pairs of each anchor with 8 others, as many as the other sources give at most.

    Args:
        piles: The anchors are in the first, the others in the second.
        anchors: int (n,), rows of the first.
        random: Draws them.

    Returns:
        int32 (8 n, 2).
    """
    others = random.integers(len(piles.second), size=len(anchors) * len(RANKS), dtype=np.int32)
    return np.stack([np.repeat(anchors, len(RANKS)).astype(np.int32), others], axis=1)
