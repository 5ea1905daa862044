"""Distinct sentences, each with its place in the start's space: unit vectors on disk."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import Dataset

from transencoder import distributed
from transencoder.errors import InputError
from transencoder.mining.distinct import Distinct, distinct
from transencoder.scorers import BiScorer
from transencoder.tokens import allocate

_BLOCK_ROWS = 1 << 14


@dataclass(frozen=True)
class Place:
    """What mining works with."""

    scorer: BiScorer
    """The start. Under torchrun each rank encodes its share."""
    folder: Path
    """Where pairs are kept, under their fingerprint."""
    scratch: Path
    """For what is not needed afterwards; all ranks see it."""


@dataclass(frozen=True, kw_only=True)
class Pile(Distinct):
    """Distinct sentences and their embeddings."""

    embeddings: np.ndarray
    """float32 (n, dim), of length 1, memory-mapped."""


@dataclass(frozen=True)
class Piles:
    """Where the first and the second sentences of pairs come from."""

    first: Pile
    second: Pile

    @property
    def are_one(self) -> bool:
        """Whether both come from the same pile; a pair then has no order."""
        return self.second is self.first


def piled(sentences: Dataset, place: Place, name: str, prompt: str | None) -> Pile:
    """Leave out repetitions and encode the other sentences; of several ranks each encodes its share.

    Args:
        sentences: Texts in `text`.
        place: Has the start, and takes the embeddings.
        name: Their file's.
        prompt: What the start reads before each.

    Raises:
        InputError: An embedding is not finite.
    """
    found, scorer, file = distinct(sentences), place.scorer, place.scratch / f"{name}.npy"
    sides = found.texts.select_columns("text").rename_column("text", "sentence1")
    tokens = scorer.cache.sentences(scorer.model, sides, prompt).tokens
    if distributed.rank() == 0:
        allocate(file, np.float32, (len(tokens), scorer.model.get_embedding_dimension() or 0))
    distributed.barrier()
    embeddings = np.load(file, mmap_mode="r+")
    rows, own = tokens.share(distributed.rank(), distributed.world_size())
    scorer.embed_into(embeddings[rows], own)
    for start in range(rows.start, rows.stop, _BLOCK_ROWS):
        _make_unit(embeddings[start : min(start + _BLOCK_ROWS, rows.stop)], start, found.texts)
    embeddings.flush()
    distributed.barrier()
    return Pile(**vars(found), embeddings=embeddings)


def _make_unit(block: np.ndarray, start: int, texts: Dataset) -> None:
    norms = np.linalg.norm(block, axis=1, keepdims=True)
    bad = np.flatnonzero(~np.isfinite(norms))
    if len(bad):
        raise InputError(
            f"the start's embedding of {texts[start + int(bad[0])]['text']!r} is not finite. The model is damaged or "
            "overflows: try precision fp32, or another start"
        )
    block /= np.maximum(norms, 1e-12)
