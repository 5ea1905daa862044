"""Clusters of near-duplicate sentences: each member scores at least a threshold with the cluster's centre.

Cost: the 50 nearest neighbours of every sentence are looked up once. Up to 100,000 sentences the search is exact (n x n
products: some minutes on two cores at that size); beyond that, it uses an inverted file. Under torchrun, each rank
embeds and looks up its share. Memory holds the embeddings; neighbours stay on disk, 800 bytes per sentence.

The clusters are those of sentence-transformers' `community_detection`, which compares all sentences with each other and
keeps every community in memory. Sentences are visited by their number of neighbours, most first, and each takes all
free neighbours that score at or above the threshold. So each member is close to the cluster's centre. Connected
components, which join chains of neighbours, put 31 questions of QQP into one cluster whose two furthest members score
-0.04.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from scipy.ndimage import uniform_filter1d
from scipy.signal import find_peaks

from transencoder import distributed, progress
from transencoder.errors import InputError
from transencoder.pairs import find_duplicates as find_equal
from transencoder.pairs import read_sentences
from transencoder.search.build import embed_documents
from transencoder.search.embedder import Embedder
from transencoder.search.vectors import make_vectors
from transencoder.shards import Arrays, Parts

N_NEIGHBOURS = 50
"""Neighbours looked up per sentence. A cluster has at most one more distinct text, and any number of copies of each."""

_BLOCK = 1 << 10
_SHARD_ROWS = 1 << 14
"""Maximum number of sentences in a shard whose neighbours a rank looks up at a time."""
_SURE_PEAK = 0.9
"""Least score of an upper peak that gives a threshold. Copies score near 1; a lower peak comes from another kind of
text, and says nothing of copies."""
_BINS = 256
_MOST_SMOOTHINGS = 10_000
_SAME = 0.9999
"""Threshold that only equal embeddings reach, whatever the rounding."""


@dataclass(frozen=True)
class Threshold:
    """Lowest score that a cluster's member may have with the centre."""

    score: float
    peaks: tuple[float, float] | None = None
    """The two peaks of the histogram around it. None: it was given, or only equal embeddings are clustered."""
    is_given: bool = False
    """Whether the caller gave it."""


@dataclass(frozen=True)
class Duplicates:
    """Clusters of near-duplicates, and the threshold that they were found with."""

    clusters: list[list[tuple[int, float]]]
    """Clusters, largest first: lists of (row of the sentence, score with the centre), each with its centre first."""
    threshold: Threshold
    nearest: np.ndarray
    """Score of each distinct sentence with its nearest neighbour, float32 (n,)."""

    def repeated(self) -> Iterator[int]:
        """Yield the rows that can be dropped: each is a near-duplicate of its cluster's centre."""
        return (row for cluster in self.clusters for row, _ in cluster[1:])


def find_duplicates(sentences: Any, embedder: Embedder, threshold: float | None = None) -> Duplicates:
    """Find clusters of near-duplicate sentences.

    Args:
        sentences: n sentences in `text`. Or a list and whatever else `read_sentences` takes.
        embedder: The bi-encoder; it embeds the sentences as documents.
        threshold: The least score with a cluster's centre, in (0, 1]. None: the lowest point between the two peaks in
            the histogram of the nearest neighbours' scores (`find_threshold`) if the upper peak is at 0.9 or above;
            otherwise only equal embeddings are clustered.

    Raises:
        InputError: There are no sentences, or the threshold is out of range.
    """
    if threshold is not None and not 0.0 < threshold <= 1.0:
        raise InputError(f"threshold is {threshold}; give a number above 0 and at most 1")
    sentences = sentences if isinstance(sentences, Dataset) else read_sentences(sentences)
    if not len(sentences):
        raise InputError("there are no sentences; give at least one")
    firsts, copies = _equal_texts(sentences)
    with distributed.shared_folder() as folder:
        embeddings = embed_documents(sentences.select(firsts), embedder, folder)
        scores, rows = _neighbours(embeddings, folder)
        nearest = np.array(scores[:, 0]) if scores.shape[1] else np.zeros(len(firsts), np.float32)
        chosen = find_threshold(nearest) if threshold is None else Threshold(threshold, is_given=True)
        if chosen is None or (chosen.peaks and chosen.peaks[1] < _SURE_PEAK):
            chosen = Threshold(_SAME)
        stars = _stars(scores, rows, min(chosen.score, _SAME))
    return Duplicates(_with_copies(stars, firsts, copies), chosen, nearest)


def find_threshold(scores: np.ndarray) -> Threshold | None:
    """Smooth the histogram of scores until it has two peaks, and take the lowest point between them.

    Source: Prewitt and Mendelsohn (1966), "The analysis of cell images". As in scikit-image's `threshold_minimum`, the
    histogram has 256 bins and is smoothed with a running mean over three.

    Args:
        scores: Any numbers, shape (n,).

    Returns:
        The threshold, or None if smoothing does not leave two peaks.
    """
    heights, edges = np.histogram(scores, _BINS)
    centres, smooth = (edges[:-1] + edges[1:]) / 2, heights.astype(np.float64)
    for _ in range(_MOST_SMOOTHINGS):
        peaks = find_peaks(np.pad(smooth, 1))[0] - 1
        if len(peaks) <= 2:
            break
        smooth = uniform_filter1d(smooth, 3)
    if len(peaks) != 2:
        return None
    low, high = peaks
    lowest = low + int(np.argmin(smooth[low : high + 1]))
    return Threshold(float(centres[lowest]), (float(centres[low]), float(centres[high])))


def _equal_texts(sentences: Dataset) -> tuple[np.ndarray, dict[int, list[int]]]:
    """Return the first row of each distinct text, and a dict from that row to the rows of its copies, if any."""
    repeated, originals = find_equal(sentences, ["text"])
    copies: dict[int, list[int]] = {}
    for row, original in zip(repeated.tolist(), originals.tolist(), strict=True):
        copies.setdefault(original, []).append(row)
    return np.setdiff1d(np.arange(len(sentences)), repeated), copies


def _neighbours(embeddings: np.ndarray, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest neighbours of each embedding, without itself.

    Returns:
        Scores, in descending order, and rows, both (n, k) on disk, with k at most 50. A row is -1 where none was found.
    """
    vectors = make_vectors(embeddings, lists=folder / f"lists-{distributed.rank()}")
    n, k = len(embeddings), min(N_NEIGHBOURS, len(embeddings) - 1)

    def nearest(some: slice) -> Arrays:
        size = some.stop - some.start
        found: Arrays = {"scores": np.empty((size, k), np.float32), "rows": np.empty((size, k), np.int32)}
        for block in progress.blocks("compare sentences", size, _BLOCK):
            own = np.arange(some.start + block.start, some.start + block.stop)
            scores, rows = vectors.search(embeddings[own], k + 1)
            others = np.argsort(rows == own[:, None], axis=1, kind="stable")[:, :k]
            found["scores"][block] = np.take_along_axis(scores, others, 1)
            found["rows"][block] = np.take_along_axis(rows, others, 1)
        return found

    parts = Parts(folder=folder / "neighbours", n_rows=n, maker={}, shard_rows=_SHARD_ROWS)
    parts.make_all(nearest)
    joined = parts.join(parts.folder)
    return joined["scores"], joined["rows"]


def _stars(scores: np.ndarray, rows: np.ndarray, threshold: float) -> list[list[tuple[int, float]]]:
    """Cluster greedily: visit centres by number of neighbours, most first; each takes those that are still free."""
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
    """Return the clusters with row numbers of the whole data set, and copies of a text next to each other."""
    clusters, placed = [], set[int]()
    for star in stars:
        originals = [(int(firsts[row]), min(score, 1.0)) for row, score in star]
        clusters.append([(row, score) for first, score in originals for row in (first, *copies.get(first, ()))])
        placed.update(first for first, _ in originals)
    clusters += [[(row, 1.0) for row in (first, *rest)] for first, rest in copies.items() if first not in placed]
    return sorted(clusters, key=lambda cluster: (-len(cluster), cluster[0][0]))
