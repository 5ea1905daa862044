"""Files of commands: options for reading rows, and writing of rows in the format that a file's name says."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import transencoder
from transencoder import files
from transencoder.cli.flags import option
from transencoder.cli.terminal import is_first_rank, stdout
from transencoder.configs.ranges import NO_URL
from transencoder.errors import InputError
from transencoder.runs.files import output_explained

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset

STDOUT = "-"
Row = tuple[Any, ...]

COLUMN = ("--columns", "--column")
"""Flags for the column of texts: the one that every command has, and the older one."""

_BATCH_ROWS = 10_000
_TEXTS = ("text", "sentence1", "sentence2")


@dataclass(frozen=True, kw_only=True)
class Hub:
    """Options for downloads from the hub."""

    cache_folder: str | None = option(None, flag="--cache-dir", metavar="CACHE_DIR")
    """folder for hub downloads and Arrow files (default: the usual ones)"""
    token: str | None = None
    """hub access token (default: the one you are logged in with)"""


@dataclass(frozen=True, kw_only=True)
class Where(Hub):
    """Options for where data sets come from."""

    data_folder: str | None = option(None, flag="--data-dir", metavar="DATA_DIR")
    """folder with data sets in the hub's layout (default: TRANSENCODER_DATA)"""

    @property
    def hub(self) -> dict[str, Any]:
        """The options that `fetch` and other loaders of models take."""
        return {"token": self.token, "cache_folder": self.cache_folder}


@dataclass(frozen=True, kw_only=True)
class Rows(Where):
    """Options for reading the rows of a file, whatever its columns: parameters of `read_pairs` and its siblings."""

    split: str | None = None
    """split of a hub id or folder, such as test or validation[:1000]"""
    header: bool | None = None
    """whether a TSV or CSV file has a header (default: detected, an error if that is not certain)"""
    file_format: str | None = None
    """format of stdin, or of files whose name does not tell: tsv, csv, jsonl, parquet or txt"""
    skip_bad_rows: bool = False
    """count and leave out bad rows"""
    bad_rows_file: str | None = option(None, metavar="FILE")
    """with --skip-bad-rows: file to write bad rows to, with the reasons"""

    @property
    def is_said(self) -> bool:
        """Whether any option for reading rows is given, besides where they come from."""
        return replace(self, data_folder=None, cache_folder=None, token=None) != type(self)()


@dataclass(frozen=True, kw_only=True)
class PairRows(Rows):
    """Options for reading a file of pairs."""

    columns: tuple[str, str] | None = option(None, metavar=("FIRST", "SECOND"))
    """names of the two text columns (default: known names, else the only two)"""


def read_texts(source: str, column: str | None, rows: Rows) -> Dataset:
    """Read sentences; stdin has one per line unless an option says otherwise."""
    if source == STDOUT and not (column or rows.file_format or rows.header is not None):
        rows = replace(rows, file_format="txt")
    return transencoder.read_sentences(source, column=column, **vars(rows))


def check_output(
    output: str, formats: tuple[str, ...] = (".tsv", ".csv", ".jsonl", ".parquet"), *, source: str = STDOUT
) -> None:
    """Check the name of an output before the work begins.

    Raises:
        InputError: It is a URL, has another ending or no existing folder, or is the file that is read.
    """
    if "://" in output:
        raise InputError(f"--output is {output!r}; {NO_URL}")
    if output != STDOUT and Path(output).exists() and Path(source).exists() and Path(output).samefile(source):
        raise InputError(f"--output is {output!r}, which is the file that is read. Choose another name.")
    if Path(output).suffix not in formats and (output != STDOUT or ".tsv" not in formats):
        raise InputError(f"--output is {output!r}. Its name must end in {' or '.join(formats)}.")
    if output != STDOUT and not Path(output).parent.is_dir():
        raise InputError(f"--output is {output!r}, but there is no folder {Path(output).parent}. Make it first.")


def check_texts(rows: Dataset, output: str | None) -> None:
    """Check, before the work begins, that no text has a tab or a line break if the output is a TSV."""
    if output == STDOUT or Path(output or "").suffix == ".tsv":
        for row in rows_of(rows, [name for name in _TEXTS if name in rows.column_names]):
            _refuse_marks(row)


def rows_of(dataset: Dataset, columns: list[str]) -> Iterator[Row]:
    """Yield the values of each row."""
    for batch in dataset.select_columns(columns).iter(batch_size=_BATCH_ROWS):
        yield from zip(*(batch[name] for name in columns), strict=True)


def write_pairs(pairs: Dataset, output: str, scores: np.ndarray | None = None) -> None:
    """Write `sentence1`, `sentence2` and, where given, `score`, float32 (n,)."""
    columns = ["sentence1", "sentence2"]
    rows = rows_of(pairs, columns)
    if scores is None:
        write_table(columns, rows, output)
    else:
        scored = ((*texts, nine_digits(score)) for texts, score in zip(rows, scores, strict=True))
        write_table([*columns, "score"], scored, output)


def nine_digits(score: float) -> float:
    """Return a float32 as a float of nine digits, which are exact and not longer than needed."""
    return float(f"{score:.9g}")


def write_table(columns: Sequence[str], rows: Iterable[Row], output: str, *, as_json: bool = False) -> None:
    """Write rows in the format of a file's name, or to stdout as TSV or JSON lines. Only the first rank writes."""
    check_output(output)
    if not is_first_rank():
        return
    if output == STDOUT:
        if isinstance(sys.stdout, TextIOWrapper):  # as in a file, whatever the terminal's encoding
            sys.stdout.reconfigure(encoding="utf-8", errors="strict")
        _write_lines(columns, rows, stdout(), ".jsonl" if as_json else ".tsv")
        return
    with whole_file(output) as temporary:
        if output.endswith(".parquet"):
            _write_parquet(columns, rows, temporary)
        else:
            with temporary.open("w", encoding="utf-8", newline="") as file:
                _write_lines(columns, rows, file, Path(output).suffix)


@contextmanager
def whole_file(output: str) -> Iterator[Path]:
    """Yield a temporary path to write to; the file appears under its own name only when all is written."""
    with output_explained(output), files.whole_file(Path(output)) as draft:
        yield draft


def _write_lines(columns: Sequence[str], rows: Iterable[Row], file: TextIO, ending: str) -> None:
    if ending == ".csv":
        csv.writer(file).writerows(chain([columns], rows))
    elif ending == ".jsonl":
        for row in rows:
            file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")
    else:
        file.write("\t".join(columns) + "\n")
        for row in rows:
            _refuse_marks([value for value in row if isinstance(value, str)])
            file.write("\t".join(map(str, row)) + "\n")


def _write_parquet(columns: Sequence[str], rows: Iterable[Row], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    left = iter(rows)

    def next_table() -> Any:
        some = list(islice(left, _BATCH_ROWS))
        return pa.table({name: [row[i] for row in some] for i, name in enumerate(columns)})

    table = next_table()
    with parquet.ParquetWriter(path, table.schema) as writer:
        while len(table):
            writer.write_table(table)
            table = next_table()


def _refuse_marks(texts: Sequence[str]) -> None:
    if any(mark in text for text in texts for mark in "\t\n\r"):
        raise InputError(
            f"a text holds a tab or a line end, which TSV cannot: {texts!r}. Write .jsonl, .csv or .parquet."
        )
