"""Candidate pairs: three sources, removal of near duplicates, and a choice that spreads the scores evenly.

The sources are nearest neighbours in the base model's embedding space, texts that share rare words, and random pairs.
Each is a function that takes the corpora and the anchors, which are rows of the first corpus, int (n,), and returns
pairs of rows of both corpora, int32 (m, 2).
"""

import logging
import math
import os
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from datasets import Dataset
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cpdist
from scipy.sparse import csc_matrix, csr_matrix

from transencoder import distributed, progress
from transencoder.mining.corpus import Corpora, plain_words, terms
from transencoder.shards import Arrays, Parts, Shard

logger = logging.getLogger(__name__)

RANKS = 2 ** np.arange(8)
"""Ranks of a sentence's search results that become candidates: the 1st, 2nd, 4th, ... 128th, so that few comparisons
range from its paraphrases to texts that only share its subject."""

EXACT_UP_TO = 100_000
"""Largest number of sentences that are searched exhaustively; more are put into cells, of which some are searched."""

_SHARD_ROWS = 1 << 18
_BLOCK_ANCHORS = 1 << 13
"""Number of anchors whose neighbours in a shard are stored as one part, of 8 MB."""
_CELLS_SEARCHED = 16
_TRAINING_ROWS_A_CELL = 64
_BLOCK_ROWS = 1024
_BLOCK_QUERIES = 32
_FREQUENT, _FREQUENT_SHARE = 1000, 0.01

SOURCES = ("neighbours", "bm25", "random")
N_STRATA = 20

_BEYOND = 0.001
"""Share of the candidates at either end of the scores that get no strata of their own, because they are too few."""
_LEAST_SIMILARITY = 0.98
_BLOCK_PAIRS = 4096


def neighbours(corpora: Corpora, anchors: np.ndarray, folder: Path) -> np.ndarray:
    """Pair each anchor with its 1st, 2nd, 4th, ... 128th neighbour by cosine; several ranks share the search.

    The second corpus is searched in shards of at most 262,144 sentences, and the best results of all shards are kept.
    Cost: in a shard of up to 100,000 sentences all are compared, with 2 dim floating-point operations each, and each
    rank holds a copy of the embeddings in memory. In a larger shard k-means makes 2 sqrt(n) cells, 16 of them are
    searched, and the memory is 1 byte for each number of an embedding. The disk takes 1 kB for each anchor and shard.

    Args:
        corpora: Corpora of the first and the second sentences.
        anchors: Rows of the first corpus.
        folder: Folder for the results, which serves these corpora and anchors only; all processes see it.
    """
    n_rows = len(corpora.second)
    n_shards = -(-n_rows // _SHARD_ROWS)
    blocks = [anchors[start : start + _BLOCK_ANCHORS] for start in range(0, len(anchors), _BLOCK_ANCHORS)]
    n_found = min(int(RANKS[-1]) + 1, n_rows)
    index_of = lru_cache(1)(lambda rows: _index(corpora.second.embeddings[rows[0] : rows[1]]))

    def nearest(number: slice) -> Arrays:
        n_th, block = divmod(number.start, len(blocks))
        rows = Shard(n_th + 1, n_shards).rows(n_rows)
        scores, found = _searched(index_of((rows.start, rows.stop)), corpora, blocks[block], n_found)
        return {"scores": scores[None], "rows": np.where(found < 0, -1, found + rows.start).astype(np.int32)[None]}

    parts = Parts(folder=folder, n_rows=n_shards * len(blocks), maker={}, shard_rows=1)
    parts.make_all(nearest)
    pairs = []
    for n_th, block in enumerate(blocks):
        numbers = (Shard(shard * len(blocks) + n_th + 1, parts.n_rows) for shard in range(n_shards))
        found = [parts.read(number)[0] for number in numbers]
        scores, rows = (np.concatenate([each[name][0] for each in found], axis=1) for name in ("scores", "rows"))
        best = np.argsort(-scores, axis=1, kind="stable")[:, :n_found]
        pairs.append(at_ranks(block, np.take_along_axis(rows, best, 1), are_one=corpora.are_one))
    return np.concatenate(pairs)


def bm25(corpora: Corpora, anchors: np.ndarray) -> np.ndarray:
    """Pair each anchor with its results at ranks 1, 2, 4, ... 128 by BM25; several ranks share the search.

    BM25 has Lucene's form with k1 1.5 and b 0.75. In any language, terms that occur more than 1,000 times and more
    often than once in 100 sentences are left out: they say little and cost the most. So the cost of an anchor is at
    most its number of terms times a hundredth of the sentences. Memory: about 50 bytes per term while the index is
    built, 12 afterwards.
    """
    vocabulary: dict[str, int] = {}
    counted = _counted(corpora.second.texts, lambda term: vocabulary.setdefault(term, len(vocabulary)))
    counted = _without_frequent(counted)
    anchors = anchors[distributed.own_rows(len(anchors))]
    if corpora.are_one:
        queries = counted[anchors]
    else:
        queries = _counted(corpora.first.texts.select(anchors), lambda term: vocabulary.get(term, -1), len(vocabulary))
    weights = _weights(counted)
    pairs = [np.empty((0, 2), np.int32)]
    for block in progress.blocks("search words", len(anchors), _BLOCK_QUERIES):
        found = _best(queries[block] @ weights)
        pairs.append(at_ranks(anchors[block], found, are_one=corpora.are_one))
    return distributed.concatenate(np.concatenate(pairs))


def random_pairs(corpora: Corpora, anchors: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Pair each anchor with 8 random sentences, as many as each of the other sources gives at most."""
    others = random.integers(len(corpora.second), size=len(anchors) * len(RANKS), dtype=np.int32)
    return np.stack([np.repeat(anchors, len(RANKS)).astype(np.int32), others], axis=1)


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """n candidate pairs of sentences."""

    first: np.ndarray
    """Rows of the first corpus, int32 (n,); if both corpora are the same, rows of the earlier sentence."""
    second: np.ndarray
    """Rows of the second corpus, int32 (n,)."""
    source: np.ndarray
    """Position in `SOURCES` of the source that found the pair, the first if several did: uint8 (n,)."""
    score: np.ndarray
    """Cosine of the base model's embeddings, float32 (n,), -1 to 1."""

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: np.ndarray) -> "Candidates":
        """Select some of the pairs, by number or mask."""
        return Candidates(**{name: values[rows] for name, values in vars(self).items()})


def score_candidates(corpora: Corpora, **found: np.ndarray) -> Candidates:
    """Score the pairs of all sources, each pair once and no sentence with itself, in order of rows.

    `found` has the pairs of rows of each of `SOURCES`, int32 (n, 2).
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
    """Remove near duplicates: sentences whose plain words differ in at most 2 characters in 100 (Levenshtein).

    The later sentence is removed, with all its pairs; if the corpora differ, only the pair is removed. The rule does
    not use the base model, whose cosines may all be near 1. It is strict: a sentence and its negation remain, or the
    same sentence with another subject, since such pairs are useful for training. It costs one comparison for each
    candidate whose texts have about the same length. Two sentences that no source paired are not compared, and cannot
    become a pair.

    Returns:
        The remaining candidates, and the number of sentences, or pairs, that were removed.
    """
    is_near = _are_near(found, corpora)
    if not corpora.are_one:
        return found.take(~is_near), int(is_near.sum())
    is_out = np.zeros(len(corpora.first), np.bool_)
    is_out[found.second[is_near]] = True
    return found.take(~is_out[found.first] & ~is_out[found.second]), int(is_out.sum())


@dataclass(frozen=True)
class Strata:
    """Range of the scores, cut into strata."""

    edges: np.ndarray
    """Edges of the strata, float (N_STRATA + 1,)."""
    numbers: np.ndarray
    """Stratum of each candidate, int (n,)."""

    def counts(self, rows: np.ndarray | slice = slice(None)) -> list[int]:
        """Count the candidates of `rows` in each stratum."""
        found: list[int] = np.bincount(self.numbers[rows], minlength=N_STRATA).tolist()
        return found


def spread(
    found: Candidates, corpora: Corpora, n_pairs: int, max_per_sentence: int, random: np.random.Generator
) -> tuple[np.ndarray, Strata]:
    """Draw pairs evenly from 20 strata of the base model's scores.

    The smallest stratum draws first, then the others, each its share of the pairs that are still wanted: if one has too
    few, the others give more. Within a stratum pairs are drawn at random. No sentence is in more than
    `max_per_sentence` pairs.

    Returns:
        Rows of the chosen candidates, int (at most n_pairs,), in random order; and the strata.
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


def at_ranks(anchors: np.ndarray, found: np.ndarray, *, are_one: bool) -> np.ndarray:
    """Pair each anchor with its search results at `RANKS`.

    Args:
        anchors: int (n,), rows of the first corpus.
        found: int (n, k), rows of the second corpus, the best first; -1: no result.
        are_one: Whether both corpora are the same; a sentence then finds itself first.
    """
    places = RANKS - (0 if are_one else 1)
    others = found[:, places[places < found.shape[1]]]
    pairs = np.stack([np.broadcast_to(anchors[:, None], others.shape), others], axis=2).reshape(-1, 2)
    rows: np.ndarray = pairs[pairs[:, 1] >= 0].astype(np.int32)
    return rows


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
    for block in progress.blocks("index neighbours", n_rows, _BLOCK_ROWS):
        index.add(embeddings[block])
    return index


def _searched(index: Any, corpora: Corpora, anchors: np.ndarray, n_found: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores, float32, and the rows in the index, int64, of each anchor's neighbours: (anchors, n_found)."""
    scores = np.empty((len(anchors), n_found), np.float32)
    rows = np.empty((len(anchors), n_found), np.int64)
    for block in progress.blocks("find neighbours", len(anchors), _BLOCK_ROWS):
        scores[block], rows[block] = index.search(corpora.first.embeddings[anchors[block]], n_found)
    return scores, rows


def _counted(texts: Dataset, number: Callable[[str], int], n_terms: int | None = None) -> csr_matrix:
    """Count the terms of each text, (texts, terms)."""
    flat, ends = array("i"), array("q", [0])
    for block in progress.blocks("read words", len(texts), _BLOCK_ROWS):
        for text in texts[block]["text"]:
            flat.extend(found for found in map(number, terms(text)) if found >= 0)
            ends.append(len(flat))
    numbers = np.frombuffer(flat, np.int32)
    width = n_terms or int(numbers.max(initial=-1)) + 1
    return csr_matrix((np.ones(len(flat), np.float32), numbers, np.frombuffer(ends, np.int64)), (len(texts), width))


def _without_frequent(counted: csr_matrix) -> csr_matrix:
    n_times = np.bincount(counted.indices, minlength=counted.shape[1])
    is_kept = (n_times <= max(_FREQUENT, _FREQUENT_SHARE * counted.shape[0]))[counted.indices]
    ends = np.append(0, np.cumsum(is_kept))[counted.indptr]
    return csr_matrix((counted.data[is_kept], counted.indices[is_kept], ends), counted.shape)


def _weights(counted: csr_matrix) -> csr_matrix:
    """Compute what each term of each text adds to the text's score, (terms, texts)."""
    # Importing bm25s starts JAX, if installed, which takes three quarters of a GPU's memory unless told not to.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    from bm25s import BM25

    made = BM25().build_index_from_ids(range(counted.shape[1]), _Rows(counted), show_progress=False)
    return csc_matrix((made["data"], made["indices"], made["indptr"]), counted.shape).T


class _Rows:
    """Terms of each text in the form that bm25s takes: lists of numbers, of which one at a time is in memory."""

    def __init__(self, counted: csr_matrix) -> None:
        self._counted = counted

    def __len__(self) -> int:
        return int(self._counted.shape[0])

    def __iter__(self) -> Iterator[list[int]]:
        ends = self._counted.indptr.tolist()
        for start, end in zip(ends, ends[1:], strict=False):
            yield self._counted.indices[start:end].tolist()


def _best(scores: csr_matrix) -> np.ndarray:
    """Return the texts with the best scores above 0, int64 (queries, k), best first, ties in order, padded with -1."""
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
    """Cut strata of equal width between a low and a high quantile; the outermost extend to the extreme scores."""
    low, high = (float(np.quantile(scores, share)) for share in (_BEYOND, 1 - _BEYOND))
    edges = np.linspace(low, high, N_STRATA + 1)
    numbers = np.searchsorted(edges[1:-1], scores, side="right")
    edges[0], edges[-1] = scores.min(), scores.max()
    return Strata(edges, numbers)


def _room(found: Candidates, corpora: Corpora, max_per_sentence: int) -> Callable[[int], bool]:
    """Return a function that checks whether both sentences of a candidate may be in one more pair, and counts it."""
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
