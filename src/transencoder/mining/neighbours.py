"""Candidates that are near each other in the start's space."""

import logging
import math
from typing import Any

import faiss
import numpy as np

from transencoder import progress
from transencoder.mining.candidates import RANKS, at_ranks
from transencoder.mining.piles import Pile, Piles

logger = logging.getLogger(__name__)

EXACT_UP_TO = 100_000
"""Sentences that are all compared; more are put into cells, of which some are searched."""

_BLOCK_ROWS = 1024
_CELLS_SEARCHED = 16
_TRAINING_ROWS_A_CELL = 64


def neighbours(piles: Piles, anchors: np.ndarray) -> np.ndarray:
    """Pairs of each anchor with its 1st, 2nd, 4th, ... 128th neighbour by cosine.

    Costs: up to 100,000 sentences all are compared, 2 dim floating-point operations each, and a copy of the embeddings
    is in memory. Beyond, 2 sqrt(n) cells are made by k-means, 16 of them are searched, and the memory is 1 byte for
    each number of an embedding.

    Args:
        piles: The anchors are in the first, the second is searched.
        anchors: int (n,), rows of the first.

    Returns:
        int32 (m, 2): rows of both.
    """
    index = _index(piles.second.embeddings)
    n_found = min(int(RANKS[-1]) + 1, len(piles.second))
    pairs = []
    with progress.task("find neighbours", len(anchors)) as advance:
        for start in range(0, len(anchors), _BLOCK_ROWS):
            rows = anchors[start : start + _BLOCK_ROWS]
            _, found = index.search(piles.first.embeddings[rows], n_found)
            pairs.append(at_ranks(rows, found, are_one=piles.are_one))
            advance(len(rows))
    return np.concatenate(pairs)


def is_exact(pile: Pile) -> bool:
    """Whether all sentences of a pile are compared."""
    return len(pile) <= EXACT_UP_TO


def _index(embeddings: np.ndarray) -> Any:
    n_rows, width = embeddings.shape
    index: Any = faiss.IndexFlatIP(width)
    if n_rows > EXACT_UP_TO:
        n_cells = 2 * math.isqrt(n_rows)
        index = faiss.IndexIVFScalarQuantizer(
            index, width, n_cells, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
        )
        index.nprobe = _CELLS_SEARCHED
        logger.info("%d sentences: neighbours are searched in %d of %d cells", n_rows, _CELLS_SEARCHED, n_cells)
        step = max(1, n_rows // (_TRAINING_ROWS_A_CELL * n_cells))
        index.train(np.ascontiguousarray(embeddings[::step]))
    with progress.task("index neighbours", n_rows) as advance:
        for start in range(0, n_rows, _BLOCK_ROWS):
            block = embeddings[start : start + _BLOCK_ROWS]
            index.add(block)
            advance(len(block))
    return index
