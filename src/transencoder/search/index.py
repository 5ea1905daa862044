"""An index opened: queries in, documents out, found by the bi-encoder and, where asked for, re-ranked by a scorer."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import Dataset

from transencoder import progress
from transencoder.configs import Precision
from transencoder.errors import InputError
from transencoder.scorers import Scorer
from transencoder.search.embedding import Embedder, load_embedder
from transencoder.search.record import DOCUMENTS_NAME, VECTORS_NAME, Record, read_record
from transencoder.search.vectors import Vectors, load_vectors

N_CANDIDATES = 100
"""Documents of a query that are re-ranked."""

_QUERIES_AT_ONCE = 128
"""With 100 candidates each, 12,800 pairs: enough to sort by length, and few enough for memory."""


@dataclass(frozen=True)
class Hit:
    """A document that was found."""

    row: int
    """Its row in the corpus, from 0."""
    id: str | None
    """Its id, where the corpus has ids."""
    document: str
    """Its text."""
    score: float
    """The scorer's that re-ranked it, else the cosine, in [-1, 1]."""
    cosine: float
    """What the bi-encoder found it by."""


class SearchIndex:
    """A corpus that can be searched.

    Args:
        record: What it says of itself.
        vectors: The documents' embeddings.
        documents: The documents: `text` and, where they have ids, `id`.
        embedder: The bi-encoder.
    """

    def __init__(self, record: Record, vectors: Vectors, documents: Dataset, embedder: Embedder) -> None:
        self.record = record
        self.vectors = vectors
        self.documents = documents
        self.embedder = embedder

    def search(
        self,
        queries: Sequence[str],
        top_k: int = 10,
        *,
        reranker: Scorer | None = None,
        n_candidates: int = N_CANDIDATES,
    ) -> Iterator[list[Hit]]:
        """Find the documents of each query; the work is done as the answers are taken, some queries at a time.

        Args:
            queries: Texts; many may be memory-mapped.
            top_k: Documents a query, at least 1.
            reranker: Scores (query, document) pairs: the candidates are ranked by it.
            n_candidates: How many that are, at least `top_k`.

        Returns:
            The best documents of each query, the best first; `top_k`, or all where there are fewer.

        Raises:
            InputError: `top_k` is too small, or too large for the candidates.
        """
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
        with progress.task("search", len(queries)) as advance:
            for start in range(0, len(queries), _QUERIES_AT_ONCE):
                some = list(queries[start : start + _QUERIES_AT_ONCE])
                found = self._retrieve(some, n_candidates if reranker else top_k)
                yield from (hits[:top_k] for hits in (_reranked(some, found, reranker) if reranker else found))
                advance(len(some))

    def _retrieve(self, queries: list[str], n: int) -> list[list[Hit]]:
        cosines, rows = self.vectors.search(self.embedder.queries(queries), n)
        documents = self._documents(np.unique(rows[rows >= 0]))
        return [
            [
                Hit(row, *documents[row], score, score)
                for row, score in zip(some_rows.tolist(), some_cosines.tolist(), strict=True)
                if row >= 0
            ]
            for some_rows, some_cosines in zip(rows, cosines, strict=True)
        ]

    def _documents(self, rows: np.ndarray) -> dict[int, tuple[str | None, str]]:
        """Id and text of some documents."""
        found = self.documents[rows.tolist()]
        ids = found["id"] if self.record.has_ids else [None] * len(rows)
        return dict(zip(rows.tolist(), zip(ids, found["text"], strict=True), strict=True))


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
        model: Where its bi-encoder is now. Default: where it was.
        device: Where queries are embedded; None: the best there is.
        precision: `auto` takes bf16 autocast where the hardware has it.
        token: Hub token.
        cache_folder: For hub downloads; None: the usual one.

    Raises:
        InputError: There is no index, it is damaged, or the model is not there or another one.
    """
    folder = Path(folder)
    record = read_record(folder)
    recipe = record.recipe
    try:
        embedder = load_embedder(
            model or record.model,
            query_prompt=recipe.query_prompt,
            document_prompt=recipe.document_prompt,
            dimensions=recipe.dimensions,
            max_length=recipe.max_length,
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
    _check_model(folder, record, embedder)
    vectors = load_vectors(folder / VECTORS_NAME, recipe.precision, record.approximation)
    return SearchIndex(record, vectors, Dataset.from_file(str(folder / DOCUMENTS_NAME)), embedder)


def _check_model(folder: Path, record: Record, embedder: Embedder) -> None:
    wanted = record.recipe.model_fingerprint
    if embedder.fingerprint != wanted:
        raise InputError(
            f"{folder} was built with {record.model} of fingerprint {wanted[:12]}, but {embedder.name} has "
            f"{embedder.fingerprint[:12]}: embeddings of different models cannot be compared. Give the model that "
            "it was built with (model, --model), or build it again"
        )


def _reranked(queries: list[str], found: list[list[Hit]], reranker: Scorer) -> list[list[Hit]]:
    pairs = [(query, hit.document) for query, hits in zip(queries, found, strict=True) for hit in hits]
    first, second = zip(*pairs, strict=True)
    scores = iter(reranker.score(Dataset.from_dict({"sentence1": first, "sentence2": second})).tolist())
    rescored = [[Hit(hit.row, hit.id, hit.document, next(scores), hit.cosine) for hit in hits] for hits in found]
    return [sorted(hits, key=lambda hit: -hit.score) for hits in rescored]
