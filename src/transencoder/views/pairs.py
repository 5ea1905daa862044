"""Training rows made of texts: two views of each, contrasts with others, or spans; and a comparison of views."""

import hashlib
import json
import math
import os
import random as python_random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from datasets import Dataset
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cpdist

from transencoder import distributed, progress
from transencoder.configs.run import SpanRows
from transencoder.errors import InputError, RunError
from transencoder.files import whole_file
from transencoder.scripts import join_words, split_words
from transencoder.views.texts import View, name_of

if TYPE_CHECKING:
    from transencoder.scorers import Scorer

CHUNK = 1024
"""Number of texts that are processed at a time."""

PairMaker = Callable[[Dataset, Path, int], Dataset]
"""Function that makes training rows of texts (column `text`) with a seed, and writes them to an Arrow file: columns
`sentence1`, `sentence2` and so on, and for some makers `label`. Memory does not grow with the rows. A maker's `repr`
states everything that determines the result, except the seed."""

_BLOCK_ROWS = 4096
_ANCHOR_SHAPE, _POSITIVE_SHAPE = (4, 2), (2, 4)
"""Parameters of the beta distributions of span lengths: anchors are rather long, positives rather short (DeCLUTR,
section 3.1)."""


@dataclass(frozen=True, kw_only=True)
class TwoViews:
    """Maker of two views of each sentence: n pairs of the same meaning, `sentence1` and `sentence2`."""

    first: View
    """View that makes `sentence1`."""
    second: View
    """View that makes `sentence2`."""

    def __call__(self, sentences: Dataset, file: Path, seed: int, n_processes: int = 1) -> Dataset:
        """Write the pairs; with more than one process, both views must be picklable.

        Raises:
            InputError: A view returned a different number of texts than it was given, or an empty text.
        """
        schema = pa.schema([("sentence1", pa.string()), ("sentence2", pa.string())])
        chunks = _chunks(sentences, (self.first, self.second), seed, n_processes)
        return _write(file, schema, chunks, len(sentences))

    def __repr__(self) -> str:
        """Return a text that names the views, without addresses of functions."""
        return f"TwoViews({name_of(self.first)}, {name_of(self.second)})"


@dataclass(frozen=True, kw_only=True)
class Contrasts:
    """Maker of pairs: each sentence with itself, label 1, and random different ones, label 0 (Contrastive Tension).

    The pairs with label 0 are drawn for 1,024 sentences at a time, seeded with the seed and the row of the first one.
    Sentences of different rows count as different: a sentence that occurs twice may, rarely, be paired with itself.
    """

    n_negatives: int = 7
    """Number of pairs of different sentences per sentence (paper: 7)."""

    def __call__(self, sentences: Dataset, file: Path, seed: int) -> Dataset:
        """Write n (1 + n_negatives) pairs: `sentence1`, `sentence2` and `label`.

        Raises:
            InputError: There is only one sentence.
        """
        if len(sentences) < 2:
            raise InputError("there is 1 sentence; a pair of different ones needs at least 2")
        schema = pa.schema([("sentence1", pa.string()), ("sentence2", pa.string()), ("label", pa.float32())])
        return _write(file, schema, self._chunks(sentences, seed), len(sentences) * (1 + self.n_negatives))

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


@dataclass(frozen=True, kw_only=True)
class Spans(SpanRows):
    """Maker of the rows of `SpanRows`, with spans of a tokenizer's tokens, as in the released code."""

    folder: Path
    """Model whose tokenizer is used, which must be a fast one; loaded when first needed."""

    def __call__(self, documents: Dataset, file: Path, seed: int) -> Dataset:
        """Write the rows, columns `sentence1` and so on.

        Raises:
            InputError: A document is too short.
        """
        schema = pa.schema([(f"sentence{i + 1}", pa.string()) for i in range(self.n_columns)])
        return _write(file, schema, self._chunks(documents, seed), len(documents) * self.n_samples)

    def __repr__(self) -> str:
        """Return a text with the settings and a hash of the tokenizer's content."""
        state = json.loads(self.tokenizer.backend_tokenizer.to_str())
        last_call = ("truncation", "padding")
        content = {name: part for name, part in state.items() if name not in last_call}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        own = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(SpanRows))
        return f"Spans({own}, tokenizer={digest[:16]})"

    @cached_property
    def tokenizer(self) -> Any:
        """Tokenizer of the model.

        Raises:
            InputError: The tokenizer is not a fast one.
        """
        from transformers import AutoTokenizer

        from transencoder.encoders import check_is_fast

        tokenizer = AutoTokenizer.from_pretrained(self.folder)
        check_is_fast(tokenizer, self.folder)
        return tokenizer

    def sample(self, n_tokens: int, random: np.random.Generator) -> list[tuple[int, int]]:
        """Draw the spans of one document, in the order of the columns: each span's first token and the one after it.

        Args:
            n_tokens: Number of tokens of the document, at least `document_words`.
            random: Generator of the draws.
        """
        spans = []
        for cell in self._cells(n_tokens // self.longest, random):
            length = self._length(_ANCHOR_SHAPE, self.longest, random)
            start = cell * self.longest + random.integers(self.longest - length + 1)
            spans.append((int(start), int(start + length)))
            spans += [self._positive(start, start + length, n_tokens, random) for _ in range(self.n_positives)]
        return spans

    def _cells(self, n_cells: int, random: np.random.Generator) -> np.ndarray:
        """Choose cells of the document, each as long as the longest span, no two of them neighbours."""
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
                places = self._places(row, text)
                for i in range(self.n_samples):
                    spans = self.sample(len(places), np.random.default_rng((seed, row, i)))
                    rows.append([text[places[first][0] : places[end - 1][1]] for first, end in spans])
            yield tuple(list(column) for column in zip(*rows, strict=True))

    def _places(self, row: int, text: str) -> list[tuple[int, int]]:
        """Return the start and end of each token of a document, in characters; refuse a document that is too short."""
        words = split_words(text)
        read = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        places: list[tuple[int, int]] = read["offset_mapping"]
        for found, n_found in (("words", len(words)), ("tokens", len(places))):
            if n_found < self.document_words:
                raise InputError(
                    f"document {row + 1} has {n_found} {found}, but document_words is {self.document_words}: "
                    f"{join_words(words[:8])!r} ... Give documents of at least so many, or a smaller "
                    "document_words: spans shrink with it"
                )
        return places


def _write(file: Path, schema: pa.Schema, chunks: Iterator[tuple[list[Any], ...]], total: int) -> Dataset:
    """Write chunks of rows, each with a list for every column, to an Arrow file, which gets its name at the end."""
    with (
        whole_file(file) as draft,
        pa.OSFile(str(draft), "wb") as sink,
        pa.ipc.new_stream(sink, schema) as writer,
        progress.task("make pairs", total) as advance,
    ):
        for columns in chunks:
            arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema))
            advance(len(columns[0]))
    return Dataset.from_file(str(file))


def _chunks(
    sentences: Dataset, views: tuple[View, View], seed: int, n_processes: int
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield both views of each chunk; with several processes at most two chunks per process are in progress.

    Raises:
        RunError: A process was killed, or could not begin.
    """
    chunks = ((sentences[start : start + CHUNK]["text"], start) for start in range(0, len(sentences), CHUNK))
    if n_processes == 1:
        yield from (_make(views, seed, *chunk) for chunk in chunks)
        return
    pool = ProcessPoolExecutor(
        n_processes, mp_context=get_context("spawn"), initializer=_start_process, initargs=(views, seed, os.getpid())
    )
    try:
        under_way: deque[Future[tuple[list[str], list[str]]]] = deque()
        for chunk in chunks:
            under_way.append(pool.submit(_make_in_process, *chunk))
            if len(under_way) >= 2 * n_processes:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except BrokenProcessPool as error:
        raise RunError(
            f"one of {n_processes} processes that make views has ended: it was killed, perhaps for want of memory "
            '(give fewer), or could not begin (a script needs `if __name__ == "__main__":`)'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_of_process: list[tuple[tuple[View, View], int]] = []
"""Views and seed of a process of the pool, sent to it once, since a view may hold a large table or load a model."""


def _start_process(views: tuple[View, View], seed: int, parent: int) -> None:
    distributed.end_with(parent)
    _of_process[:] = [(views, seed)]


def _make_in_process(texts: list[str], start: int) -> tuple[list[str], list[str]]:
    """Make the views of a chunk; after Ctrl-C, which the executor takes for the end of one chunk, of no further one."""
    if not _of_process:
        raise KeyboardInterrupt
    try:
        return _make(*_of_process[0], texts, start)
    except KeyboardInterrupt:
        _of_process.clear()
        raise


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


@dataclass(frozen=True, kw_only=True)
class ViewComparison:
    """Comparison of the two texts of pairs."""

    n_pairs: int
    edit_distance: float
    """Mean Levenshtein distance in characters; insertions, deletions and replacements cost 1 each."""
    edit_distance_std: float
    """Standard deviation of the distance over the pairs (divided by n)."""
    similarity: dict[str, float]
    """Mean score of the pairs by each scorer; for a bi-encoder the cosine, -1 to 1."""


def compare(pairs: Dataset, scorers: "Mapping[str, Scorer]") -> ViewComparison:
    """Compare the two texts of each pair.

    SCT wants views that are far apart in characters and close in meaning. Memory does not grow with the texts.

    Args:
        pairs: Data set with `sentence1` and `sentence2`, at least one row.
        scorers: Scorers that measure how close the meaning is, by name.
    """
    total = total_of_squares = 0  # whole numbers, whose sums are exact
    for block in progress.blocks("compare views", len(pairs), _BLOCK_ROWS):
        rows = pairs[block]
        distances = cpdist(rows["sentence1"], rows["sentence2"], scorer=Levenshtein.distance).tolist()
        total += sum(distances)
        total_of_squares += sum(distance**2 for distance in distances)
    variance = (total_of_squares * len(pairs) - total**2) / len(pairs) ** 2
    return ViewComparison(
        n_pairs=len(pairs),
        edit_distance=total / len(pairs),
        edit_distance_std=math.sqrt(max(0.0, variance)),
        similarity={name: float(scorer.score(pairs).mean(dtype=float)) for name, scorer in scorers.items()},
    )
