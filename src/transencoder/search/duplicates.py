"""Near-duplicate sentences: clusters of those that score at least a threshold with one of them.

Cost: every sentence's 50 nearest are looked up once, exactly up to 100,000 sentences (n x n products: some minutes of
two cores at that size), in an inverted file beyond. Memory holds the embeddings; neighbours stay on disk, 400 bytes a
sentence.

The clusters are those of sentence-transformers' `community_detection`, which compares all with all and keeps every
community in memory: most neighbours first, a sentence takes all free neighbours at or above the threshold. Each member
is so close to the cluster's centre. Joined by chains instead (connected components), 31 questions of QQP were one
cluster whose furthest two score -0.04.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import Dataset

from transencoder import progress
from transencoder.errors import InputError
from transencoder.pairs import find_duplicates as find_equal
from transencoder.search.build import embed_documents
from transencoder.search.embedding import Embedder
from transencoder.search.valley import Valley, find_valley
from transencoder.search.vectors import Vectors, make_vectors
from transencoder.tokens import allocate

N_NEIGHBOURS = 50
"""A cluster has at most one more; beside them any number of sentences of the same text."""

_BLOCK = 1 << 10
_SURE_MODE = 0.9
"""Copies score near 1. An upper mode below this is of another kind of text, not of copies: it says nothing of them."""
_SAME = 0.9999
"""Takes equal embeddings alone, whatever the rounding."""


@dataclass(frozen=True)
class Duplicates:
    """Clusters of near-duplicates, and how the threshold came about."""

    clusters: list[list[tuple[int, float]]]
    """Each with its centre first, the largest cluster first: row of the sentence and score with the centre."""
    threshold: float
    """The least score of a member with its centre."""
    valley: Valley | None
    """Where the threshold is from; None: it was given, or there is none and only equal embeddings are clustered."""
    is_given: bool
    """Whether the threshold was the caller's."""
    nearest: np.ndarray
    """Score of each distinct sentence with its nearest, float32 (n,)."""

    def repeated(self) -> Iterator[int]:
        """Rows that could go, each being a near-duplicate of its cluster's centre."""
        return (row for cluster in self.clusters for row, _ in cluster[1:])


def find_duplicates(sentences: Dataset, embedder: Embedder, threshold: float | None = None) -> Duplicates:
    """Cluster sentences that say the same.

    Args:
        sentences: n sentences in `text`.
        embedder: The bi-encoder; sentences are read as documents.
        threshold: The least score with a cluster's centre, in (0, 1]. None: the valley between the two modes of the
            nearest neighbours' scores (`find_valley`), if the upper one is at 0.9 or above.

    Raises:
        InputError: The threshold is out of range.
    """
    if threshold is not None and not 0.0 < threshold <= 1.0:
        raise InputError(f"threshold is {threshold}; give a number above 0 and at most 1")
    firsts, copies = _equal_texts(sentences)
    with tempfile.TemporaryDirectory(prefix="transencoder-") as name:
        distinct = sentences.select(firsts)
        embeddings = embed_documents(distinct, embedder, Path(name) / "draft", "")
        scores, rows = _neighbours(make_vectors(embeddings), embeddings, Path(name))
        nearest = np.array(scores[:, 0]) if scores.shape[1] else np.zeros(len(firsts), np.float32)
        valley = find_valley(nearest) if threshold is None else None
        if valley is not None and valley.high_mode < _SURE_MODE:
            valley = None
        chosen = threshold or (valley.bottom if valley else _SAME)
        stars = _stars(scores, rows, min(chosen, _SAME))
    return Duplicates(_with_copies(stars, firsts, copies), chosen, valley, threshold is not None, nearest)


def _equal_texts(sentences: Dataset) -> tuple[np.ndarray, dict[int, list[int]]]:
    """First row of each distinct text, and of those that have copies the rows of these."""
    repeated, originals = find_equal(sentences, ["text"])
    copies: dict[int, list[int]] = {}
    for row, original in zip(repeated.tolist(), originals.tolist(), strict=True):
        copies.setdefault(original, []).append(row)
    return np.setdiff1d(np.arange(len(sentences)), repeated), copies


def _neighbours(vectors: Vectors, embeddings: np.ndarray, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Scores and rows of each embedding's nearest but itself, on disk: (n, up to 50), falling; row -1 for none."""
    n, k = len(embeddings), min(N_NEIGHBOURS, len(embeddings) - 1)
    scores = allocate(folder / "scores.npy", np.float32, (n, k))
    rows = allocate(folder / "rows.npy", np.int32, (n, k))
    with progress.task("compare sentences", n) as advance:
        for start in range(0, n, _BLOCK):
            found_scores, found = vectors.search(embeddings[start : start + _BLOCK], k + 1)
            own = np.arange(start, start + len(found))[:, None]
            others = np.argsort(found == own, axis=1, kind="stable")[:, :k]
            scores[start : start + len(found)] = np.take_along_axis(found_scores, others, 1)
            rows[start : start + len(found)] = np.take_along_axis(found, others, 1)
            advance(len(found))
    return scores, rows


def _stars(scores: np.ndarray, rows: np.ndarray, threshold: float) -> list[list[tuple[int, float]]]:
    """Greedy clusters: in the order of their numbers of neighbours, centres take the neighbours that are still free."""
    counts = np.zeros(len(scores), np.int32)
    for start in range(0, len(scores), _BLOCK):
        block = slice(start, start + _BLOCK)
        counts[block] = ((scores[block] >= threshold) & (rows[block] >= 0)).sum(axis=1)
    is_free = np.ones(len(scores), np.bool_)
    clusters = []
    for centre in np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist():
        near = rows[centre, : counts[centre]]
        members = np.flatnonzero(is_free[near])
        if is_free[centre] and len(members):
            is_free[near[members]] = is_free[centre] = False
            with_scores = zip(near[members].tolist(), scores[centre, members].tolist(), strict=True)
            clusters.append([(centre, 1.0), *with_scores])
    return clusters


def _with_copies(
    stars: list[list[tuple[int, float]]], firsts: np.ndarray, copies: dict[int, list[int]]
) -> list[list[tuple[int, float]]]:
    """The clusters in rows of the whole file, equal texts beside each other."""
    clusters, placed = [], set[int]()
    for star in stars:
        originals = [(int(firsts[row]), min(score, 1.0)) for row, score in star]
        clusters.append([(row, score) for first, score in originals for row in (first, *copies.get(first, ()))])
        placed.update(first for first, _ in originals)
    clusters += [[(row, 1.0) for row in (first, *rest)] for first, rest in copies.items() if first not in placed]
    return sorted(clusters, key=lambda cluster: (-len(cluster), cluster[0][0]))
