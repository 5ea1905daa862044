"""The files of commands: options of how rows are read, and rows written in the format that a file's name says."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from transencoder import files
from transencoder.cli.flags import option
from transencoder.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset

STDOUT = "-"
Batch = dict[str, list[Any]]
"""Some rows: column -> values."""

_BATCH_ROWS = 10_000
_TEXTS = ("text", "sentence1", "sentence2")


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where data sets come from."""

    data_folder: str | None = option(None, flag="--data-dir", metavar="DATA_DIR")
    """folder with data sets in the hub's layout (default: TRANSENCODER_DATA)"""
    cache_folder: str | None = option(None, flag="--cache-dir", metavar="CACHE_DIR")
    """folder for hub downloads and Arrow files (default: the usual ones)"""
    token: str | None = None
    """hub access token (default: the one you are logged in with)"""

    @property
    def hub(self) -> dict[str, Any]:
        """What `fetch` and other loaders of models take of it."""
        return {"token": self.token, "cache_folder": self.cache_folder}


@dataclass(frozen=True, kw_only=True)
class Rows(Where):
    """How the rows of a file are read, whatever its columns: parameters of `read_pairs` and its siblings."""

    split: str | None = None
    """split of a hub id or folder, such as test or validation[:1000]"""
    header: bool | None = None
    """whether a TSV or CSV has one (default: detected, an error where that is not certain)"""
    file_format: str | None = None
    """tsv, csv, jsonl or parquet, for stdin and files of another name"""
    skip_bad_rows: bool = False
    """count and leave out bad rows"""
    bad_rows_file: str | None = option(None, metavar="FILE")
    """with --skip-bad-rows: where they go, with the reason"""

    @property
    def is_said(self) -> bool:
        """Whether anything is said of how rows are read, beside where they come from."""
        return replace(self, data_folder=None, cache_folder=None, token=None) != type(self)()


@dataclass(frozen=True, kw_only=True)
class PairRows(Rows):
    """How a file of pairs is read."""

    columns: tuple[str, str] | None = option(None, metavar=("FIRST", "SECOND"))
    """names of the two text columns (default: known names, else the first two)"""


def read_texts(source: str, column: str | None, rows: Rows) -> Dataset:
    """Read sentences; stdin has one a line unless an option says otherwise."""
    from transencoder.pairs import read_sentences

    if source == STDOUT and not (column or rows.file_format or rows.header is not None):
        rows = replace(rows, file_format="txt")
    return read_sentences(source, column=column, **vars(rows))


def check_output(
    output: str, formats: tuple[str, ...] = (".tsv", ".csv", ".jsonl", ".parquet"), *, source: str = STDOUT
) -> None:
    """Refuse a file name before the work for it is done.

    Args:
        output: File name, or `-`.
        formats: Endings it may have.
        source: What is read, which must not be overwritten.

    Raises:
        InputError: Another ending, a folder that does not exist, or the file that is read.
    """
    if output != STDOUT and Path(output).exists() and Path(source).exists() and Path(output).samefile(source):
        raise InputError(f"--output is {output!r}, which is the file that is read. Choose another name.")
    if Path(output).suffix not in formats and (output != STDOUT or ".tsv" not in formats):
        raise InputError(f"--output is {output!r}. Its name must end in {' or '.join(formats)}.")
    if output != STDOUT and not Path(output).parent.is_dir():
        raise InputError(f"--output is {output!r}, but there is no folder {Path(output).parent}. Make it first.")


def check_texts(rows: Dataset, output: str | None) -> None:
    """Refuse texts that the file cannot hold before the work on them is done.

    Args:
        rows: n rows with texts in `text`, or in `sentence1` and `sentence2`.
        output: File name or `-`; None: there is none.

    Raises:
        InputError: A text has a tab or a line end, and the file is a TSV.
    """
    if output == STDOUT or Path(output or "").suffix == ".tsv":
        texts = rows.select_columns([name for name in _TEXTS if name in rows.column_names])
        for batch in texts.iter(batch_size=_BATCH_ROWS):
            for row in zip(*batch.values(), strict=True):
                _refuse_marks(row)


def write_rows(pairs: Dataset, output: str, scores: np.ndarray | None = None) -> None:
    """Write `sentence1`, `sentence2` and, where given, `score`, float32 (n,); raises what `write_table` does."""
    write_table(_batches(pairs, scores), output)


def nine_digits(score: float) -> float:
    """Return a float32 as a float of nine digits, which hold it exactly and are no longer to read."""
    return float(f"{score:.9g}")


def write_table(batches: Iterable[Batch], output: str, *, as_json: bool = False) -> None:
    """Write rows of any columns, the same in all batches.

    Args:
        batches: The rows, at least one batch, which may be empty.
        output: File name, or `-`.
        as_json: Write JSON lines to stdout instead of TSV.

    Raises:
        InputError: As `check_output`, or a text with a tab or line end, which TSV cannot hold.
    """
    check_output(output)
    if output == STDOUT:
        _write_lines(batches, sys.stdout, ".jsonl" if as_json else ".tsv")
        return
    with whole_file(output) as temporary:
        if output.endswith(".parquet"):
            _write_parquet(batches, temporary)
        else:
            with temporary.open("w", encoding="utf-8", newline="") as file:
                _write_lines(batches, file, Path(output).suffix)


@contextmanager
def whole_file(output: str) -> Iterator[Path]:
    """Yield a name to write to; the file gets its own name when all is written, or is never there.

    Raises:
        InputError: The file cannot be written.
    """
    try:
        with files.whole_file(Path(output)) as draft:
            yield draft
    except OSError as error:
        raise InputError(f"{output} cannot be written ({error.strerror}). Choose another --output.") from error


def _batches(pairs: Dataset, scores: np.ndarray | None) -> Iterator[Batch]:
    for start in range(0, len(pairs), _BATCH_ROWS):
        rows = pairs[start : start + _BATCH_ROWS]
        batch = {name: list(rows[name]) for name in ("sentence1", "sentence2")}
        if scores is not None:
            batch["score"] = list(map(nine_digits, scores[start : start + _BATCH_ROWS]))
        yield batch


def _write_lines(batches: Iterable[Batch], file: TextIO, ending: str) -> None:
    for number, batch in enumerate(batches):
        rows = zip(*batch.values(), strict=True)
        if ending == ".jsonl":
            for row in rows:
                file.write(json.dumps(dict(zip(batch, row, strict=True)), ensure_ascii=False) + "\n")
        elif ending == ".csv":
            csv.writer(file).writerows([*([batch] if number == 0 else []), *rows])
        else:
            file.write("\t".join(batch) + "\n" if number == 0 else "")
            for row in rows:
                _refuse_marks([value for value in row if isinstance(value, str)])
                file.write("\t".join(map(str, row)) + "\n")


def _write_parquet(batches: Iterable[Batch], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    writer = None
    for batch in batches:
        table = pa.table(batch)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def _refuse_marks(texts: Sequence[str]) -> None:
    if any(mark in text for text in texts for mark in "\t\n\r"):
        raise InputError(
            f"a text holds a tab or a line end, which TSV cannot: {texts!r}. Write .jsonl, .csv or .parquet."
        )
