"""What passes from the readers to the checks: rows, bad rows, and how to show either in a message."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

logger = logging.getLogger(__name__)


class Row(NamedTuple):
    """One row as a format's reader found it."""

    number: int
    """Line where the row starts in a text file, row number in Parquet or a Dataset; from 1."""
    values: Sequence[object]


class BadRow(NamedTuple):
    """A row that cannot be used, and what to tell the user."""

    number: int
    reason: str
    advice: str
    read: object


@dataclass(frozen=True, kw_only=True)
class Table:
    """An open source whose columns are chosen."""

    name: str
    """What messages call it: the path as given, `<stdin>`, `<dataset>` or a hub id."""
    columns: tuple[str, ...]
    """The source's columns that are read: the texts, then the score where there is one."""
    rows: Iterator[Row | BadRow]
    has_header: bool = False
    has_text_scores: bool = False
    """Scores are written as text (TSV, CSV) and have to be parsed."""


def warn_of_short_slice(name: str, n_rows: int, rows: tuple[int, int | None]) -> None:
    """Say so when a split's slice, such as [0:1000], asks for more rows than there are."""
    start, stop = rows
    if stop is not None and n_rows < stop - start:
        logger.warning(
            "%s: the split's slice [%d:%d] asks for more rows than there are: %d read",
            name,
            start,
            stop,
            n_rows,
        )
