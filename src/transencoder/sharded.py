"""Scores and embeddings of many rows, shard by shard: of several processes each computes some."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from transencoder.devices import give_back_freed_memory, uses_bf16
from transencoder.errors import InputError
from transencoder.runs.files import Json
from transencoder.scorers import BiScorer, CrossScorer, Scorer, cosines_of, finite
from transencoder.shards import Arrays, Parts
from transencoder.tokens import Tokens

_SENTENCES_A_SHARD = 1 << 15
_SCORES = "scores"
_NOTHING: Mapping[str, Json] = {}


def score_sharded(scorer: Scorer, pairs: Dataset, folder: Path, *, maker: Mapping[str, Json] = _NOTHING) -> np.ndarray:
    """Score pairs; of a bi-encoder each distinct sentence is embedded once.

    Args:
        scorer: The scorer.
        pairs: n rows with `sentence1` and `sentence2`.
        folder: Takes the parts, and keeps them; all processes see it.
        maker: What tells other pairs and other scorers apart; needed where the folder may hold parts of such.

    Returns:
        float32 (n,) on every process.
    """
    try:
        parts = Parts(folder=folder / _SCORES, n_rows=len(pairs), maker=maker, computed_in=precision_of(scorer))
        parts.make_all(_score_of_rows(scorer, pairs, folder, maker))
        return parts.join()[_SCORES]
    finally:
        give_back_freed_memory()


def embed_sharded(
    scorer: BiScorer,
    tokens: Tokens,
    file: Path,
    folder: Path,
    *,
    finish: Callable[[np.ndarray, slice], None] | None = None,
    maker: Mapping[str, Json] = _NOTHING,
) -> np.ndarray:
    """Write embeddings of tokenised sentences into a file.

    Args:
        scorer: The bi-encoder.
        tokens: n sentences.
        file: A `.npy` file that all processes see.
        folder: As for `score_sharded`.
        finish: Is called with the embeddings of a slice of sentences, to check and change them in place before they are
            kept. None: they must be finite.
        maker: As for `score_sharded`.

    Returns:
        float32 (n, dim), memory-mapped and whole on every process.
    """
    width = int(scorer.model.get_embedding_dimension() or 0)

    def embedded(rows: slice) -> Arrays:
        embeddings = np.empty((rows.stop - rows.start, width), np.float32)
        scorer.embed_into(embeddings, tokens.rows(rows))
        (finish or _check_finite)(embeddings, rows)
        return {file.stem: embeddings}

    parts = Parts(
        folder=folder,
        n_rows=len(tokens),
        maker=maker,
        shard_rows=_SENTENCES_A_SHARD,
        computed_in=precision_of(scorer),
    )
    parts.make_all(embedded)
    return parts.join(file.parent)[file.stem]


def precision_of(scorer: Any) -> str:
    """Return what a scorer computes in on this machine: `bf16`, `fp32`, or nothing where it has no model."""
    if not hasattr(scorer, "model"):
        return ""
    return "bf16" if uses_bf16(scorer.model.device, scorer.precision) else "fp32"


def _score_of_rows(
    scorer: Scorer, pairs: Dataset, folder: Path, maker: Mapping[str, Json]
) -> Callable[[slice], Arrays]:
    """Return a function that scores a slice of the pairs."""
    if isinstance(scorer, BiScorer):
        sides = _embedded_sides(scorer, pairs, folder, maker)
        return lambda rows: {_SCORES: finite(cosines_of(sides, rows), pairs, first_row=rows.start)}
    if isinstance(scorer, CrossScorer):
        orders = scorer.tokens_of(pairs)
        return lambda rows: {
            _SCORES: finite(scorer.score_tokens([each.rows(rows) for each in orders]), pairs, first_row=rows.start)
        }
    return lambda rows: {_SCORES: scorer.score(pairs.select(range(rows.start, rows.stop)))}


def _embedded_sides(
    scorer: BiScorer, pairs: Dataset, folder: Path, maker: Mapping[str, Json]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Embed the distinct sentences of each side; beside them, which row has which."""
    sides = []
    found = scorer.cache.sides(scorer.model, pairs, scorer.prompt, scorer.document_prompt)
    for number, sentences in enumerate(found):
        parts = folder / f"embeddings-{number}"
        embeddings = embed_sharded(scorer, sentences.tokens, parts / "embeddings.npy", parts, maker=maker)
        sides += [(embeddings, index) for index in np.moveaxis(sentences.index, 1, 0)]
    return sides


def _check_finite(embeddings: np.ndarray, rows: slice) -> None:
    bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if len(bad):
        raise InputError(
            f"{len(bad)} of {len(embeddings)} embeddings are not finite numbers, the first of the distinct sentence "
            f"{rows.start + int(bad[0])}, counted from 0. The model is damaged or overflows: try precision fp32, or "
            "another model"
        )
