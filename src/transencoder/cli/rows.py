"""Rows of a data set into a file of the format its name says, or as TSV to stdout."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from transencoder.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset

STDOUT = "-"

_BATCH_ROWS = 10_000


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


def check_texts(sentences: Dataset, output: str | None) -> None:
    """Refuse texts that the file cannot hold before the work on them is done.

    Args:
        sentences: n texts in `text`.
        output: File name or `-`; None: there is none.

    Raises:
        InputError: A text has a tab or a line end, and the file is a TSV.
    """
    if output == STDOUT or Path(output or "").suffix == ".tsv":
        for rows in sentences.iter(batch_size=_BATCH_ROWS):
            for text in rows["text"]:
                _refuse_marks([text])


def write_rows(pairs: Dataset, output: str, scores: np.ndarray | None = None) -> None:
    """Write `sentence1`, `sentence2` and, where given, `score`.

    Args:
        pairs: n rows.
        output: File name, or `-`.
        scores: float32 (n,).

    Raises:
        InputError: As `check_output`, or a text with a tab or line end, which TSV cannot hold.
    """
    check_output(output)
    if output == STDOUT:
        _write_tsv(_batches(pairs, scores), sys.stdout)
        return
    with whole_file(output) as temporary:
        _FORMATS[Path(output).suffix](_batches(pairs, scores), temporary)


@contextmanager
def whole_file(output: str) -> Iterator[Path]:
    """A name to write to; the file gets its own name when all is written, or is never there.

    Raises:
        InputError: The file cannot be written.
    """
    temporary = Path(output).with_name(f".{Path(output).name}.tmp")
    try:
        yield temporary
        os.replace(temporary, output)
    except OSError as error:
        raise InputError(f"{output} cannot be written ({error.strerror}). Choose another --output.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _batches(pairs: Dataset, scores: np.ndarray | None) -> Iterator[dict[str, list[Any]]]:
    for start in range(0, len(pairs), _BATCH_ROWS):
        rows = pairs[start : start + _BATCH_ROWS]
        batch = {name: list(rows[name]) for name in ("sentence1", "sentence2")}
        if scores is not None:  # nine digits hold a float32 exactly
            batch["score"] = [float(f"{score:.9g}") for score in scores[start : start + _BATCH_ROWS]]
        yield batch


def _write_tsv(batches: Iterator[dict[str, list[Any]]], file: TextIO) -> None:
    for number, batch in enumerate(batches):
        if number == 0:
            file.write("\t".join(batch) + "\n")
        for row in zip(*batch.values(), strict=True):
            _refuse_marks(row[:2])
            file.write("\t".join(map(str, row)) + "\n")


def _refuse_marks(texts: Sequence[str]) -> None:
    if any(mark in text for text in texts for mark in "\t\n\r"):
        raise InputError(
            f"a text holds a tab or a line end, which TSV cannot: {texts!r}. Write .jsonl, .csv or .parquet."
        )


def _tsv(batches: Iterator[dict[str, list[Any]]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        _write_tsv(batches, file)


def _csv(batches: Iterator[dict[str, list[Any]]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        for number, batch in enumerate(batches):
            if number == 0:
                writer.writerow(batch)
            writer.writerows(zip(*batch.values(), strict=True))


def _jsonl(batches: Iterator[dict[str, list[Any]]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        for batch in batches:
            for row in zip(*batch.values(), strict=True):
                file.write(json.dumps(dict(zip(batch, row, strict=True)), ensure_ascii=False) + "\n")


def _parquet(batches: Iterator[dict[str, list[Any]]], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    writer = None
    for batch in batches:
        table = pa.table(batch)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


_FORMATS: dict[str, Callable[[Iterator[dict[str, list[Any]]], Path], None]] = {
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".parquet": _parquet,
}
