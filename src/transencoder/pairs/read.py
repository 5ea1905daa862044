"""The two public readers, and the one path both take: find, choose columns, check each row, store."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from .checks import BadRows, checked_rows
from .columns import KNOWN_PAIRS, KNOWN_TEXTS, Wanted
from .formats import READERS, read_dataset
from .rows import BadRow, Row, Table, warn_of_short_slice
from .sources import Place, find_source
from .store import RowIndex, cache_folder_for_rows, report_duplicates, store_rows
from .streams import File, open_stream

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True, kw_only=True)
class Checks:
    """What a reader asks of the rows beside their texts."""

    score_range: tuple[float, float] | None = None
    skip_bad_rows: bool = False
    bad_rows_file: Path | None = None

    def __post_init__(self) -> None:
        if self.bad_rows_file is not None and not self.skip_bad_rows:
            raise InputError(
                "bad_rows_file is stated without skip_bad_rows. It holds the rows that are skipped. State "
                "both, or neither."
            )
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            raise InputError(
                f"score_range is {self.score_range}. The lowest score comes first, then a higher one: (0, 5)."
            )


def read_pairs(
    source: str | os.PathLike[str] | Dataset,
    *,
    columns: Sequence[str] | None = None,
    score_column: str | None = None,
    header: bool | None = None,
    score_range: tuple[float, float] | None = None,
    split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_folder: str | os.PathLike[str] | None = None,
    data_folder: str | os.PathLike[str] | None = None,
    skip_bad_rows: bool = False,
    bad_rows_file: str | os.PathLike[str] | None = None,
    file_format: str | None = None,
) -> Dataset:
    """Read sentence pairs, checked row by row, as a memory-mapped data set.

    A path that exists wins, then the data folder, then the hub. Rows stream to an Arrow file in the cache
    folder, so memory grows by 24 bytes a pair, never by the texts.

    Args:
        source: a .tsv, .csv, .jsonl or .parquet file (also with .gz); "-" for stdin; a folder with one
            `<split>.jsonl.gz` a split; an id in the data folder or on the hub, also as `id:config@revision`; or a
            `datasets.Dataset`, whose rows are used where they are when its column types fit.
        columns: names of the two text columns; in a TSV or CSV without a header their positions ("1", "2").
            Default: well-known names (`sentence1`/`sentence2`, `premise`/`hypothesis`, ...), else the first two.
        score_column: name or position of the gold score. Default: a column called `score`, if there is one.
        header: whether the first row of a TSV or CSV is a header. Default: it is when all its fields are
            well-known names; where only some are, an error asks.
        score_range: lowest and highest score allowed, such as (0, 5).
        split: such as `test` or `validation[:1000]`; may be left out when there is only one.
        config: the data set's configuration on the hub, a sub-folder in a local copy.
        revision: the hub's commit, tag or branch.
        token: the hub's token for private data sets.
        cache_folder: for Arrow files and downloads. Default: TRANSENCODER_CACHE, else ~/.cache/transencoder
            (downloads: the hub's cache).
        data_folder: local copies of data sets, `<id>[/<config>]/<split>.jsonl.gz`. Default:
            TRANSENCODER_DATA.
        skip_bad_rows: leave bad and duplicate rows out, count and log them, instead of an error at the first
            bad one. Faults of the whole file (a truncated gzip, a missing column, a bad first row) remain
            errors.
        bad_rows_file: where the skipped rows go: `path:line`, reason and what was read, tab-separated.
        file_format: tsv, csv, jsonl or parquet, also with .gz, for stdin (default: tsv) and for files of
            another name.

    Returns:
        Columns `sentence1`, `sentence2` and, where asked for or present, `score` (float64). Rows keep their
        order. Rows equal in all columns are kept and counted in a warning.

    Raises:
        InputError: with `path:line`, what was read, what is allowed and what to do.
        RunError: the cache folder or `bad_rows_file` cannot be written.
    """
    wanted = Wanted(
        result=("sentence1", "sentence2"),
        known=KNOWN_PAIRS,
        columns=_names(columns, "columns"),
        score_column=score_column,
        header=header,
    )
    place = Place(
        split=split,
        config=config,
        revision=revision,
        token=token,
        cache_folder=_path(cache_folder),
        data_folder=_path(data_folder),
        file_format=file_format,
    )
    checks = Checks(score_range=score_range, skip_bad_rows=skip_bad_rows, bad_rows_file=_path(bad_rows_file))
    return read_rows(source, wanted, place, checks)


def read_sentences(
    source: str | os.PathLike[str] | Dataset,
    *,
    column: str | None = None,
    header: bool | None = None,
    split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_folder: str | os.PathLike[str] | None = None,
    data_folder: str | os.PathLike[str] | None = None,
    skip_bad_rows: bool = False,
    bad_rows_file: str | os.PathLike[str] | None = None,
    file_format: str | None = None,
) -> Dataset:
    """Read sentences, checked one by one, as a memory-mapped data set.

    Arguments and errors are those of `read_pairs`; beside its formats there is .txt: one sentence a line, no
    header.

    Args:
        source: as in `read_pairs`.
        column: name of the text column; its position in a TSV or CSV without a header. Default: `text`,
            `sentence`, else the first column of a TSV or CSV.
        header: as in `read_pairs`.
        split: as in `read_pairs`.
        config: as in `read_pairs`.
        revision: as in `read_pairs`.
        token: as in `read_pairs`.
        cache_folder: as in `read_pairs`.
        data_folder: as in `read_pairs`.
        skip_bad_rows: as in `read_pairs`.
        bad_rows_file: as in `read_pairs`.
        file_format: as in `read_pairs`, or txt.

    Returns:
        The column `text`.

    Raises:
        InputError: as in `read_pairs`.
        RunError: as in `read_pairs`.
    """
    columns = None if column is None else (column,)
    wanted = Wanted(result=("text",), known=KNOWN_TEXTS, columns=columns, score_names=(), header=header)
    place = Place(
        split=split,
        config=config,
        revision=revision,
        token=token,
        cache_folder=_path(cache_folder),
        data_folder=_path(data_folder),
        file_format=file_format,
    )
    return read_rows(source, wanted, place, Checks(skip_bad_rows=skip_bad_rows, bad_rows_file=_path(bad_rows_file)))


def read_rows(source: str | os.PathLike[str] | Dataset, wanted: Wanted, place: Place, checks: Checks) -> Dataset:
    """The rows of a source, checked one by one, with the columns that are wanted."""
    name, found = find_source(source, place)
    folder = cache_folder_for_rows(place.cache_folder)
    n_texts = len(wanted.result)
    with (
        BadRows(name, skip=checks.skip_bad_rows, path=checks.bad_rows_file) as bad_rows,
        open_table(found, name, wanted, folder) as table,
    ):
        names = (*wanted.result, "score")[: len(table.columns)]
        if checks.score_range is not None and len(names) == n_texts:
            raise InputError(
                f"{name}: score_range is stated, but no score column is found. State its name with score_column."
            )
        rows = _not_empty(checked_rows(table, n_texts, checks.score_range, bad_rows), table, bad_rows)
        if not isinstance(found, File) and not checks.skip_bad_rows:
            renamed = _renamed(found, table.columns, names)
            if renamed is not None:
                index = RowIndex()
                deque(index.watch(rows), maxlen=0)
                report_duplicates(renamed, index, name, bad_rows, drop=False)
                return renamed
        return store_rows(rows, names, folder, name, bad_rows, drop=checks.skip_bad_rows)


@contextmanager
def open_table(found: File | Dataset, name: str, wanted: Wanted, folder: Path) -> Iterator[Table]:
    """The rows of a source, its columns chosen; `folder` takes unpacked copies where a format needs them."""
    if not isinstance(found, File):
        yield read_dataset(found, name, wanted)
        return
    with open_stream(found, seekable_in=folder if found.file_format == "parquet" else None) as stream:
        table = READERS[found.file_format](stream, name, wanted)
        is_whole = found.start == 0 and found.stop is None
        yield table if is_whole else replace(table, rows=_sliced(table.rows, found))


def _sliced(rows: Iterator[Row | BadRow], file: File) -> Iterator[Row | BadRow]:
    n_rows = 0
    for row in itertools.islice(rows, file.start, file.stop):
        n_rows += 1
        yield row
    warn_of_short_slice(file.name, n_rows, (file.start, file.stop))


def _renamed(dataset: Dataset, columns: Sequence[str], names: Sequence[str]) -> Dataset | None:
    """The data set's own rows under our names; None where a column is of another type."""
    types = [str(dataset.features[column].dtype) for column in columns]
    if types != ["float64" if name == "score" else "string" for name in names]:
        return None
    return dataset.select_columns(list(columns)).rename_columns(dict(zip(columns, names, strict=True)))


def _not_empty(rows: Iterator[Row], table: Table, bad_rows: BadRows) -> Iterator[Row]:
    first = next(rows, None)
    if first is not None:
        return itertools.chain([first], rows)
    if bad_rows.count:
        raise InputError(
            f"{table.name}: no good row: {bad_rows.summary()}. At least one is needed. Correct the rows, or "
            "state other columns."
        )
    what = "a header and no rows" if table.has_header else "no rows"
    raise InputError(
        f"{table.name}: {what}. At least one row is needed. Was it written to the end, and is the split right?"
    )


def _names(columns: Sequence[str] | None, option: str) -> tuple[str, ...] | None:
    if isinstance(columns, str):
        raise InputError(
            f"{option} is the text {columns!r}. A list of names is needed, such as ['sentence1', 'sentence2']."
        )
    return None if columns is None else tuple(columns)


def _path(path: str | os.PathLike[str] | None) -> Path | None:
    return None if path is None else Path(path).expanduser()
