"""Files that reading writes: a memory-mapped Arrow file in the cache folder, named by its content, and the bad rows."""

import array
import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets import Dataset

from transencoder.errors import RunError, plural
from transencoder.files import move_into_place, scratch_folder
from transencoder.pairs.content import find_duplicates, fingerprint, row_hash
from transencoder.pairs.rows import BadRow, BadRows, Row

logger = logging.getLogger(__name__)

_BATCH_ROWS = 4096
_BATCH_CHARACTERS = 1 << 22
_NUMBERS = {"score": pa.float64(), "query": pa.int64()}
"""Types of the columns that are not text."""
_CACHE_ADVICE = "State another cache folder with cache_folder (--cache-dir) or the variable TRANSENCODER_CACHE"
_BAD_ROWS_ADVICE = "State another bad_rows_file"


class RowIndex:
    """Hash and line number of each row that was read, 16 bytes per row."""

    def __init__(self) -> None:
        self._hashes = array.array("Q")
        self._numbers = array.array("Q")

    def watch(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows unchanged and record each one."""
        for row in rows:
            self._hashes.append(row_hash(row.values))
            self._numbers.append(row.number)
            yield row

    def duplicates(self, dataset: Dataset, bad_rows: BadRows) -> np.ndarray:
        """Return the stored rows that repeat an earlier one in all columns; log them, or add them to the bad rows."""
        hashes = np.frombuffer(self._hashes, dtype=np.uint64)
        rows, firsts = find_duplicates(dataset, dataset.column_names, hashes)
        if len(rows) and not bad_rows.skips:
            logger.warning(
                "%s: %s; the first: %s is the same as %s; all are kept (in Python drop_duplicates drops them)",
                bad_rows.name,
                plural(len(rows), "duplicate row"),
                bad_rows.place(self._numbers[int(rows[0])]),
                bad_rows.place(self._numbers[int(firsts[0])]),
            )
            return rows
        for start in range(0, len(rows), _BATCH_ROWS):
            part = slice(start, start + _BATCH_ROWS)
            values = zip(*dataset[rows[part]].values(), strict=True)
            for row, first, read in zip(rows[part].tolist(), firsts[part].tolist(), values, strict=True):
                reason = f"the same as {bad_rows.place(self._numbers[first])}"
                bad_rows.add(BadRow(self._numbers[row], reason, "", list(read)), kind="duplicate")
        return rows


def store_rows(rows: Iterator[Row], columns: Sequence[str], folder: Path, bad_rows: BadRows) -> Dataset:
    """Write rows to `<folder>/<fingerprint>.arrow` and open it memory-mapped.

    Only a complete file gets that name. Duplicates are counted and logged, or dropped if bad rows are skipped.

    Args:
        rows: checked rows.
        columns: names of their values: the texts, then, if present, `score` and `query`, the number of the query.
        folder: an existing, writable folder.
        bad_rows: handler that has the source's name for messages, and records the duplicates if they are dropped.
    """
    schema = pa.schema([(column, _NUMBERS.get(column, pa.string())) for column in columns])
    index = RowIndex()
    with _drafts(folder, _CACHE_ADVICE) as drafts:
        draft, kept = drafts / "rows.arrow", drafts / "kept.arrow"
        _write(_batches(index.watch(rows), schema), schema, draft)
        dataset = Dataset.from_file(str(draft))
        repeated = index.duplicates(dataset, bad_rows)
        if bad_rows.skips and len(repeated):
            _write(_without(dataset, repeated), schema, kept)
            draft, dataset = kept, Dataset.from_file(str(kept))
        final = folder / f"{fingerprint(dataset)}.arrow"
        move_into_place(draft, final)
    return Dataset.from_file(str(final))


@contextmanager
def watch_bad_rows(
    name: str, files: Sequence[str], *, skips: bool, can_skip: bool, path: Path | None
) -> Iterator[BadRows]:
    """Open the file for bad rows and yield their handler; at the end log their number and move the file into place.

    The file has one line per row and no header: `path:line`, the reason, the repr of what was read, tab-separated.
    After an error there is no file.
    """
    if path is None:
        bad_rows = BadRows(name, files, skips=skips, can_skip=can_skip)
        yield bad_rows
    else:
        explained = _write_faults(path, _BAD_ROWS_ADVICE)
        with _drafts(path.parent, _BAD_ROWS_ADVICE) as drafts, ExitStack() as stack:
            with _write_faults(path, _BAD_ROWS_ADVICE):
                file = stack.enter_context(open(drafts / path.name, "w", encoding="utf-8"))
            bad_rows = BadRows(name, files, skips=skips, can_skip=can_skip, write=explained(file.write))
            yield bad_rows
            with _write_faults(path, _BAD_ROWS_ADVICE):
                file.close()
                move_into_place(drafts / path.name, path)
    if bad_rows.count:
        written = f"written to {path}" if path else "written nowhere: state bad_rows_file to have them"
        logger.warning("%s: %s; %s", name, bad_rows.summary(), written)


def cache_folder_for_rows(cache_folder: str | os.PathLike[str] | None) -> Path:
    """Create the folder for Arrow files in `cache_folder`, TRANSENCODER_CACHE or ~/.cache/transencoder."""
    root = Path(cache_folder or os.environ.get("TRANSENCODER_CACHE") or "~/.cache/transencoder").expanduser()
    folder = root / "rows"
    with _write_faults(folder, _CACHE_ADVICE):
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


def _without(dataset: Dataset, rows: np.ndarray) -> Iterator[pa.RecordBatch]:
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
            with _write_faults(path, _CACHE_ADVICE):
                writer.write_batch(batch)


@contextmanager
def _drafts(folder: Path, advice: str) -> Iterator[Path]:
    """Create a folder for unfinished files in `folder`, which is created too if it is missing.

    Raises:
        RunError: the folder cannot be written to.
    """
    with ExitStack() as stack:
        with _write_faults(folder, advice):
            folder.mkdir(parents=True, exist_ok=True)
            drafts = stack.enter_context(scratch_folder(folder))
        yield drafts


@contextmanager
def _write_faults(path: Path, advice: str) -> Iterator[None]:
    """Turn an OSError of writing (no space, no permission) into a RunError that names the path."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{path} cannot be written: {error.strerror or error}. It needs a writable folder with room. {advice}."
        ) from error
