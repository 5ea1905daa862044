"""Rows into a file of the format its name says, or to stdout as TSV or JSON lines."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from transencoder import files
from transencoder.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset

STDOUT = "-"

_BATCH_ROWS = 10_000
_TEXTS = ("text", "sentence1", "sentence2")


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
    """Write `sentence1`, `sentence2` and, where given, `score`.

    Args:
        pairs: n rows.
        output: File name, or `-`.
        scores: float32 (n,).

    Raises:
        InputError: As `check_output`, or a text with a tab or line end, which TSV cannot hold.
    """
    write_table(_batches(pairs, scores), output)


def nine_digits(score: float) -> float:
    """A float32 as a float of nine digits, which hold it exactly and are no longer to read."""
    return float(f"{score:.9g}")


Batch = dict[str, list[Any]]
"""Some rows: column -> values."""


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
        (_write_jsonl if as_json else _write_tsv)(batches, sys.stdout)
        return
    with whole_file(output) as temporary:
        _FORMATS[Path(output).suffix](batches, temporary)


@contextmanager
def whole_file(output: str) -> Iterator[Path]:
    """A name to write to; the file gets its own name when all is written, or is never there.

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


def _write_tsv(batches: Iterable[Batch], file: TextIO) -> None:
    for number, batch in enumerate(batches):
        if number == 0:
            file.write("\t".join(batch) + "\n")
        for row in zip(*batch.values(), strict=True):
            _refuse_marks([value for value in row if isinstance(value, str)])
            file.write("\t".join(map(str, row)) + "\n")


def _refuse_marks(texts: Sequence[str]) -> None:
    if any(mark in text for text in texts for mark in "\t\n\r"):
        raise InputError(
            f"a text holds a tab or a line end, which TSV cannot: {texts!r}. Write .jsonl, .csv or .parquet."
        )


def _tsv(batches: Iterable[Batch], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        _write_tsv(batches, file)


def _csv(batches: Iterable[Batch], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        for number, batch in enumerate(batches):
            if number == 0:
                writer.writerow(batch)
            writer.writerows(zip(*batch.values(), strict=True))


def _jsonl(batches: Iterable[Batch], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        _write_jsonl(batches, file)


def _write_jsonl(batches: Iterable[Batch], file: TextIO) -> None:
    for batch in batches:
        for row in zip(*batch.values(), strict=True):
            file.write(json.dumps(dict(zip(batch, row, strict=True)), ensure_ascii=False) + "\n")


def _parquet(batches: Iterable[Batch], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    writer = None
    for batch in batches:
        table = pa.table(batch)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


_FORMATS: dict[str, Callable[[Iterable[Batch], Path], None]] = {
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".parquet": _parquet,
}
