"""How long the training texts are in tokens, how much of them is read, and what `max_length` comes to."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from datasets import Dataset
from transformers import AutoTokenizer

from transencoder.configs.run import RunConfig

ConfigT = TypeVar("ConfigT", bound=RunConfig)

logger = logging.getLogger(__name__)

_SAMPLE = 2000
"""Rows that are measured, evenly spaced; takes some tenths of a second."""
_CHARACTERS = 20_000
"""Of a text, that are measured: more than any encoder here reads."""
_WHOLE = 98
"""Of a hundred texts, that `auto` reads to their end."""
_MUCH = 0.05
"""Share of texts from which on it is a warning that they are cut."""


@dataclass(frozen=True)
class Lengths:
    """Tokens of some of the training texts, special tokens included."""

    texts: np.ndarray
    """int (n,)."""
    pairs: np.ndarray
    """int (m,): of two texts read together, those of a row or, where rows have one, of neighbours."""

    @classmethod
    def of(cls, folder: Path, *rows: Dataset) -> Lengths:
        """Measure a sample of the texts with a model's tokenizer.

        Args:
            folder: The model.
            rows: Pairs, or texts; of two data sets a pair has a text of each.
        """
        tokenizer = AutoTokenizer.from_pretrained(folder)
        sides = [
            np.array([len(ids) for ids in tokenizer([text[:_CHARACTERS] for text in side], verbose=False)["input_ids"]])
            for each in rows
            for side in _sampled(each)
        ]
        first, second = sides if len(sides) > 1 else (sides[0], np.roll(sides[0], 1))
        n_pairs = min(len(first), len(second))
        return cls(np.concatenate(sides), first[:n_pairs] + second[:n_pairs])

    @property
    def whole(self) -> tuple[int, int]:
        """Tokens within which 98 of 100 texts, and of 100 pairs, end."""
        text, pair = (int(np.percentile(each, _WHOLE, method="higher")) for each in (self.texts, self.pairs))
        return text, pair

    def settle(self, config: ConfigT, *limits: int | None) -> ConfigT:
        """Return the config with what `auto` comes to as its encoders' lengths, if it has that.

        Args:
            config: Of the run.
            limits: Tokens that its base models read of a text, and those of its cross-encoders of a pair; None: all.
        """
        if config.max_length != "auto":
            return config
        return config.with_lengths(*(min(each, limit or each) for each, limit in zip(self.whole, limits, strict=True)))

    def cut(self, n_tokens: int | None) -> str:
        """Say which share of the texts is longer than what training reads of a text; warn where that is much."""
        share = 0.0 if n_tokens is None else float((self.texts > n_tokens).mean())
        said = f"{100 * share:.0f} % of the texts are longer than the {n_tokens} tokens that training reads of a text"
        if share > _MUCH:
            logger.warning(
                "%s: what follows is cut off. --max-length auto reads 98 of 100 whole, here %d tokens",
                said,
                self.whole[0],
            )
        return said


def _sampled(rows: Dataset) -> list[list[str]]:
    """Return the columns of text of some rows."""
    sample = rows[np.unique(np.linspace(0, len(rows) - 1, _SAMPLE, dtype=np.int64)).tolist()]
    return [sample[name] for name in ("sentence1", "sentence2", "text") if name in sample]
