"""A bi-encoder's unit embeddings in a faiss index: as they are, in one byte a number, or in one bit.

Scores are cosines. Up to 100,000 embeddings are compared with each query, beyond that those of the clusters nearest to
it (an inverted file), as many clusters as it takes to find 99 % of the true neighbours of a sample. Bits are few enough
to be compared always; they rank by Hamming distance, and ten times as many as asked for are then ranked by the cosine
of the query's numbers and the document's signs (rescoring).
"""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import faiss
import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import quantize_embeddings, truncate_embeddings

from transencoder import progress
from transencoder.configs import Pooling, Precision
from transencoder.devices import autocast, checked_device
from transencoder.encoders import fetch, is_cross, load_trained, weights_fingerprint
from transencoder.errors import InputError, reason_of
from transencoder.models import DOCUMENT_PROMPTS, QUERY_PROMPTS, default_prompt, named_prompt
from transencoder.runs.files import DamagedError
from transencoder.scorers import BiScorer

logger = logging.getLogger(__name__)

VectorPrecision = Literal["float32", "int8", "binary"]

EXACT_UP_TO = 100_000
"""Embeddings; a query takes some 10 ms of one core there, at 384 dimensions."""

_BLOCK = 1 << 14
_LISTS_A_ROOT = 4
"""Clusters: 4 times the square root of the embeddings, as faiss advises."""
_TRAINED_A_LIST = 50
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
"""Precision, and whether there are clusters -> how faiss's file begins."""
_HEADERS = 1 << 10
"""Bytes of a file that are no embedding, range, row or cluster: some 300."""
_RESCORED = 10
"""Times as many candidates as are asked for."""


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """A bi-encoder and how it reads queries and documents."""

    name: str
    """What `load_embedder` finds it by: a hub id, minilm, or a folder's whole path."""
    fingerprint: str
    """Of its weights, configs and tokenizer."""
    model: SentenceTransformer
    query_prompt: str
    """Text put before every query."""
    document_prompt: str
    """Text put before every document."""
    dimensions: int
    """The first so many numbers of an embedding are kept."""
    pooling: Pooling | None = None
    """None: the model's own."""
    precision: Precision = "auto"
    """`auto` takes bf16 autocast where the hardware has it."""

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """Embed a few texts: unit embeddings, float32 (n, dimensions)."""
        with autocast(self.model.device, self.precision):
            embeddings = self.model.encode(list(texts), prompt=self.query_prompt, show_progress_bar=False)
        return self._unit(np.asarray(embeddings, np.float32), texts)

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        """Embed many texts, each distinct one once, like lengths together: unit embeddings, (n, dimensions)."""
        scorer = BiScorer(self.model, precision=self.precision, prompt=self.document_prompt)
        (embeddings,) = scorer.embed_sides(Dataset.from_dict({"sentence1": list(texts)}))
        return self._unit(embeddings, texts)

    def share_cut(self, texts: Sequence[str]) -> float:
        """Return the share of texts that are longer than what the model reads, 0 to 1."""
        limit = self.model.max_seq_length
        if limit is None:
            return 0.0
        given = [self.document_prompt + text for text in texts]
        tokens = self.model.tokenizer(given, truncation=False, verbose=False)["input_ids"]
        return float(np.mean([len(each) > limit for each in tokens]))

    def _unit(self, embeddings: np.ndarray, texts: Sequence[str]) -> np.ndarray:
        bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
        if len(bad):
            raise InputError(
                f"{len(bad)} of {len(texts)} embeddings are not finite numbers, the first of {texts[int(bad[0])]!r}. "
                "The model is damaged or overflows; give another"
            )
        kept = truncate_embeddings(embeddings, self.dimensions)
        unit: np.ndarray = kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), np.float32(1e-12))
        return unit


@progress.shown()
def load_embedder(
    name: str,
    *,
    query_prompt: str | None = None,
    query_prompt_name: str | None = None,
    document_prompt: str | None = None,
    document_prompt_name: str | None = None,
    dimensions: int | None = None,
    max_length: int | None = None,
    pooling: Pooling | None = None,
    device: str | None = None,
    precision: Precision = "auto",
    revision: str | None = None,
    token: str | None = None,
    cache_folder: str | None = None,
) -> Embedder:
    """Load a bi-encoder to search with.

    Args:
        name: A folder, a run's folder, a hub id, or `minilm`.
        query_prompt: Text put before every query. Default: what `SentenceTransformer.encode_query` puts there.
        query_prompt_name: The same, by its name among the model's prompts.
        document_prompt: Text put before every document. Default: what `SentenceTransformer.encode_document` puts there.
        document_prompt_name: The same, by its name among the model's prompts.
        dimensions: Keep the first so many numbers of each embedding, for models trained so (Matryoshka); None: all.
        max_length: Tokens of a text; None: the model's own.
        pooling: None: the model's own, mean for a plain checkpoint.
        device: Where it computes; None: the best there is.
        precision: `auto` takes bf16 autocast where the hardware has it.
        revision: Hub revision.
        token: Hub token.
        cache_folder: For hub downloads; None: the usual one.

    Raises:
        InputError: There is no such model, prompt or device, it is a cross-encoder, or it has fewer dimensions.
    """
    checked = checked_device(device) if device else None
    folder = fetch(name, form="bi", revision=revision, token=token, cache_folder=cache_folder)
    if is_cross(folder):
        raise InputError(
            f"{name} is a cross-encoder, which gives no embeddings; give a bi-encoder, or use it to re-rank"
        )
    model = load_trained(folder, checked, max_length=max_length, pooling=pooling)
    assert isinstance(model, SentenceTransformer)
    if model.similarity_fn_name not in (None, "cosine"):
        logger.warning("%s compares by %s; here its embeddings are compared by cosine", name, model.similarity_fn_name)
    width = int(model.get_embedding_dimension() or 0)
    if dimensions is not None and not 1 <= dimensions <= width:
        raise InputError(f"dimensions is {dimensions}, but the embeddings of {name} have {width}; give 1 to {width}")
    return Embedder(
        name=str(folder) if Path(name).is_dir() else f"{name}@{revision}" if revision else name,
        fingerprint=weights_fingerprint(folder),
        model=model,
        query_prompt=_prompt(model, query_prompt, query_prompt_name, QUERY_PROMPTS),
        document_prompt=_prompt(model, document_prompt, document_prompt_name, DOCUMENT_PROMPTS),
        dimensions=dimensions or width,
        pooling=pooling,
        precision=precision,
    )


def _prompt(model: SentenceTransformer, text: str | None, name: str | None, own: Sequence[str]) -> str:
    if text is not None or name is not None:
        return text if text is not None else named_prompt(model, str(name))
    found = next((each for each in own if each in model.prompts), None)
    return (default_prompt(model) or "") if found is None else str(model.prompts[found])


@dataclass(frozen=True)
class Approximation:
    """How an inverted file is searched, and what it finds."""

    n_lists: int
    """Clusters of the embeddings."""
    n_probe: int
    """Clusters that are compared with a query."""
    recall_at_10: float
    """Share of the ten true nearest neighbours that are found, over a sample of the embeddings themselves."""


class Vectors:
    """n embeddings to search in.

    Args:
        index: The faiss index.
        precision: What it holds.
        approximation: Of an inverted file, which keeps its number of probed clusters itself.
    """

    def __init__(self, index: Any, precision: VectorPrecision, approximation: Approximation | None = None) -> None:
        self.index = index
        self.precision = precision
        self.approximation = approximation
        if precision == "binary":
            self._bits = faiss.vector_to_array(index.xb).reshape(index.ntotal, -1)

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def search(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Find the nearest embeddings of each query.

        Args:
            queries: Unit embeddings, float32 (q, dimensions).
            top_k: How many; at most n are found.

        Returns:
            Cosines, float32 (q, k), falling, and rows, int64 (q, k); row -1 where an inverted file found no more.
        """
        top_k = min(top_k, len(self))
        if self.precision == "binary":
            return self._rescored(queries, top_k)
        scores, rows = self.index.search(np.ascontiguousarray(queries), top_k)
        return np.clip(scores, -1.0, 1.0), rows

    def _rescored(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        n_bits = queries.shape[1]
        bits = quantize_embeddings(queries, "ubinary")
        _, rows = self.index.search(bits, min(_RESCORED * top_k, len(self)))
        signs = 2.0 * np.unpackbits(self._bits[rows], axis=-1, count=n_bits).astype(np.float32) - 1.0
        scores = np.einsum("qd,qkd->qk", queries, signs) / np.float32(math.sqrt(n_bits))
        best = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
        return np.take_along_axis(scores, best, 1), np.take_along_axis(rows, best, 1)

    def save(self, path: Path) -> None:
        """Write the faiss index."""
        (faiss.write_index_binary if self.precision == "binary" else faiss.write_index)(self.index, str(path))


def load_vectors(
    path: Path, precision: VectorPrecision, approximation: Approximation | None, *, n: int, dimensions: int
) -> Vectors:
    """Read what `Vectors.save` wrote of n embeddings; faiss, which trusts a file, gets none of another kind or size.

    Raises:
        DamagedError: The file holds something else.
    """
    size, limit = path.stat().st_size, faiss.get_deserialization_vector_byte_limit()
    n_lists = approximation.n_lists if approximation else 0
    least = n * _bytes_of(precision, dimensions) + bool(n_lists) * (8 * n + 4 * dimensions * n_lists)
    with path.open("rb") as file:
        kind = file.read(4)
    if kind != _KINDS[precision, n_lists > 0] or not 0 <= size - least <= _HEADERS + 8 * dimensions + 16 * n_lists:
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
    return Vectors(index, precision, approximation)


def _bytes_of(precision: VectorPrecision, dimensions: int) -> int:
    return {"float32": 4 * dimensions, "int8": dimensions, "binary": math.ceil(dimensions / 8)}[precision]


def _parts(
    index: Any, precision: VectorPrecision, approximation: Approximation | None, n: int, dimensions: int
) -> Iterator[tuple[str, object, object]]:
    """Yield what an index has and what it must have, by which each part that comes later can be read."""
    n_bytes, is_binary = _bytes_of(precision, dimensions), precision == "binary"
    yield "embeddings", index.ntotal, n
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
    sizes = map(lists.list_size, range(n_lists))
    rows = [faiss.rev_swig_ptr(lists.get_ids(number), size) for number, size in enumerate(sizes) if size]
    yield "each row once", np.array_equal(np.sort(np.concatenate(rows)), np.arange(n)), True


def make_vectors(embeddings: np.ndarray, precision: VectorPrecision = "float32") -> Vectors:
    """Put embeddings into an index; beside it, memory holds a block of them, or a sample to find clusters with.

    Args:
        embeddings: Unit embeddings, float32 (n, dimensions), n at least 1; may be memory-mapped.
        precision: `int8`: one byte a number, in 255 steps between the least and the greatest of its dimension;
            `binary`: its sign, one bit. Both as sentence-transformers' `quantize_embeddings` has them.
    """
    n, width = embeddings.shape
    if precision == "binary":
        bits = faiss.IndexBinaryFlat(8 * math.ceil(width / 8))
        for block in _blocks(embeddings, "index embeddings"):
            bits.add(np.asarray(quantize_embeddings(block, "ubinary")))
        return Vectors(bits, precision)
    n_lists = int(_LISTS_A_ROOT * math.sqrt(n)) if n > EXACT_UP_TO else 0
    kind = {"float32": "Flat", "int8": "SQ8"}[precision]
    index = faiss.index_factory(width, f"IVF{n_lists},{kind}" if n_lists else kind, faiss.METRIC_INNER_PRODUCT)
    if n_lists:
        _find_clusters(index, embeddings, n_lists)
    for block in _in_steps(index, embeddings) if precision == "int8" else _blocks(embeddings, "index embeddings"):
        index.add(block)
    return Vectors(index, precision, _tuned(index, embeddings, n_lists) if n_lists else None)


def _blocks(embeddings: np.ndarray, description: str) -> Iterator[np.ndarray]:
    for block in progress.blocks(description, len(embeddings), _BLOCK):
        yield np.ascontiguousarray(embeddings[block])


def _in_steps(index: Any, embeddings: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the embeddings as their bytes say them; the index, told the same ranges, keeps them in the same bytes."""
    low, high = embeddings[0].copy(), embeddings[0].copy()
    for block in _blocks(embeddings, "find ranges"):
        np.minimum(low, block.min(axis=0), out=low)
        np.maximum(high, block.max(axis=0), out=high)
    faiss.copy_array_to_vector(np.concatenate([low, high - low]), index.sq.trained)
    index.is_trained = True
    for block in _blocks(embeddings, "index embeddings"):
        codes = np.asarray(quantize_embeddings(block, "uint8", ranges=np.stack([low, high])))
        yield (low + (codes + np.float32(0.5)) * ((high - low) / np.float32(255))).astype(np.float32)


def _find_clusters(index: Any, embeddings: np.ndarray, n_lists: int) -> None:
    if isinstance(index, faiss.IndexIVFScalarQuantizer):
        index.by_residual = False  # the bytes are of the embeddings themselves
    n_sampled = min(len(embeddings), _TRAINED_A_LIST * n_lists)
    rows = np.sort(np.random.default_rng(0).choice(len(embeddings), n_sampled, replace=False))
    logger.info("%d clusters are made of %d embeddings", n_lists, len(embeddings))
    index.train(np.ascontiguousarray(embeddings[rows]))


def _tuned(index: Any, embeddings: np.ndarray, n_lists: int) -> Approximation:
    """Probe half as many clusters more until the sample's neighbours are found."""
    rows = np.sort(np.random.default_rng(1).choice(len(embeddings), _SAMPLED_QUERIES, replace=False))
    queries = np.ascontiguousarray(embeddings[rows])
    index.nprobe = n_lists
    furthest = index.search(queries, _NEIGHBOURS + 1)[0][:, -1:]
    n_probe, recall = 4, 0.0
    while recall < _RECALL and n_probe < n_lists:
        index.nprobe = n_probe = min(n_probe + n_probe // 2, n_lists)
        scores, _ = index.search(queries, _NEIGHBOURS + 1)
        recall = float((scores[:, 1:] >= furthest - _TIE).mean())  # the first is the embedding itself
    logger.info("%d of %d clusters are searched, which finds %.1f %% of neighbours", n_probe, n_lists, 100 * recall)
    return Approximation(n_lists, n_probe, round(recall, 4))
