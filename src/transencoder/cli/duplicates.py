"""`duplicates`: clusters of sentences that say the same, and the file without the repetitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from transencoder.cli.files import (
    STDOUT,
    Batch,
    Rows,
    Where,
    check_output,
    check_texts,
    nine_digits,
    read_texts,
    write_table,
)
from transencoder.cli.flags import argument, option
from transencoder.cli.search import Embedding
from transencoder.cli.terminal import show
from transencoder.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder.search import Duplicates

_BAR = 40
"""Characters of the longest bar."""
_BIN = 0.05
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, kw_only=True)
class DuplicateOptions:
    """Options of `duplicates`."""

    sentences: str = argument("SENTENCES")
    """TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id"""
    output: str = option(metavar="FILE")
    """.tsv, .csv, .jsonl or .parquet; -: TSV to stdout"""
    kept: str | None = option(None, metavar="FILE")
    """write the sentences without near-duplicates: the centre of each cluster"""
    column: str | None = option(None, metavar="NAME")
    """the sentences' column (default: text, else the first)"""
    threshold: float | None = None
    """least score with a cluster's centre (default: the valley in the histogram of nearest scores)"""
    embedding: Embedding
    rows: Rows
    where: Where


def duplicates(options: DuplicateOptions) -> None:
    """Find clusters of near-duplicate sentences: cluster, score, number, sentence."""
    outputs = [options.output, *filter(None, (options.kept,))]
    for output in outputs:
        check_output(output, source=options.sentences)
    if options.threshold is not None and not 0.0 < options.threshold <= 1.0:
        raise InputError(f"--threshold is {options.threshold}; give a number above 0 and at most 1")
    from transencoder.search import find_duplicates, load_embedder

    sentences = read_texts(options.sentences, options.column, options.rows, options.where)
    for output in outputs:
        check_texts(sentences, output)
    embedder = load_embedder(**vars(options.embedding), **options.where.hub)
    found = find_duplicates(sentences, embedder, options.threshold)
    write_table(_rows(sentences, found), options.output)
    repeated = np.fromiter(found.repeated(), np.int64)
    if options.kept:
        write_table(_kept(sentences, repeated), options.kept)
    if options.output == STDOUT:
        return
    show(_histogram(found))
    show(_why(found))
    counts = f"{len(found.clusters):,} clusters; {len(repeated):,} of {len(sentences):,} sentences repeat another"
    show(f"{options.output}: {counts}")


def _rows(sentences: Dataset, found: Duplicates) -> Iterator[Batch]:
    members = [(number, *member) for number, cluster in enumerate(found.clusters, start=1) for member in cluster]
    for start in range(0, max(len(members), 1), _ROWS_AT_ONCE):
        some = members[start : start + _ROWS_AT_ONCE]
        yield {
            "cluster": [number for number, _, _ in some],
            "score": [nine_digits(score) for _, _, score in some],
            "number": [row + 1 for _, row, _ in some],
            "sentence": sentences[[row for _, row, _ in some]]["text"],
        }


def _kept(sentences: Dataset, repeated: np.ndarray) -> Iterator[Batch]:
    rows = np.setdiff1d(np.arange(len(sentences)), repeated)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        yield {"text": sentences[rows[start : start + _ROWS_AT_ONCE].tolist()]["text"]}


def _histogram(found: Duplicates) -> Table:
    """Draw how many sentences score how much with their nearest."""
    table = Table("score with the nearest", "sentences", "")
    table.columns[1].justify = "right"
    low = _BIN * np.floor(np.clip(found.nearest.min(initial=1.0), -1.0, 1.0 - _BIN) / _BIN)
    edges = np.arange(round((1.0 - low) / _BIN) + 1) * _BIN + low
    counts, _ = np.histogram(np.clip(found.nearest, low, 1.0), edges)
    for count, start in zip(counts[::-1], edges[-2::-1], strict=True):
        has_threshold = start <= found.threshold < start + _BIN
        bar = "█" * round(_BAR * count / max(counts.max(), 1)) or ("▏" if count else "")
        mark = f"{bar} ← threshold {found.threshold:.3f}" if has_threshold else bar
        table.add_row(f"{start:.2f} to {start + _BIN:.2f}", f"{count:,}", mark)
    return table


def _why(found: Duplicates) -> str:
    if found.valley:
        return (
            f"threshold {found.threshold:.3f}: the lowest point between the peaks at {found.valley.low_mode:.2f} and "
            f"{found.valley.high_mode:.2f} of the smoothed histogram; --threshold sets another"
        )
    if found.is_given:
        return f"threshold {found.threshold:.3f}, as given"
    return (
        "no second peak near 1 stands out of the histogram, so only sentences that are the same to the model are "
        "clustered; --threshold sets another"
    )
