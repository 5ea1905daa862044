"""Scores and embeddings of many rows, computed shard by shard; several processes share the shards."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from datasets import Dataset

from transencoder.devices import computed_in, give_back_freed_memory
from transencoder.errors import InputError
from transencoder.runs.files import Json
from transencoder.scorers import BiScorer, CrossScorer, Scorer, cosines_of, finite
from transencoder.shards import Arrays, Parts
from transencoder.tokens import Tokens

_SENTENCES_A_SHARD = 1 << 15
_SCORES = "scores"
_NOTHING: Mapping[str, Json] = {}


def score_sharded(scorer: Scorer, pairs: Dataset, folder: Path, *, maker: Mapping[str, Json] = _NOTHING) -> np.ndarray:
    """Score pairs shard by shard; a bi-encoder embeds each distinct sentence once.

    Args:
        scorer: The scorer.
        pairs: n rows with `sentence1` and `sentence2`.
        folder: Folder for the parts, which stay there; all processes must see it.
        maker: Description of pairs and scorer that tells them from others; needed if the folder may hold parts of
            others.

    Returns:
        Scores, float32 (n,), on every process.
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
        tokens: Tokens of n sentences.
        file: A `.npy` file that all processes can see.
        folder: As for `score_sharded`.
        finish: Function that is called with the embeddings of a slice of sentences, to check and change them in place
            before they are stored. None: check that they are finite.
        maker: As for `score_sharded`.

    Returns:
        Embeddings, float32 (n, dim), memory-mapped and complete on every process.
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


def precision_of(scorer: Scorer) -> str:
    """Return the precision that a scorer computes in on this machine: `bf16`, `fp32`, or "" if it has no model."""
    return computed_in(scorer.model.device, scorer.precision) if isinstance(scorer, BiScorer | CrossScorer) else ""


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
    """Return, for each side, the embeddings of its distinct sentences and the number of the embedding of each row."""
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
