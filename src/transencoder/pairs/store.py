"""Rows to a memory-mapped Arrow file in the cache folder, named by its content."""

from __future__ import annotations

import array
import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from transencoder.files import move_into_place
from transencoder.pairs.files import unfinished_file, write_faults
from transencoder.pairs.fingerprints import find_duplicates, fingerprint, row_hash
from transencoder.pairs.rows import BadRow, BadRows, Row
from transencoder.wording import plural

if TYPE_CHECKING:
    from datasets import Dataset
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

_BATCH_ROWS = 4096
_BATCH_CHARACTERS = 1 << 22
_NUMBERS = {"score": pa.float64(), "query": pa.int64()}
"""Columns that are not text."""
_ADVICE = "State another cache folder with cache_folder (--cache-dir) or the variable TRANSENCODER_CACHE"


class RowIndex:
    """Hash and line number of each row that passed by: 16 bytes a row."""

    def __init__(self) -> None:
        self._hashes = array.array("Q")
        self._numbers = array.array("Q")

    def watch(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Hand the rows on, taking note of each."""
        for row in rows:
            self._hashes.append(row_hash(row.values))
            self._numbers.append(row.number)
            yield row

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """`row_hash` of each row, shape (rows,)."""
        return np.frombuffer(self._hashes, dtype=np.uint64)

    def number(self, row: int | np.int64) -> int:
        """Return the line a row was read from."""
        return self._numbers[int(row)]


def store_rows(rows: Iterator[Row], columns: Sequence[str], folder: Path, bad_rows: BadRows) -> Dataset:
    """Write rows to `<folder>/<fingerprint>.arrow` and open it memory-mapped.

    Only a complete file gets that name. Duplicates are counted and logged, or dropped where bad rows are.

    Args:
        rows: checked rows.
        columns: names for their values: texts, then `score` and the number of a `query` where there are such.
        folder: exists and is writable.
        bad_rows: has the source's name for messages, and takes the duplicates where they are dropped.
    """
    from datasets import Dataset

    schema = pa.schema([(column, _NUMBERS.get(column, pa.string())) for column in columns])
    index = RowIndex()
    with unfinished_file(folder / "rows.arrow", advice=_ADVICE) as draft:
        _write(_batches(index.watch(rows), schema), schema, draft)
        dataset = Dataset.from_file(str(draft))
        repeated = report_duplicates(dataset, index, bad_rows)
        if bad_rows.skips and len(repeated):
            with unfinished_file(folder / "kept.arrow", advice=_ADVICE) as kept:
                _write(_without(dataset, repeated), schema, kept)
                os.replace(kept, draft)
                dataset = Dataset.from_file(str(draft))
        final = folder / f"{fingerprint(dataset)}.arrow"
        move_into_place(draft, final)
    return Dataset.from_file(str(final))


def report_duplicates(dataset: Dataset, index: RowIndex, bad_rows: BadRows) -> NDArray[np.int64]:
    """Find the rows that repeat an earlier one in all columns; log them, or add them to the bad rows."""
    rows, firsts = find_duplicates(dataset, dataset.column_names, index.hashes)
    name = bad_rows.name
    if len(rows) and not bad_rows.skips:
        logger.warning(
            "%s: %s; the first: %s:%d is the same as %s:%d; all are kept (drop_duplicates=True in Python drops them)",
            name,
            plural(len(rows), "duplicate row"),
            name,
            index.number(rows[0]),
            name,
            index.number(firsts[0]),
        )
        return rows
    for start in range(0, len(rows), _BATCH_ROWS):
        part = slice(start, start + _BATCH_ROWS)
        values = map(list, zip(*dataset[rows[part]].values(), strict=True))
        for row, first, read in zip(rows[part], firsts[part], values, strict=True):
            reason = f"the same as {name}:{index.number(first)}"
            bad_rows.add(BadRow(index.number(row), reason, "", read), kind="duplicate")
    return rows


def cache_folder_for_rows(cache_folder: str | os.PathLike[str] | None) -> Path:
    """Make the folder for Arrow files in `cache_folder`, TRANSENCODER_CACHE or ~/.cache/transencoder."""
    root = Path(cache_folder or os.environ.get("TRANSENCODER_CACHE") or "~/.cache/transencoder").expanduser()
    folder = root / "rows"
    with write_faults(folder, advice=_ADVICE):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _batches(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while batch := _take(rows):
        columns = zip(*batch, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.record_batch(arrays, schema=schema)


def _take(rows: Iterator[Row]) -> list[Sequence[object]]:
    batch: list[Sequence[object]] = []
    characters = 0
    for row in itertools.islice(rows, _BATCH_ROWS):
        batch.append(row.values)
        characters += sum([len(value) for value in row.values if isinstance(value, str)])
        if characters > _BATCH_CHARACTERS:
            break
    return batch


def _without(dataset: Dataset, rows: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    keep = np.ones(len(dataset), dtype=np.bool_)
    keep[rows] = False
    start = 0
    for batch in dataset.data.to_batches():
        kept = batch.filter(pa.array(keep[start : start + len(batch)]))
        start += len(batch)
        if len(kept):
            yield kept


def _write(batches: Iterator[pa.RecordBatch], schema: pa.Schema, path: Path) -> None:
    with open(path, "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for batch in batches:
            with write_faults(path, advice=_ADVICE):
                writer.write_batch(batch)
