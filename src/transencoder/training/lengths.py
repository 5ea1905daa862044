"""Lengths of the training texts in tokens, the share of texts that is cut, and the value of `max_length` `auto`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from datasets import Dataset
from transformers import AutoTokenizer

from transencoder.configs.run import RunConfig
from transencoder.models import OWN_PROMPTS, Prompts, saved_default_prompt

ConfigT = TypeVar("ConfigT", bound=RunConfig)

logger = logging.getLogger(__name__)

_SAMPLE = 2000
"""Number of evenly spaced rows that are measured, which takes some tenths of a second."""
_CHARACTERS = 20_000
"""Number of characters of a text that are measured: more than any encoder here reads."""
_WHOLE = 98
"""Percentage of the texts that `auto` reads to their end."""
_MUCH = 0.05
"""Share of texts that may be cut without a warning."""


@dataclass(frozen=True)
class Lengths:
    """Numbers of tokens of a sample of the training texts, special tokens included."""

    texts: np.ndarray
    """Tokens of each text with its prompt, int (n,)."""
    pairs: np.ndarray
    """Tokens of two texts read together, without prompts, int (m,): those of a row or, if rows have one text, of
    neighbouring rows."""

    @classmethod
    def of(cls, folder: Path, *rows: Dataset, prompts: Prompts = OWN_PROMPTS) -> Lengths:
        """Measure a sample of the texts with a bi-encoder's tokenizer.

        Args:
            folder: The bi-encoder.
            rows: Pairs, or texts; if two data sets are given, a pair has one text from each.
            prompts: Prompts that the bi-encoder reads before the texts.
        """
        tokenizer = AutoTokenizer.from_pretrained(folder)
        sides = [side for each in rows for side in _sampled(each)]
        bare = [_n_tokens(tokenizer, side) for side in sides]
        first, second = bare if len(bare) > 1 else (bare[0], np.roll(bare[0], 1))
        n_pairs = min(len(first), len(second))
        texts = [
            _n_tokens(tokenizer, side, prompt) if prompt else without
            for side, without, prompt in zip(sides, bare, prompts.sides(saved_default_prompt(folder)), strict=False)
        ]
        return cls(np.concatenate(texts), first[:n_pairs] + second[:n_pairs])

    @property
    def whole(self) -> tuple[int, int]:
        """Numbers of tokens within which 98 of 100 texts, and 98 of 100 pairs, end."""
        text, pair = (int(np.percentile(each, _WHOLE, method="higher")) for each in (self.texts, self.pairs))
        return text, pair

    def settle(self, config: ConfigT, *limits: int | None) -> ConfigT:
        """Return the config with its encoders' lengths filled in if `max_length` is `auto`.

        Args:
            config: Config of the run.
            limits: Tokens that base models read of a text, and that those of cross-encoders read of a pair; None: any.
        """
        if config.max_length != "auto":
            return config
        return config.with_lengths(*(min(each, limit or each) for each, limit in zip(self.whole, limits, strict=True)))

    def note_on_cuts(self, n_tokens: int | None) -> str:
        """Return a sentence with the share of texts that training does not read to their end; warn if it is large."""
        share = 0.0 if n_tokens is None else float((self.texts > n_tokens).mean())
        said = f"{100 * share:.0f} % of the texts are longer than the {n_tokens} tokens that training reads of a text"
        if share > _MUCH:
            logger.warning(
                "%s: what follows is cut off. --max-length auto reads 98 of 100 whole, here %d tokens",
                said,
                self.whole[0],
            )
        return said


def _n_tokens(tokenizer: Any, texts: list[str], prompt: str = "") -> np.ndarray:
    """Return the number of tokens of each text with its prompt, int (n,)."""
    ids = tokenizer([prompt + text[:_CHARACTERS] for text in texts], verbose=False)["input_ids"]
    return np.array([len(each) for each in ids])


def _sampled(rows: Dataset) -> list[list[str]]:
    """Return the text columns of a sample of rows."""
    sample = rows[np.unique(np.linspace(0, len(rows) - 1, _SAMPLE, dtype=np.int64)).tolist()]
    return [sample[name] for name in ("sentence1", "sentence2", "text") if name in sample]
