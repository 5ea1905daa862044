"""Candidates that share rare words."""

from array import array
from collections.abc import Callable, Iterator

import numpy as np
from bm25s import BM25
from datasets import Dataset
from scipy.sparse import csc_matrix, csr_matrix

from transencoder import progress
from transencoder.mining.candidates import RANKS, at_ranks
from transencoder.mining.piles import Piles
from transencoder.mining.words import terms

_BLOCK_ROWS = 4096
_BLOCK_QUERIES = 32
_FREQUENT, _FREQUENT_SHARE = 1000, 0.01


def bm25(piles: Piles, anchors: np.ndarray) -> np.ndarray:
    """Pairs of each anchor with its 1st, 2nd, 4th, ... 128th by BM25 (Lucene's form, k1 1.5, b 0.75).

    Terms that occur more than 1,000 times and more often than once in 100 sentences are left out, whatever the
    language: they say little and cost the most. So an anchor costs at most its terms times a hundredth of the
    sentences. Memory: about 50 bytes a term while the index is made, 12 afterwards.

    Args:
        piles: The anchors are in the first, the second is searched.
        anchors: int (n,), rows of the first.

    Returns:
        int32 (m, 2): rows of both.
    """
    vocabulary: dict[str, int] = {}
    counted = _without_frequent(_counted(piles.second.texts, lambda term: vocabulary.setdefault(term, len(vocabulary))))
    if piles.are_one:
        queries = counted[anchors]
    else:
        queries = _counted(piles.first.texts.select(anchors), lambda term: vocabulary.get(term, -1), len(vocabulary))
    weights = _weights(counted)
    pairs = []
    with progress.task("search words", len(anchors)) as advance:
        for start in range(0, len(anchors), _BLOCK_QUERIES):
            rows = anchors[start : start + _BLOCK_QUERIES]
            found = _best(queries[start : start + _BLOCK_QUERIES] @ weights)
            pairs.append(at_ranks(rows, found, are_one=piles.are_one))
            advance(len(rows))
    return np.concatenate(pairs)


def _counted(texts: Dataset, number: Callable[[str], int], n_terms: int | None = None) -> csr_matrix:
    """Which terms each text has, (texts, terms): 1 for each time."""
    flat, ends = array("i"), array("q", [0])
    with progress.task("read words", len(texts)) as advance:
        for start in range(0, len(texts), _BLOCK_ROWS):
            block = texts[start : start + _BLOCK_ROWS]["text"]
            for text in block:
                flat.extend(found for found in map(number, terms(text)) if found >= 0)
                ends.append(len(flat))
            advance(len(block))
    numbers = np.frombuffer(flat, np.int32)
    width = n_terms or int(numbers.max(initial=-1)) + 1
    return csr_matrix((np.ones(len(flat), np.float32), numbers, np.frombuffer(ends, np.int64)), (len(texts), width))


def _without_frequent(counted: csr_matrix) -> csr_matrix:
    n_times = np.bincount(counted.indices, minlength=counted.shape[1])
    is_kept = (n_times <= max(_FREQUENT, _FREQUENT_SHARE * counted.shape[0]))[counted.indices]
    ends = np.append(0, np.cumsum(is_kept))[counted.indptr]
    return csr_matrix((counted.data[is_kept], counted.indices[is_kept], ends), counted.shape)


def _weights(counted: csr_matrix) -> csr_matrix:
    """What each term of each text adds to the text's score, (terms, texts)."""
    made = BM25().build_index_from_ids(range(counted.shape[1]), _Rows(counted), show_progress=False)
    return csc_matrix((made["data"], made["indices"], made["indptr"]), counted.shape).T


class _Rows:
    """The terms of each text as bm25s takes them: lists of numbers, of which one at a time is in memory."""

    def __init__(self, counted: csr_matrix) -> None:
        self._counted = counted

    def __len__(self) -> int:
        return int(self._counted.shape[0])

    def __iter__(self) -> Iterator[list[int]]:
        ends = self._counted.indptr.tolist()
        for start, end in zip(ends, ends[1:], strict=False):
            yield self._counted.indices[start:end].tolist()


def _best(scores: csr_matrix) -> np.ndarray:
    """int64 (queries, k): the texts with the highest scores above 0, the best first, the earlier of equals; then -1."""
    n_found = min(int(RANKS[-1]) + 1, scores.shape[1])
    best = np.full((scores.shape[0], n_found), -1)
    for row, (start, end) in enumerate(zip(scores.indptr, scores.indptr[1:], strict=False)):
        texts, values = scores.indices[start:end], scores.data[start:end]
        if len(values) > n_found:
            top = np.argpartition(-values, n_found - 1)[:n_found]
            texts, values = texts[top], values[top]
        order = np.lexsort((texts, -values))
        best[row, : len(order)] = texts[order]
    return best
