"""What a search reads beside plain sentences: documents with ids, and which documents answer which queries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .columns import KNOWN_PAIRS, Wanted
from .read import Checks, read_rows
from .sources import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasets import Dataset

_IDS = (("id", "text"), ("_id", "text"))
_RELEVANCE = (("query-id", "corpus-id"), *KNOWN_PAIRS)
_SCORES = ("score", "relevance", "label")


def read_documents(
    source: str | os.PathLike[str] | Dataset,
    *,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    split: str | None = None,
    token: str | bool | None = None,
    cache_folder: str | os.PathLike[str] | None = None,
    data_folder: str | os.PathLike[str] | None = None,
    skip_bad_rows: bool = False,
    bad_rows_file: str | os.PathLike[str] | None = None,
    file_format: str | None = None,
) -> Dataset:
    """Read texts with their ids, checked one by one.

    Args:
        source: as in `read_pairs`.
        columns: names of the id and of the text. Default: `id` or `_id`, and `text`, else the first two.
        header: as in `read_pairs`.
        split: as in `read_pairs`.
        token: as in `read_pairs`.
        cache_folder: as in `read_pairs`.
        data_folder: as in `read_pairs`.
        skip_bad_rows: as in `read_pairs`.
        bad_rows_file: as in `read_pairs`.
        file_format: as in `read_pairs`.

    Returns:
        Columns `id` and `text`.

    Raises:
        InputError: as in `read_pairs`.
        RunError: as in `read_pairs`.
    """
    wanted = Wanted(
        result=("id", "text"),
        known=_IDS,
        columns=None if columns is None else tuple(columns),
        score_names=(),
        header=header,
    )
    place = _place(split, token, cache_folder, data_folder, file_format)
    return read_rows(source, wanted, place, _checks(skip_bad_rows, bad_rows_file))


def read_relevance(
    source: str | os.PathLike[str] | Dataset,
    *,
    columns: Sequence[str] | None = None,
    score_column: str | None = None,
    header: bool | None = None,
    split: str | None = None,
    token: str | bool | None = None,
    cache_folder: str | os.PathLike[str] | None = None,
    data_folder: str | os.PathLike[str] | None = None,
    skip_bad_rows: bool = False,
    bad_rows_file: str | os.PathLike[str] | None = None,
    file_format: str | None = None,
) -> Dataset:
    """Read which documents answer which queries: a query and a document a row, as texts or as ids.

    Args:
        source: as in `read_pairs`.
        columns: names of the query and of the document. Default: `query-id` and `corpus-id`, those of `read_pairs`,
            else the first two.
        score_column: name of the relevance, above 0 where the document answers. Default: `score`, `relevance` or
            `label`; without such a column every row is an answer.
        header: as in `read_pairs`.
        split: as in `read_pairs`.
        token: as in `read_pairs`.
        cache_folder: as in `read_pairs`.
        data_folder: as in `read_pairs`.
        skip_bad_rows: as in `read_pairs`.
        bad_rows_file: as in `read_pairs`.
        file_format: as in `read_pairs`.

    Returns:
        Columns `sentence1` (the query), `sentence2` (the document) and, where there is one, `score`.

    Raises:
        InputError: as in `read_pairs`.
        RunError: as in `read_pairs`.
    """
    wanted = Wanted(
        result=("sentence1", "sentence2"),
        known=_RELEVANCE,
        columns=None if columns is None else tuple(columns),
        score_column=score_column,
        score_names=_SCORES,
        header=header,
    )
    place = _place(split, token, cache_folder, data_folder, file_format)
    return read_rows(source, wanted, place, _checks(skip_bad_rows, bad_rows_file))


def _place(
    split: str | None,
    token: str | bool | None,
    cache_folder: str | os.PathLike[str] | None,
    data_folder: str | os.PathLike[str] | None,
    file_format: str | None,
) -> Place:
    return Place(
        split=split,
        token=token,
        cache_folder=_path(cache_folder),
        data_folder=_path(data_folder),
        file_format=file_format,
    )


def _checks(skip_bad_rows: bool, bad_rows_file: str | os.PathLike[str] | None) -> Checks:
    return Checks(skip_bad_rows=skip_bad_rows, bad_rows_file=_path(bad_rows_file))


def _path(path: str | os.PathLike[str] | None) -> Path | None:
    return None if path is None else Path(path).expanduser()
