"""Sentences without repetitions, found before anything is encoded."""

from dataclasses import dataclass

import numpy as np
from datasets import Dataset

from transencoder import progress
from transencoder.mining.words import plain_words
from transencoder.pairs.duplicates import row_hash

_BLOCK_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class Distinct:
    """n sentences, no two of the same words."""

    texts: Dataset
    """In `text`."""
    n_characters: np.ndarray
    """int32 (n,): of their plain words."""
    n_exact: int
    """Sentences left out: an earlier one is the same."""
    n_alike: int
    """Sentences left out: an earlier one has the same words in the same order, and another case, punctuation or
    spacing."""

    def __len__(self) -> int:
        return len(self.texts)


def distinct(sentences: Dataset) -> Distinct:
    """The first sentence of each group of those with the same words, in their order.

    Texts are compared by 64-bit hashes: that two of a million different ones agree has a probability of 3e-8. 20 bytes
    of memory a sentence.

    Args:
        sentences: Texts in `text`.
    """
    texts, words = np.empty(len(sentences), np.uint64), np.empty(len(sentences), np.uint64)
    n_characters = np.empty(len(sentences), np.int32)
    with progress.task("compare sentences", len(sentences)) as advance:
        for start in range(0, len(sentences), _BLOCK_ROWS):
            block = sentences[start : start + _BLOCK_ROWS]["text"]
            rows = slice(start, start + len(block))
            plain = [plain_words(text) for text in block]
            texts[rows] = [row_hash([text]) for text in block]
            words[rows] = [row_hash([text]) for text in plain]
            n_characters[rows] = [len(text) for text in plain]
            advance(len(block))
    kept = np.sort(np.unique(words, return_index=True)[1])
    n_exact = len(sentences) - len(np.unique(texts))
    return Distinct(
        texts=sentences if len(kept) == len(sentences) else sentences.select(kept, keep_in_memory=True),
        n_characters=n_characters[kept],
        n_exact=n_exact,
        n_alike=len(sentences) - len(kept) - n_exact,
    )
