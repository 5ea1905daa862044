"""Unit embeddings in a faiss index, stored in float32, in one byte per number, or in one bit per number.

Scores are cosines. Up to 100,000 embeddings, each query is compared with all of them. Beyond that, it is compared with
those of the nearest clusters (an inverted file, whose lists stay on disk). As many clusters are searched as it takes to
find 99 % of the true neighbours of a sample. Binary embeddings are small enough to always compare all of them: they are
ranked by Hamming distance, then the best 10 x `top_k` by the cosine of the query's numbers and the document's signs
(rescoring).
"""

import itertools
import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import faiss
import numpy as np
from sentence_transformers.util import quantize_embeddings

from transencoder import progress
from transencoder.errors import reason_of
from transencoder.runs.files import DamagedError
from transencoder.search.lists import attach_lists, detach_lists, write_lists

logger = logging.getLogger(__name__)

VectorPrecision = Literal["float32", "int8", "binary"]

EXACT_UP_TO = 100_000
"""Maximum number of embeddings searched exactly; a query then takes some 10 ms of one core, at 384 dimensions."""

_BLOCK = 1 << 14
_LISTS_A_ROOT = 4
"""Number of clusters, in square roots of the number of embeddings; faiss advises 4."""
_TRAINED_A_LIST = 40
"""Embeddings per cluster to train the clusters on; faiss asks for 39. They are what a build holds in memory."""
_RECALL = 0.99
_SAMPLED_QUERIES = 256
_NEIGHBOURS = 10
_TIE = 1e-6
_KINDS = {
    ("float32", False): b"IxFI",
    ("float32", True): b"IwFl",
    ("int8", False): b"IxSQ",
    ("int8", True): b"IwSq",
    ("binary", False): b"IBxF",
}
"""(precision, whether there are clusters) -> first bytes of faiss's file."""
_HEADERS = 1 << 10
"""Upper limit in bytes on the headers of a file: all but embeddings, ranges, rows and clusters. They take some 300."""
_RESCORED = 10
"""Number of candidates to rescore, in multiples of the number of results."""


@dataclass(frozen=True)
class Approximation:
    """Settings of the search in an inverted file, and its recall."""

    n_lists: int
    """Number of clusters."""
    n_probe: int
    """Number of clusters that are searched for a query."""
    recall_at_10: float
    """Share of the ten true nearest neighbours that are found, measured on a sample of the embeddings themselves."""


class Vectors:
    """A searchable index of n embeddings.

    Args:
        index: The faiss index.
        precision: Precision in which it stores embeddings.
        approximation: Settings of an inverted file; faiss's index holds the number of probed clusters itself.
        lists: File with the lists of an inverted file.
    """

    def __init__(
        self,
        index: Any,
        precision: VectorPrecision,
        approximation: Approximation | None = None,
        lists: Path | None = None,
    ) -> None:
        self.index = index
        self.precision = precision
        self.approximation = approximation
        self.lists = lists
        if precision == "binary":
            self._bits = faiss.vector_to_array(index.xb).reshape(index.ntotal, -1)

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def search(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Find the nearest embeddings of each query.

        Args:
            queries: Unit embeddings, float32 (q, dimensions).
            top_k: Number of embeddings to find per query; at most n are found.

        Returns:
            Cosines, float32 (q, k), in descending order, and rows, int64 (q, k). A row is -1 where an inverted file
            found no more.
        """
        top_k = min(top_k, len(self))
        if self.precision == "binary":
            return self._rescored(queries, top_k)
        scores, rows = self.index.search(np.ascontiguousarray(queries), top_k)
        bad = rows[(rows >= len(self)) | (rows < -1)]
        if len(bad):
            raise DamagedError(f"{self.lists} has row {bad[0]}, and there are {len(self)}")
        return np.clip(scores, -1.0, 1.0), rows

    def _rescored(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        n_bits = queries.shape[1]
        _, found = self.index.search(quantize_embeddings(queries, "ubinary"), min(_RESCORED * top_k, len(self)))
        scores, rows = np.empty((len(queries), top_k), np.float32), np.empty((len(queries), top_k), np.int64)
        for i, (query, candidates) in enumerate(zip(queries, found, strict=True)):  # all at once took gigabytes
            signs = 2.0 * np.unpackbits(self._bits[candidates], axis=-1, count=n_bits).astype(np.float32) - 1.0
            cosines = signs @ query / np.float32(math.sqrt(n_bits))
            best = np.argsort(-cosines, kind="stable")[:top_k]
            scores[i], rows[i] = cosines[best], candidates[best]
        return scores, rows

    def save(self, path: Path) -> None:
        """Write the faiss index; the lists of an inverted file stay where they are."""
        n = len(self)
        if self.lists is not None:
            detach_lists(self.index)
        (faiss.write_index_binary if self.precision == "binary" else faiss.write_index)(self.index, str(path))
        if self.lists is not None:
            attach_lists(self.index, self.lists, n)


def load_vectors(
    path: Path,
    precision: VectorPrecision,
    approximation: Approximation | None,
    *,
    n: int,
    dimensions: int,
    lists: Path | None = None,
) -> Vectors:
    """Read an index of n embeddings that `Vectors.save` wrote.

    faiss trusts what it reads, so files of another kind or size are refused first.

    Args:
        path: File of the faiss index.
        precision: Precision in which it stores embeddings.
        approximation: Settings of an inverted file; None: exact search.
        n: Number of embeddings.
        dimensions: Dimensions of an embedding.
        lists: File with the lists of an inverted file.

    Raises:
        DamagedError: The files do not hold such an index.
    """
    size, limit = path.stat().st_size, faiss.get_deserialization_vector_byte_limit()
    n_lists = approximation.n_lists if approximation else 0
    least = 4 * dimensions * n_lists if n_lists else n * _bytes_of(precision, dimensions)
    with path.open("rb") as file:
        kind = file.read(4)
    if kind != _KINDS[precision, n_lists > 0] or not 0 <= size - least <= _HEADERS + 8 * dimensions + 8 * n_lists:
        raise DamagedError(f"{path} does not hold {n} embeddings of {dimensions} numbers in {precision}")
    faiss.set_deserialization_vector_byte_limit(size)
    try:
        index = (faiss.read_index_binary if precision == "binary" else faiss.read_index)(str(path))
    except (RuntimeError, MemoryError) as error:
        raise DamagedError(f"{path} cannot be read ({reason_of(error)})") from error
    finally:
        faiss.set_deserialization_vector_byte_limit(limit)
    for what, found, wanted in _parts(index, precision, approximation, n, dimensions):
        if found != wanted:
            raise DamagedError(f"{path} has {what} {found} instead of {wanted}")
    if approximation is not None:
        assert lists is not None, "an inverted file has lists"
        attach_lists(index, lists, n)
    return Vectors(index, precision, approximation, lists)


def _bytes_of(precision: VectorPrecision, dimensions: int) -> int:
    return {"float32": 4 * dimensions, "int8": dimensions, "binary": math.ceil(dimensions / 8)}[precision]


def _parts(
    index: Any, precision: VectorPrecision, approximation: Approximation | None, n: int, dimensions: int
) -> Iterator[tuple[str, object, object]]:
    """Yield an index's properties: name, found value, expected value. Each check makes the next one safe to read."""
    n_bytes, is_binary = _bytes_of(precision, dimensions), precision == "binary"
    yield "embeddings", index.ntotal, 0 if approximation else n  # an inverted file has them in its lists
    yield "dimensions", index.d, 8 * n_bytes if is_binary else dimensions
    yield "bytes of an embedding", index.code_size, n_bytes
    yield "metric", is_binary or index.metric_type, is_binary or faiss.METRIC_INNER_PRODUCT
    if precision == "int8":
        ranges = index.sq.qtype, index.sq.trained.size()
        yield "type and number of ranges", ranges, (faiss.ScalarQuantizer.QT_8bit, 2 * dimensions)
    if approximation is None:
        yield "bytes", (index.xb if is_binary else index.codes).size(), n * n_bytes
        return
    centres: Any = faiss.downcast_index(index.quantizer)
    lists = faiss.downcast_InvertedLists(index.invlists)
    n_lists, kinds = approximation.n_lists, (faiss.IndexFlatIP, faiss.ArrayInvertedLists)
    yield "clusters of kind", (type(centres), type(lists)), kinds
    yield "clusters", (index.nlist, lists.nlist, centres.ntotal), (n_lists, n_lists, n_lists)
    yield "probed clusters", index.nprobe, approximation.n_probe
    yield "bytes", (lists.code_size, centres.codes.size()), (n_bytes, 4 * dimensions * n_lists)
    yield "embeddings in lists", sum(lists.list_size(number) for number in range(n_lists)), 0


def make_vectors(
    embeddings: np.ndarray, precision: VectorPrecision = "float32", *, lists: Path | None = None
) -> Vectors:
    """Build an index of embeddings. Beside it, memory holds a block of them, or a sample to train clusters on.

    Args:
        embeddings: Unit embeddings, float32 (n, dimensions), n at least 1; may be memory-mapped.
        precision: `int8` stores a number in one byte, in 255 steps between the minimum and the maximum of its
            dimension; `binary` stores its sign in one bit. Both follow sentence-transformers' `quantize_embeddings`.
        lists: File for the lists of an inverted file, which stay on disk; required beyond 100,000 embeddings.
    """
    n, width = embeddings.shape
    if precision == "binary":
        bits = faiss.IndexBinaryFlat(8 * math.ceil(width / 8))
        for block in _blocks(embeddings, "index embeddings"):
            bits.add(np.asarray(quantize_embeddings(block, "ubinary")))
        return Vectors(bits, precision)
    kind = {"float32": "Flat", "int8": "SQ8"}[precision]
    flat: Any = faiss.index_factory(width, kind, faiss.METRIC_INNER_PRODUCT)
    ranges = _ranges(embeddings) if precision == "int8" else None
    _tell(flat, ranges)
    if n <= EXACT_UP_TO:
        for codes in _codes(embeddings, ranges):
            flat.add_sa_codes(codes)
        return Vectors(flat, precision)
    assert lists is not None, "an inverted file needs one"
    n_lists = int(_LISTS_A_ROOT * math.sqrt(n))
    index: Any = faiss.index_factory(width, f"IVF{n_lists},{kind}", faiss.METRIC_INNER_PRODUCT)
    _find_clusters(index, embeddings, n_lists)
    _tell(index, ranges)
    nearest = (index.quantizer.search(block, 1)[1][:, 0] for block in _blocks(embeddings, "find clusters"))
    clusters = np.fromiter(itertools.chain.from_iterable(nearest), np.int32, n)
    sample = np.sort(np.random.default_rng(1).choice(n, _SAMPLED_QUERIES, replace=False))
    queries = np.ascontiguousarray(embeddings[sample])
    best = np.full((len(queries), _NEIGHBOURS + 1), -np.inf, np.float32)
    write_lists(lists, clusters, _compared(_codes(embeddings, ranges), flat, queries, best), n_lists, index.code_size)
    attach_lists(index, lists, n)
    return Vectors(index, precision, _tuned(index, queries, best[:, -1:]), lists)


def _blocks(embeddings: np.ndarray, description: str) -> Iterator[np.ndarray]:
    for block in progress.blocks(description, len(embeddings), _BLOCK):
        yield np.ascontiguousarray(embeddings[block])


def _ranges(embeddings: np.ndarray) -> np.ndarray:
    """Return the minimum and the maximum of each dimension, float32 (2, dimensions)."""
    low, high = embeddings[0].copy(), embeddings[0].copy()
    for block in _blocks(embeddings, "find ranges"):
        np.minimum(low, block.min(axis=0), out=low)
        np.maximum(high, block.max(axis=0), out=high)
    return np.stack([low, high])


def _tell(index: Any, ranges: np.ndarray | None) -> None:
    """Set the range of each dimension in an `int8` index; do nothing without ranges."""
    if ranges is not None:
        low, high = ranges
        faiss.copy_array_to_vector(np.concatenate([low, high - low]), index.sq.trained)
        index.is_trained = True


def _codes(embeddings: np.ndarray, ranges: np.ndarray | None) -> Iterator[np.ndarray]:
    """Yield the codes of all embeddings, uint8 (rows, bytes); without ranges, the bytes of the float32 numbers."""
    for block in _blocks(embeddings, "index embeddings"):
        is_own = ranges is None
        yield block.view(np.uint8) if is_own else np.asarray(quantize_embeddings(block, "uint8", ranges=ranges))


def _compared(blocks: Iterable[np.ndarray], flat: Any, queries: np.ndarray, best: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the blocks of codes unchanged, and keep the best scores of some queries in `best`, in descending order."""
    for codes in blocks:
        flat.add_sa_codes(codes)
        scores, _ = flat.search(queries, best.shape[1])
        flat.reset()
        best[:] = -np.sort(-np.concatenate([best, scores], axis=1), axis=1)[:, : best.shape[1]]
        yield codes


def _find_clusters(index: Any, embeddings: np.ndarray, n_lists: int) -> None:
    if isinstance(index, faiss.IndexIVFScalarQuantizer):
        index.by_residual = False  # codes are of the embeddings, not of their difference from the cluster's centre
    n_sampled = min(len(embeddings), _TRAINED_A_LIST * n_lists)
    rows = np.sort(np.random.default_rng(0).choice(len(embeddings), n_sampled, replace=False))
    logger.info("%d clusters are made of %d embeddings", n_lists, len(embeddings))
    index.train(np.ascontiguousarray(embeddings[rows]))


def _tuned(index: Any, queries: np.ndarray, furthest: np.ndarray) -> Approximation:
    """Increase the number of probed clusters by half until queries find their true neighbours, and return the settings.

    `furthest` is the score of each query's last true neighbour, (queries, 1).
    """
    n_probe, recall = 4, 0.0
    while recall < _RECALL and n_probe < index.nlist:
        index.nprobe = n_probe = min(n_probe + n_probe // 2, index.nlist)
        scores, _ = index.search(queries, _NEIGHBOURS + 1)
        recall = float((scores[:, 1:] >= furthest - _TIE).mean())  # the first is the embedding itself
    logger.info("%d of %d clusters are searched, which finds %.1f %% of neighbours", n_probe, index.nlist, 100 * recall)
    return Approximation(index.nlist, n_probe, round(recall, 4))
