"""Views: a sentence -> another text of the same meaning, or of nearly the same; and training pairs made of them.

A view takes texts and one random generator for each, and gives as many texts back: what comes out depends on the seed
and the row, not on how the rows were cut into chunks or spread over processes.
"""

import os
import random as python_random
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from datasets import Dataset

from transencoder import progress
from transencoder.errors import InputError

_CHUNK = 1024
_WORD = re.compile(r"\w+(?:['’-]\w+)*")

Randoms = list[python_random.Random]
View = Callable[[list[str], Randoms], list[str]]


def as_is(texts: list[str], randoms: Randoms) -> list[str]:
    """The texts themselves: dropout alone then makes two views differ (SimCSE)."""
    return texts


@dataclass(frozen=True, kw_only=True)
class SpanMask:
    """One span of characters becomes the mask token (Mirror-BERT, section 2.1)."""

    mask_token: str
    """The tokenizer's own; the released code writes `[MASK]` whatever the model."""
    n_characters: int = 5
    """Length of the span (released code: 5)."""
    min_characters: int = 30
    """Shorter texts stay as they are (released code: 30)."""

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """The texts, each with a span masked where it stands.

        The released code masks the first place where the same characters stand instead.
        """
        return [self._mask(text, random) for text, random in zip(texts, randoms, strict=True)]

    def _mask(self, text: str, random: python_random.Random) -> str:
        if len(text) < max(self.min_characters, self.n_characters):
            return text
        start = random.randrange(len(text) - self.n_characters + 1)
        return f"{text[:start]} {self.mask_token} {text[start + self.n_characters :]}"


@dataclass(frozen=True, kw_only=True)
class WordDeletion:
    """Each word goes with the same probability; one of them always stays."""

    share: float = 0.2
    """Probability that a word goes, 0 to below 1."""

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        if not 0.0 <= self.share < 1.0:
            raise InputError(f"share is {self.share}; it is a share of the words, 0 to below 1")

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """The texts, each with fewer words."""
        return [self._delete(text, random) for text, random in zip(texts, randoms, strict=True)]

    def _delete(self, text: str, random: python_random.Random) -> str:
        words = text.split()
        if len(words) < 2:
            return text
        always = random.randrange(len(words))
        return " ".join(word for i, word in enumerate(words) if random.random() >= self.share or i == always)


@dataclass(frozen=True, kw_only=True)
class Synonyms:
    """One word, of those that have synonyms, is replaced by one of them (SCT, section 5.3.3)."""

    table: Mapping[str, tuple[str, ...]]
    """Lower-cased word -> its synonyms."""

    def __call__(self, texts: list[str], randoms: Randoms) -> list[str]:
        """The texts, each with a word replaced where one can be."""
        return [self._replace(text, random) for text, random in zip(texts, randoms, strict=True)]

    def _replace(self, text: str, random: python_random.Random) -> str:
        words = [match for match in _WORD.finditer(text) if match.group().lower() in self.table]
        if not words:
            return text
        word = random.choice(words)
        synonym = random.choice(self.table[word.group().lower()])
        if word.group()[0].isupper():
            synonym = synonym[0].upper() + synonym[1:]
        return text[: word.start()] + synonym + text[word.end() :]


class PairMaker(Protocol):
    """Makes training pairs of sentences; its `repr` says all that decides what comes out, besides the seed."""

    def __call__(self, texts: Dataset, file: Path, seed: int, /) -> Dataset:
        """Write the pairs, streamed: memory does not grow with the rows.

        Args:
            texts: n sentences or documents in `text`.
            file: The Arrow file to write; it gets its name when it is complete.
            seed: With the row, it decides what comes out.

        Returns:
            `sentence1`, `sentence2` and, for some makers, `label`, memory-mapped.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class TwoViews:
    """Two views of each sentence: n pairs of one meaning."""

    first: View
    """Makes `sentence1`."""
    second: View
    """Makes `sentence2`."""

    def __call__(self, sentences: Dataset, file: Path, seed: int, n_processes: int = 1) -> Dataset:
        """Write the pairs; for more than one process both views must be picklable.

        Raises:
            InputError: A view gave another number of texts than it was given, or an empty one.
        """
        schema = pa.schema([("sentence1", pa.string()), ("sentence2", pa.string())])
        return _write(file, schema, _chunks(sentences, (self.first, self.second), seed, n_processes), len(sentences))

    def __repr__(self) -> str:
        """The views by name, without addresses of functions."""
        first, second = (getattr(view, "__qualname__", repr(view)) for view in (self.first, self.second))
        return f"TwoViews({first}, {second})"


@dataclass(frozen=True, kw_only=True)
class Contrasts:
    """Each sentence with itself, label 1, and random pairs of different sentences, label 0 (Contrastive Tension)."""

    n_negatives: int = 7
    """Pairs of different sentences for each sentence (paper: 7)."""

    def __call__(self, sentences: Dataset, file: Path, seed: int) -> Dataset:
        """Write n (1 + n_negatives) pairs.

        Raises:
            InputError: There is one sentence only.
        """
        if len(sentences) < 2:
            raise InputError("there is 1 sentence; a pair of different ones needs at least 2")
        schema = pa.schema([("sentence1", pa.string()), ("sentence2", pa.string()), ("label", pa.float32())])
        return _write(file, schema, self._chunks(sentences, seed), len(sentences) * (1 + self.n_negatives))

    def _chunks(self, sentences: Dataset, seed: int) -> Iterator[tuple[list[str], list[str], list[float]]]:
        n, size = len(sentences), 1 + self.n_negatives
        for start in range(0, n, _CHUNK):
            rows = np.arange(start, min(start + _CHUNK, n))
            random = np.random.default_rng((seed, start))
            firsts = random.integers(n, size=(len(rows), size))
            seconds = (firsts + random.integers(1, n, size=firsts.shape)) % n  # never the same row
            firsts[:, 0] = seconds[:, 0] = rows
            labels = np.tile(np.arange(size) == 0, len(rows)).astype(np.float32)
            texts = (sentences[flat.reshape(-1).tolist()]["text"] for flat in (firsts, seconds))
            yield (*texts, labels.tolist())


def _write(file: Path, schema: pa.Schema, chunks: Iterator[tuple[list[Any], ...]], total: int) -> Dataset:
    unfinished = file.with_name(f".tmp-{file.name}")
    with (
        pa.OSFile(str(unfinished), "wb") as sink,
        pa.ipc.new_stream(sink, schema) as writer,
        progress.task("make pairs", total) as advance,
    ):
        for columns in chunks:
            writer.write_batch(
                pa.record_batch(
                    [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)], schema
                )
            )
            advance(len(columns[0]))
    os.replace(unfinished, file)
    return Dataset.from_file(str(file))


def _chunks(
    sentences: Dataset, views: tuple[View, View], seed: int, n_processes: int
) -> Iterator[tuple[list[str], list[str]]]:
    """Both views of one chunk after the other; in other processes at most two chunks a process are under way."""
    starts = range(0, len(sentences), _CHUNK)
    chunks = ((sentences[start : start + _CHUNK]["text"], views, seed, start) for start in starts)
    if n_processes == 1:
        yield from (_make(*chunk) for chunk in chunks)
        return
    with ExitStack() as stack:
        pool = stack.enter_context(ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")))
        under_way: deque[Future[tuple[list[str], list[str]]]] = deque()
        for chunk in chunks:
            under_way.append(pool.submit(_make, *chunk))
            if len(under_way) >= 2 * n_processes:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


def _make(texts: list[str], views: tuple[View, View], seed: int, start: int) -> tuple[list[str], list[str]]:
    sides = []
    for side, view in enumerate(views):
        randoms = [python_random.Random(f"{seed} {side} {start + i}") for i in range(len(texts))]
        made = view(texts, randoms)
        if len(made) != len(texts) or not all(text.strip() for text in made):
            raise InputError(
                f"the view {view!r} gave {len(made)} texts for {len(texts)} from row {start} on, "
                f"{sum(not text.strip() for text in made)} of them empty; it must give one text for each"
            )
        sides.append(made)
    return sides[0], sides[1]
