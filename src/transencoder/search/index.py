"""An open search index: the bi-encoder finds documents for queries, and a scorer re-ranks them on request."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets import Dataset

from transencoder import progress
from transencoder.configs import Precision
from transencoder.errors import InputError, reason_of, shorten
from transencoder.runs.files import DamagedError
from transencoder.scorers import Scorer
from transencoder.search.embedder import Embedder, load_embedder
from transencoder.search.record import (
    DOCUMENTS_NAME,
    LISTS_NAME,
    QUICK_BYTES,
    VECTORS_NAME,
    Record,
    explained,
    read_record,
)
from transencoder.search.vectors import Vectors, load_vectors

N_CANDIDATES = 100
"""Default number of documents re-ranked per query."""

_QUERIES_AT_ONCE = 128
"""Queries searched at a time. With 100 candidates each: 12,800 pairs, enough to sort by length and few for memory."""


@dataclass(frozen=True)
class Hit:
    """A document found for a query."""

    row: int
    """Its row in the corpus, from 0."""
    id: str | None
    """Its id, where the corpus has ids."""
    document: str
    """Its text."""
    score: float
    """Score of the re-ranker, if there is one, else the cosine, in [-1, 1]."""
    cosine: float
    """Cosine by which the bi-encoder found it."""


@dataclass(frozen=True)
class SearchIndex:
    """A corpus that can be searched."""

    record: Record
    """Record of the index."""
    vectors: Vectors
    """The documents' embeddings."""
    documents: Dataset
    """The documents: `text` and, where they have ids, `id`."""
    embedder: Embedder

    def search(
        self,
        queries: Sequence[str],
        top_k: int = 10,
        *,
        reranker: Scorer | None = None,
        n_candidates: int = N_CANDIDATES,
    ) -> Iterator[list[Hit]]:
        """Find the best documents of each query. The results are computed lazily, some queries at a time.

        Args:
            queries: Texts; many may be memory-mapped.
            top_k: Number of documents per query, at least 1.
            reranker: Scorer of (query, document) pairs that re-ranks the candidates.
            n_candidates: Number of candidates to re-rank per query, at least `top_k`.

        Returns:
            The `top_k` best documents of each query, best first, or all if there are fewer.

        Raises:
            InputError: `top_k` is below 1, or above `n_candidates` with a re-ranker.
        """
        if isinstance(queries, str):
            raise InputError(f"queries is the text {queries!r}; give a list of texts")
        if reranker is not None and not isinstance(reranker, Scorer):
            raise InputError(f"reranker is {shorten(reranker)}; give a scorer, such as load_scorer(cross_encoder)")
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; give at least 1")
        if reranker and top_k > n_candidates:
            raise InputError(
                f"top_k is {top_k}, but {n_candidates} candidates are re-ranked; give at most that, or more"
            )
        return self._found(queries, top_k, reranker, n_candidates)

    def _found(
        self, queries: Sequence[str], top_k: int, reranker: Scorer | None, n_candidates: int
    ) -> Iterator[list[Hit]]:
        for block in progress.blocks("search", len(queries), _QUERIES_AT_ONCE):
            some = list(queries[block])
            found = self._retrieve(some, n_candidates if reranker else top_k)
            if reranker:
                found = _reranked(some, found, reranker)
            yield from (hits[:top_k] for hits in found)

    def _retrieve(self, queries: list[str], n: int) -> list[list[Hit]]:
        cosines, rows = self.vectors.search(self.embedder.queries(queries), n)
        found = np.unique(rows[rows >= 0]).tolist()
        texts = self.documents[found]
        ids = texts["id"] if self.record.has_ids else [None] * len(found)
        documents = {row: (own_id, text) for row, own_id, text in zip(found, ids, texts["text"], strict=True)}
        hits = []
        for own_rows, own_cosines in zip(rows.tolist(), cosines.tolist(), strict=True):
            scored = zip(own_rows, own_cosines, strict=True)
            hits.append([Hit(row, *documents[row], score=cosine, cosine=cosine) for row, cosine in scored if row >= 0])
        return hits


@progress.shown()
def open_index(
    folder: str | os.PathLike[str],
    *,
    model: str | None = None,
    device: str | None = None,
    precision: Precision = "auto",
    token: str | None = None,
    cache_folder: str | None = None,
) -> SearchIndex:
    """Open an index that `build_index` made.

    Args:
        folder: The index.
        model: Folder or hub id where the index's bi-encoder is now. Default: where it was at the build.
        device: Device to embed queries on; None: the best one available.
        precision: Precision of the computation; `auto`: bf16 autocast where the hardware supports it.
        token: Hub token.
        cache_folder: Folder for hub downloads; None: the default one.

    Raises:
        InputError: There is no index, it is damaged, or the model is missing or not the one it was built with.
    """
    folder = Path(folder)
    record = read_record(folder, is_quick=True)
    recipe = record.recipe
    try:
        embedder = load_embedder(
            model or record.model,
            query_prompt=recipe.query_prompt,
            document_prompt=recipe.document_prompt,
            dimensions=recipe.dimensions,
            max_length=recipe.max_length,
            pooling=recipe.pooling,
            device=device,
            precision=precision,
            token=token,
            cache_folder=cache_folder,
        )
    except InputError as error:
        if model:
            raise
        reason = f"{folder} was built with {record.model}: {error}"
        raise InputError(f"{reason}. Say where that model is now (model, --model)") from error
    if embedder.fingerprint != recipe.model_fingerprint:
        raise InputError(
            f"{folder} was built with {record.model} of fingerprint {recipe.model_fingerprint[:12]}, but "
            f"{embedder.name} has {embedder.fingerprint[:12]}: embeddings of different models cannot be compared. Give "
            "the model that it was built with (model, --model), or build it again"
        )
    with explained():
        n = record.n_documents
        path, about = folder / VECTORS_NAME, record.approximation
        lists = folder / LISTS_NAME
        vectors = load_vectors(path, recipe.precision, about, n=n, dimensions=recipe.dimensions, lists=lists)
        documents = _load_documents(folder / DOCUMENTS_NAME, n, ["id"] * record.has_ids + ["text"])
    return SearchIndex(record, vectors, documents, embedder)


def _load_documents(path: Path, n: int, columns: list[str]) -> Dataset:
    try:
        documents = Dataset.from_file(str(path))
        documents.data.validate(full=path.stat().st_size <= QUICK_BYTES)
        if not all(_is_whole(chunk) for column in documents.data.columns for chunk in column.chunks):
            raise DamagedError(f"{path} has texts that end before they begin, or after the file")
    except (OSError, ValueError) as error:  # Arrow raises both
        raise DamagedError(f"{path} cannot be read ({reason_of(error)})") from error
    has = {name: feature.dtype for name, feature in documents.features.items()}
    n_absent = sum(column.null_count for column in documents.data.columns)
    if has != dict.fromkeys(columns, "string") or len(documents) != n or n_absent:
        raise DamagedError(f"{path} does not hold {n} documents as {' and '.join(columns)}")
    return documents


def _is_whole(texts: pa.StringArray) -> bool:
    """Check that each text lies inside the array's buffer: reading a text outside of it would crash the process."""
    _, places, characters = texts.buffers()
    ends = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return bool((np.diff(ends) >= 0).all() and ends[0] >= 0 and ends[-1] <= (characters.size if characters else 0))


def _reranked(queries: list[str], found: list[list[Hit]], reranker: Scorer) -> list[list[Hit]]:
    pairs = [(query, hit.document) for query, hits in zip(queries, found, strict=True) for hit in hits]
    first, second = zip(*pairs, strict=True)
    scores = iter(reranker.score(Dataset.from_dict({"sentence1": first, "sentence2": second})).tolist())
    rescored = [[replace(hit, score=next(scores)) for hit in hits] for hits in found]
    return [sorted(hits, key=lambda hit: -hit.score) for hits in rescored]
