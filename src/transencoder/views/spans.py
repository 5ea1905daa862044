"""Documents -> spans of words: anchors, and positives near them (DeCLUTR)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from datasets import Dataset

from transencoder.errors import InputError
from transencoder.scripts import join_words, split_words
from transencoder.views.pairs import CHUNK, write_pairs

_ANCHOR_SHAPE, _POSITIVE_SHAPE = (4, 2), (2, 4)
"""Beta distributions of the lengths: anchors are rather long, positives rather short (section 3.1)."""

Relation = Literal["any", "adjacent", "subsumed"]


@dataclass(frozen=True, kw_only=True)
class Spans:
    """A row for each document: an anchor and its positives, the next anchor and its positives (DeCLUTR, section 3.1).

    A word is what white space separates, as in the released code.
    """

    document_words: int = 2048
    """Words that a document must have; the longest span has a 2 `n_anchors`-th of them (paper: 2048, so 512)."""
    n_anchors: int = 2
    """Anchors a document (paper: 2); they do not overlap and are not next to each other."""
    n_positives: int = 2
    """Positives an anchor (paper: 2)."""
    relation: Relation = "any"
    """Where positives lie: anywhere within reach of the anchor, right beside it, or inside it (paper: any)."""
    n_samples: int = 1
    """Rows of each document, each drawn anew."""

    def __post_init__(self) -> None:
        """Refuse numbers that leave no spans."""
        for name in ("n_anchors", "n_positives", "n_samples"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.longest < 2:
            raise InputError(
                f"document_words is {self.document_words}; with {self.n_anchors} anchors it must be at least "
                f"{4 * self.n_anchors}"
            )

    @property
    def longest(self) -> int:
        """Words of the longest span (paper: 512)."""
        return self.document_words // (2 * self.n_anchors)

    @property
    def shortest(self) -> int:
        """Words of the shortest span (paper: 32 of 512)."""
        return max(1, self.longest // 16)

    @property
    def n_columns(self) -> int:
        """Spans a row."""
        return self.n_anchors * (1 + self.n_positives)

    def __call__(self, documents: Dataset, file: Path, seed: int) -> Dataset:
        """Write the rows, columns `sentence1` and so on.

        Raises:
            InputError: A document is too short.
        """
        schema = pa.schema([(f"sentence{i + 1}", pa.string()) for i in range(self.n_columns)])
        return write_pairs(file, schema, self._chunks(documents, seed), len(documents) * self.n_samples)

    def sample(self, words: list[str], random: np.random.Generator) -> list[str]:
        """The spans of one document, in the order of the columns.

        Args:
            words: At least `document_words`, as `split_words` gives them.
            random: Decides the spans.
        """
        spans = []
        for cell in self._cells(len(words) // self.longest, random):
            length = self._length(_ANCHOR_SHAPE, self.longest, random)
            start = cell * self.longest + random.integers(self.longest - length + 1)
            spans.append((start, start + length))
            spans += [self._positive(start, start + length, len(words), random) for _ in range(self.n_positives)]
        return [join_words(words[start:end]) for start, end in spans]

    def _cells(self, n_cells: int, random: np.random.Generator) -> np.ndarray:
        """Cells of the document, each as long as the longest span, no two of them neighbours."""
        chosen = np.sort(random.choice(n_cells - self.n_anchors + 1, self.n_anchors, replace=False))
        cells: np.ndarray = chosen + np.arange(self.n_anchors)
        return cells

    def _positive(self, start: int, end: int, n_words: int, random: np.random.Generator) -> tuple[int, int]:
        if self.relation == "subsumed":
            length = self._length(_POSITIVE_SHAPE, end - start, random)
            first = random.integers(start, end - length + 1)
        elif self.relation == "adjacent":
            length = self._length(_POSITIVE_SHAPE, min(self.longest, max(start, n_words - end)), random)
            first = random.choice([at for at in (start - length, end) if 0 <= at <= n_words - length])
        else:
            length = self._length(_POSITIVE_SHAPE, self.longest, random)
            first = random.integers(max(0, start - length), min(end, n_words - length) + 1)
        return int(first), int(first + length)

    def _length(self, shape: tuple[int, int], longest: int, random: np.random.Generator) -> int:
        return int(random.beta(*shape) * (longest - self.shortest) + self.shortest)

    def _chunks(self, documents: Dataset, seed: int) -> Iterator[tuple[list[str], ...]]:
        for start in range(0, len(documents), CHUNK):
            rows = []
            for row, text in enumerate(documents[start : start + CHUNK]["text"], start):
                words = split_words(text)
                self._check(words, row)
                rows += [self.sample(words, np.random.default_rng((seed, row, i))) for i in range(self.n_samples)]
            yield tuple(list(column) for column in zip(*rows, strict=True))

    def _check(self, words: list[str], row: int) -> None:
        if len(words) < self.document_words:
            start = join_words(words[:8])
            raise InputError(
                f"document {row + 1} has {len(words)} words, but document_words is {self.document_words}: {start!r} "
                "... Give documents of at least so many, or a smaller document_words: spans shrink with it"
            )
