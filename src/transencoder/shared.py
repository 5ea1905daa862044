"""Scores and embeddings of many rows by shards: of several ranks each computes some, and interrupted work goes on."""

from pathlib import Path

import numpy as np
from datasets import Dataset

from transencoder import distributed
from transencoder.devices import give_back_freed_memory
from transencoder.scorers import BiScorer, Scorer, cosines_of, finite
from transencoder.shards import Arrays, Parts
from transencoder.tokens import Tokens

_SENTENCES_A_SHARD = 1 << 15
_SCORES = "scores"


def score_shared(scorer: Scorer, pairs: Dataset, folder: Path) -> np.ndarray:
    """Score pairs; of a bi-encoder each distinct sentence is embedded once.

    Args:
        scorer: The scorer.
        pairs: n rows with `sentence1` and `sentence2`.
        folder: Takes the shards, of these pairs and this scorer alone, and keeps them; all ranks see it.

    Returns:
        float32 (n,) on every rank.
    """

    def scored(rows: slice) -> Arrays:
        return {_SCORES: scorer.score(pairs.select(range(rows.start, rows.stop)))}

    def compared(rows: slice) -> Arrays:
        return {_SCORES: cosines_of(sides, rows)}

    try:
        if isinstance(scorer, BiScorer):
            sides = _embedded_sides(scorer, pairs, folder)
        parts = Parts(folder=folder / _SCORES, n_rows=len(pairs), maker={})
        parts.make_all(compared if isinstance(scorer, BiScorer) else scored)
        return finite(parts.join()[_SCORES], pairs)
    finally:
        give_back_freed_memory()


def embed_shared(scorer: BiScorer, tokens: Tokens, file: Path, folder: Path) -> np.ndarray:
    """Write embeddings of tokenised sentences into a file.

    Args:
        scorer: The bi-encoder.
        tokens: n sentences.
        file: A `.npy` file that all ranks see.
        folder: Takes the shards, of this file alone, and keeps them; all ranks see it.

    Returns:
        float32 (n, dim), memory-mapped and whole on every rank.
    """
    width = int(scorer.model.get_embedding_dimension() or 0)

    def embedded(rows: slice) -> Arrays:
        embeddings = np.empty((rows.stop - rows.start, width), np.float32)
        scorer.embed_into(embeddings, tokens.some(rows))
        return {file.stem: embeddings}

    parts = Parts(folder=folder, n_rows=len(tokens), maker={}, shard_rows=_SENTENCES_A_SHARD)
    parts.make_all(embedded)
    if distributed.rank() == 0:
        parts.join(file.parent)
    distributed.barrier()
    found: np.ndarray = np.load(file, mmap_mode="r+")
    return found


def _embedded_sides(scorer: BiScorer, pairs: Dataset, folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Embed the distinct sentences of each side; with which of them each row has."""
    sides = []
    found = scorer.cache.sides(scorer.model, pairs, scorer.prompt, scorer.document_prompt)
    for number, sentences in enumerate(found):
        parts = folder / f"embeddings-{number}"
        embeddings = embed_shared(scorer, sentences.tokens, parts / "embeddings.npy", parts)
        sides += [(embeddings, index) for index in np.moveaxis(sentences.index, 1, 0)]
    return sides
