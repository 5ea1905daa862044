"""Queries with lists of positive and negative candidates, as re-ranking data sets have them, read as scored pairs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from transencoder.errors import InputError
from transencoder.pairs.columns import Wanted
from transencoder.pairs.read import open_source
from transencoder.pairs.rows import BadRow, Row, Table, why_no_text
from transencoder.pairs.source import Source
from transencoder.pairs.store import store_rows
from transencoder.wording import plural, shorten

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

_COLUMNS = ("query", "positive", "negative")
_CANDIDATES = Wanted(result=_COLUMNS, known=(_COLUMNS,))


def read_candidates(source: Source) -> Dataset:
    """Read queries with their candidates as pairs of a query and a candidate, checked one by one.

    A query without a positive or without a negative candidate is left out, and their number logged. A candidate
    that is there twice is kept, as sentence-transformers keeps it, and counted in a warning.

    Args:
        source: its columns are the query, a text, and the positive and the negative candidates, lists of texts, which
            JSONL, Parquet, the hub and a Dataset can hold. Default: `query`, `positive` and `negative`.

    Returns:
        Columns `sentence1` (the query), `sentence2` (the candidate), `score` (1.0 positive, 0.0 negative) and
        `query` (int64, the row of the source, from 0: two queries of the same text remain two).

    Raises:
        InputError: with `path:line`, what was read, what is allowed and what to do.
        RunError: the cache folder cannot be written.
    """
    with open_source(replace(source, columns=source.columns or _COLUMNS), _CANDIDATES) as opened:
        rows = _flattened(opened.table, opened.bad_rows.name)
        return store_rows(rows, ("sentence1", "sentence2", "score", "query"), opened.folder, opened.bad_rows)


def _flattened(table: Table, name: str) -> Iterator[Row]:
    """Yield one row a candidate: query, candidate, score, number of the query."""
    n_queries = n_left_out = 0
    for row in table.rows:
        query, positive, negative = _checked(row, table.columns, name)
        if positive and negative:
            for candidates, score in ((positive, 1.0), (negative, 0.0)):
                yield from (Row(row.number, (query, candidate, score, n_queries)) for candidate in candidates)
        else:
            n_left_out += 1
        n_queries += 1
    if n_left_out == n_queries:
        raise InputError(
            f"{name}: of {plural(n_queries, 'row')} none has both positive and negative candidates, so nothing "
            "can be ranked. At least one row is needed. Was it written to the end, and is the split right?"
        )
    if n_left_out:
        logger.info(
            "%s: %d of %d queries are left out: they have no positive or no negative candidate",
            name,
            n_left_out,
            n_queries,
        )


def _checked(row: Row | BadRow, columns: tuple[str, ...], name: str) -> tuple[str, list[str], list[str]]:
    bad = row if isinstance(row, BadRow) else _fault(row, columns)
    if bad is not None:
        raise InputError(f"{bad.message(name)} Correct the row.")
    return row.values  # type: ignore[return-value, union-attr]


def _fault(row: Row, columns: tuple[str, ...]) -> BadRow | None:
    query, *lists = row.values
    texts = [(columns[0], query)]
    for column, candidates in zip(columns[1:], lists, strict=True):
        if not isinstance(candidates, list):
            reason = f"{column} is {shorten(candidates)}, of type {type(candidates).__name__}"
            return BadRow(row.number, reason, "It must be a list of texts, which may be empty", query)
        texts += [(f"{column}[{position}]", text) for position, text in enumerate(candidates)]
    for column, text in texts:
        reason, advice = why_no_text(text)
        if reason:
            return BadRow(row.number, f"{column} {reason}", advice, query)
    return None
