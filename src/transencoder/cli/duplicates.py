"""`duplicates`: clusters of sentences that say the same, and the file without the repetitions."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from transencoder.cli.options import Commands, add_command, add_data_options, add_row_options, read_texts
from transencoder.cli.rows import STDOUT, Batch, check_output, check_texts, nine_digits, write_table
from transencoder.cli.search import add_embedder_options, embedder_of
from transencoder.cli.terminal import show
from transencoder.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder.search import Duplicates

_BAR = 40
"""Characters of the longest bar."""
_BIN = 0.05
_ROWS_AT_ONCE = 10_000


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "duplicates", _run, "find clusters of near-duplicate sentences: cluster, score, number, sentence"
    )
    parser.add_argument(
        "sentences",
        metavar="SENTENCES",
        help="TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id",
    )
    parser.add_argument(
        "--output", required=True, metavar="FILE", help=".tsv, .csv, .jsonl or .parquet; -: TSV to stdout"
    )
    parser.add_argument(
        "--kept", metavar="FILE", help="write the sentences without near-duplicates: the centre of each cluster"
    )
    parser.add_argument("--column", metavar="NAME", help="the sentences' column (default: text, else the first)")
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="X",
        help="least score with a cluster's centre (default: the valley in the histogram of nearest scores)",
    )
    add_embedder_options(parser)
    add_row_options(parser)
    add_data_options(parser)


def _run(args: argparse.Namespace) -> None:
    for output in filter(None, (args.output, args.kept)):
        check_output(output, source=args.sentences)
    if args.threshold is not None and not 0.0 < args.threshold <= 1.0:
        raise InputError(f"--threshold is {args.threshold}; give a number above 0 and at most 1")
    from transencoder.search import find_duplicates

    sentences = read_texts(args.sentences, args)
    for output in filter(None, (args.output, args.kept)):
        check_texts(sentences, output)
    found = find_duplicates(sentences, embedder_of(args), args.threshold)
    write_table(_rows(sentences, found), args.output)
    repeated = np.fromiter(found.repeated(), np.int64)
    if args.kept:
        write_table(_kept(sentences, repeated), args.kept)
    if args.output == STDOUT:
        return
    show(_histogram(found))
    show(_why(found))
    n_clusters, n_repeated = len(found.clusters), len(repeated)
    show(f"{args.output}: {n_clusters:,} clusters; {n_repeated:,} of {len(sentences):,} sentences repeat another")


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
    """How many sentences score how much with their nearest."""
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
