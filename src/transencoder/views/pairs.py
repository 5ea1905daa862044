"""Training pairs made of sentences: two views of each, or each with itself and with others."""

import random as python_random
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from datasets import Dataset

from transencoder import progress
from transencoder.errors import InputError
from transencoder.files import whole_file
from transencoder.views.texts import View, name_of

CHUNK = 1024
"""Texts at a time."""


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
        return write_pairs(
            file, schema, _chunks(sentences, (self.first, self.second), seed, n_processes), len(sentences)
        )

    def __repr__(self) -> str:
        """The views by name, without addresses of functions."""
        return f"TwoViews({name_of(self.first)}, {name_of(self.second)})"


@dataclass(frozen=True, kw_only=True)
class Contrasts:
    """Each sentence with itself, label 1, and random pairs of different sentences, label 0 (Contrastive Tension).

    The random pairs are drawn for 1,024 sentences at a time, from the seed and the first one's row. Different are
    sentences of different rows: one that stands in the text twice may, rarely, be drawn against itself.
    """

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
        return write_pairs(file, schema, self._chunks(sentences, seed), len(sentences) * (1 + self.n_negatives))

    def _chunks(self, sentences: Dataset, seed: int) -> Iterator[tuple[list[str], list[str], list[float]]]:
        n, size = len(sentences), 1 + self.n_negatives
        for start in range(0, n, CHUNK):
            rows = np.arange(start, min(start + CHUNK, n))
            random = np.random.default_rng((seed, start))
            firsts = random.integers(n, size=(len(rows), size))
            seconds = (firsts + random.integers(1, n, size=firsts.shape)) % n  # never the same row
            firsts[:, 0] = seconds[:, 0] = rows
            labels = np.tile(np.arange(size) == 0, len(rows)).astype(np.float32)
            texts = (sentences[flat.reshape(-1).tolist()]["text"] for flat in (firsts, seconds))
            yield (*texts, labels.tolist())


def write_pairs(file: Path, schema: pa.Schema, chunks: Iterator[tuple[list[Any], ...]], total: int) -> Dataset:
    """Write rows to an Arrow file, chunk by chunk, each a list for every column; the file gets its name at the end."""
    with (
        whole_file(file) as draft,
        pa.OSFile(str(draft), "wb") as sink,
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
    return Dataset.from_file(str(file))


def _chunks(
    sentences: Dataset, views: tuple[View, View], seed: int, n_processes: int
) -> Iterator[tuple[list[str], list[str]]]:
    """Both views of one chunk after the other; in other processes at most two chunks a process are under way."""
    chunks = ((sentences[start : start + CHUNK]["text"], start) for start in range(0, len(sentences), CHUNK))
    if n_processes == 1:
        yield from (_make(views, seed, *chunk) for chunk in chunks)
        return
    with ProcessPoolExecutor(
        n_processes, mp_context=get_context("spawn"), initializer=_start_process, initargs=(views, seed)
    ) as pool:
        under_way: deque[Future[tuple[list[str], list[str]]]] = deque()
        for chunk in chunks:
            under_way.append(pool.submit(_make_in_process, *chunk))
            if len(under_way) >= 2 * n_processes:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


_of_process: list[tuple[tuple[View, View], int]] = []
"""What a process of the pool makes, sent to it once: a view may hold a large table or load a model."""


def _start_process(views: tuple[View, View], seed: int) -> None:
    _of_process[:] = [(views, seed)]


def _make_in_process(texts: list[str], start: int) -> tuple[list[str], list[str]]:
    return _make(*_of_process[0], texts, start)


def _make(views: tuple[View, View], seed: int, texts: list[str], start: int) -> tuple[list[str], list[str]]:
    sides = []
    for side, view in enumerate(views):
        randoms = [python_random.Random(f"{seed} {side} {start + i}") for i in range(len(texts))]
        made = view(texts, randoms)
        if len(made) != len(texts) or not all(text.strip() for text in made):
            raise InputError(
                f"the view {name_of(view)} gave {len(made)} texts for {len(texts)} from row {start} on, "
                f"{sum(not text.strip() for text in made)} of them empty; it must give one text for each"
            )
        sides.append(made)
    return sides[0], sides[1]
