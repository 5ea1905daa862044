"""Queries with lists of positive and negative candidates, as re-ranking data sets have them, read as scored pairs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from transencoder.wording import plural, shorten

from ..errors import InputError
from .checks import BadRows, why_no_text
from .columns import Wanted
from .read import open_table
from .rows import BadRow, Row, Table
from .sources import Place, find_source
from .store import cache_folder_for_rows, store_rows

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

_COLUMNS = ("query", "positive", "negative")


def read_candidates(
    source: str | os.PathLike[str] | Dataset,
    *,
    columns: Sequence[str] = _COLUMNS,
    split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_folder: str | os.PathLike[str] | None = None,
    data_folder: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Read queries with their candidates as pairs of a query and a candidate, checked one by one.

    A query without a positive or without a negative candidate is left out, and their number logged. A candidate
    that is there twice is kept, as sentence-transformers keeps it, and counted in a warning.

    Args:
        source: as in `read_pairs`; JSONL, Parquet, the hub and a Dataset can hold lists.
        columns: names of the query, a text, and of the positive and the negative candidates, lists of texts.
        split: as in `read_pairs`.
        config: as in `read_pairs`.
        revision: as in `read_pairs`.
        token: as in `read_pairs`.
        cache_folder: as in `read_pairs`.
        data_folder: as in `read_pairs`.

    Returns:
        Columns `sentence1` (the query), `sentence2` (the candidate), `score` (1.0 positive, 0.0 negative) and
        `query` (int64, the row of the source, from 0: two queries of the same text remain two).

    Raises:
        InputError: with `path:line`, what was read, what is allowed and what to do.
        RunError: the cache folder cannot be written.
    """
    wanted = Wanted(result=_COLUMNS, known=(_COLUMNS,), columns=tuple(columns), score_names=())
    place = Place(
        split=split,
        config=config,
        revision=revision,
        token=token,
        cache_folder=None if cache_folder is None else Path(cache_folder).expanduser(),
        data_folder=None if data_folder is None else Path(data_folder).expanduser(),
    )
    name, found = find_source(source, place)
    folder = cache_folder_for_rows(place.cache_folder)
    nothing_skipped = BadRows(name, skip=False, path=None)
    with open_table(found, name, wanted, folder) as table:
        names = ("sentence1", "sentence2", "score", "query")
        return store_rows(_flattened(table), names, folder, name, nothing_skipped, drop=False)


def _flattened(table: Table) -> Iterator[Row]:
    """One row a candidate: query, candidate, score, number of the query."""
    n_queries = n_left_out = 0
    for row in table.rows:
        query, positive, negative = _checked(row, table)
        if positive and negative:
            for candidates, score in ((positive, 1.0), (negative, 0.0)):
                yield from (Row(row.number, (query, candidate, score, n_queries)) for candidate in candidates)
        else:
            n_left_out += 1
        n_queries += 1
    if n_left_out == n_queries:
        raise InputError(
            f"{table.name}: of {plural(n_queries, 'row')} none has both positive and negative candidates, so nothing "
            "can be ranked. At least one row is needed. Was it written to the end, and is the split right?"
        )
    if n_left_out:
        logger.info(
            "%s: %d of %d queries are left out: they have no positive or no negative candidate",
            table.name,
            n_left_out,
            n_queries,
        )


def _checked(row: Row | BadRow, table: Table) -> tuple[str, list[str], list[str]]:
    if isinstance(row, BadRow):
        _refuse(table.name, row)
    query, *lists = row.values
    texts = [(table.columns[0], query)]
    for column, candidates in zip(table.columns[1:], lists, strict=True):
        if not isinstance(candidates, list):
            reason = f"{column} is {shorten(candidates)}, of type {type(candidates).__name__}"
            _refuse(table.name, BadRow(row.number, reason, "It must be a list of texts, which may be empty", query))
        texts += [(f"{column}[{position}]", text) for position, text in enumerate(candidates)]
    for column, text in texts:
        reason, advice = why_no_text(text)
        if reason:
            _refuse(table.name, BadRow(row.number, f"{column} {reason}", advice, query))
    return query, *lists  # type: ignore[return-value]


def _refuse(name: str, row: BadRow) -> NoReturn:
    raise InputError(f"{name}:{row.number}: {row.reason}. Read: {shorten(row.read)}. {row.advice}. Correct the row.")
