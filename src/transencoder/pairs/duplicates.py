"""Exact duplicates: found by 64-bit hashes in memory, confirmed on the rows, which stay on disk."""

from __future__ import annotations

import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import xxhash

if TYPE_CHECKING:
    from datasets import Dataset
    from numpy.typing import NDArray

_BLOCK_ROWS = 4096
_PARTS = 16


def drop_duplicates(dataset: Dataset) -> Dataset:
    """The data set without exact repetitions of (sentence1, sentence2); the first is kept, and the order.

    The result is a selection of the same table: texts stay where they are, 8 bytes a row are held in memory,
    and the data set is returned as it is when there are no duplicates. (a, b) and (b, a) are not duplicates.

    Args:
        dataset: columns `sentence1` and `sentence2`; others are kept, with the first row's values.
    """
    columns = ("sentence1", "sentence2")
    repeated, _ = find_duplicates(dataset, columns, row_hashes(dataset, columns))
    if not len(repeated):
        return dataset
    is_kept = np.ones(len(dataset), dtype=np.bool_)
    is_kept[repeated] = False
    return dataset.select(np.flatnonzero(is_kept), keep_in_memory=True)


def row_hash(values: Sequence[object]) -> int:
    """A 64-bit hash of a row's texts and numbers."""
    text = "\0".join([value if isinstance(value, str) else repr(value) for value in values])
    return xxhash.xxh3_64_intdigest(text.encode())


def row_hashes(dataset: Dataset, columns: Sequence[str]) -> NDArray[np.uint64]:
    """`row_hash` of the given columns of each row, shape (rows,)."""

    def each() -> Iterator[int]:
        for block in dataset.select_columns(list(columns)).with_format("arrow").iter(batch_size=_BLOCK_ROWS):
            yield from map(row_hash, zip(*(block.column(column).to_pylist() for column in columns), strict=True))

    return np.frombuffer(array.array("Q", each()), dtype=np.uint64)


def find_duplicates(
    dataset: Dataset, columns: Sequence[str], hashes: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that repeat an earlier one in the given columns, ascending, and for each the first such row.

    Args:
        dataset: the rows.
        columns: the columns that must be equal.
        hashes: `row_hash` of these columns, shape (rows,). Rows of one hash are compared, so a collision does
            no harm.
    """
    found: list[NDArray[np.int64]] = []
    firsts: list[NDArray[np.int64]] = []
    for part in range(_PARTS):  # a part of the hashes at a time, so that little memory is needed beside them
        grouped = _rows_of_repeated_hashes(hashes, part)
        while len(grouped):
            is_first = np.diff(hashes[grouped], prepend=~hashes[grouped[:1]]) != 0
            first = grouped[is_first][np.cumsum(is_first) - 1][~is_first]
            others = grouped[~is_first]
            same = _equal_rows(dataset, columns, first, others)
            found.append(others[same])
            firsts.append(first[same])
            grouped = others[~same]  # collisions: compared among themselves in the next round
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rows = np.concatenate(found)
    order = np.argsort(rows)
    return rows[order], np.concatenate(firsts)[order]


def _rows_of_repeated_hashes(hashes: NDArray[np.uint64], part: int) -> NDArray[np.int64]:
    """Rows whose hash another row has too, those of one hash together and ascending."""
    some_byte = hashes.view(np.uint8)[::8]
    rows = np.flatnonzero(some_byte % _PARTS == part)
    rows = rows[np.argsort(hashes[rows], kind="stable")]
    is_next = np.diff(hashes[rows]) == 0
    is_repeated = np.append(is_next, False) | np.append(False, is_next)
    repeated: NDArray[np.int64] = rows[is_repeated[: len(rows)]]
    return repeated


def _equal_rows(
    dataset: Dataset, columns: Sequence[str], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.bool_]:
    arrow = dataset.select_columns(list(columns)).with_format("arrow")
    same = np.ones(len(left), dtype=np.bool_)
    for start in range(0, len(left), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        left_rows, right_rows = arrow[left[block]], arrow[right[block]]
        for column in columns:
            same[block] &= _equal(left_rows.column(column), right_rows.column(column))
    return same


def _equal(left: Any, right: Any) -> NDArray[np.bool_]:  # noqa: ANN401 - pyarrow has no types
    equal: NDArray[np.bool_] = pc.equal(left.combine_chunks(), right.combine_chunks()).to_numpy(zero_copy_only=False)
    return equal
