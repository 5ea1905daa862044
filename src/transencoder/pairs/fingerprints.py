"""A name for a data set's content: the same rows give the same name, whatever they were read from."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transencoder.wording import shorten

from ..errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

_BLOCK_ROWS = 4096


def fingerprint(dataset: Dataset) -> str:
    """SHA-256 of the rows' content and order, as 64 hexadecimal digits.

    Columns count by name and content, not by order or Arrow type: texts as UTF-8 with their lengths, numbers
    as float64. Rows are taken in blocks of 4,096 so that neither memory nor the result depends on how the
    table is stored in chunks.

    Args:
        dataset: columns of text or numbers, no nulls. A selection or a shuffle counts as the rows it shows.

    Raises:
        InputError: a column is neither text nor number, or has nulls.
    """
    columns = sorted(dataset.column_names)
    digest = hashlib.sha256()
    _add(digest, b"transencoder rows 1")
    for column in columns:
        _add(digest, column.encode())
    arrow = dataset.with_format("arrow")
    for start in range(0, len(dataset), _BLOCK_ROWS):
        block = arrow[start : start + _BLOCK_ROWS]
        digest.update(np.uint64(block.num_rows).tobytes())
        for column in columns:
            _add_column(digest, column, block.column(column))
    return digest.hexdigest()


def _add(digest: Any, data: bytes) -> None:  # noqa: ANN401 - hashlib's objects have no public type
    digest.update(np.uint64(len(data)).tobytes())
    digest.update(data)


def _add_column(digest: Any, name: str, values: Any) -> None:  # noqa: ANN401 - pyarrow has no types
    if values.null_count:
        raise InputError(
            f"column {shorten(name)} has nulls. A fingerprint needs a value in every row. Fill them or leave "
            "those rows out."
        )
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type):
        _add_texts(digest, values)
    elif pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_boolean(values.type):
        digest.update(b"n")
        for chunk in values.chunks:
            numbers = chunk.cast(pa.uint8()) if pa.types.is_boolean(chunk.type) else chunk
            digest.update((numbers.to_numpy(zero_copy_only=False).astype("<f8") + 0.0).tobytes())
    else:
        raise InputError(
            f"column {shorten(name)} is of type {values.type}. A fingerprint takes text and numbers. Leave "
            "the column out."
        )


def _add_texts(digest: Any, values: Any) -> None:  # noqa: ANN401 - pyarrow has no types
    digest.update(b"t")
    chunks = [chunk.cast(pa.large_string()) for chunk in values.chunks]
    for chunk in chunks:
        digest.update(pc.binary_length(chunk).to_numpy().astype("<u8").tobytes())
    for chunk in chunks:
        _, offsets, data = chunk.buffers()
        if data is None or not len(chunk):
            continue
        bounds = np.frombuffer(offsets, dtype=np.int64)
        digest.update(memoryview(data)[bounds[chunk.offset] : bounds[chunk.offset + len(chunk)]])
