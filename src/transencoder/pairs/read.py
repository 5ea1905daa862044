"""Readers of pairs and texts. All of them find the source, choose the columns, check each row and store the rows."""

import itertools
import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from datasets import Dataset

from transencoder.errors import InputError, plural, shorten
from transencoder.pairs.columns import KNOWN_PAIRS, Wanted
from transencoder.pairs.files import open_stream
from transencoder.pairs.formats import READERS, read_dataset
from transencoder.pairs.rows import (
    NEXT_FILE,
    BadRow,
    BadRows,
    Fault,
    Row,
    Table,
    check_text,
    check_texts,
    checked_score,
    good_rows,
)
from transencoder.pairs.source import Found, Source, find_source, warn_of_short_slice
from transencoder.pairs.store import RowIndex, cache_folder_for_rows, store_rows, watch_bad_rows

logger = logging.getLogger(__name__)

_TEXTS = ("text", "sentence", "body", "description", "content", "message", "comment", "question", "ticket", "title")
"""Known names of a column of texts, the most reliable first."""

PAIRS = Wanted(result=("sentence1", "sentence2"), known=KNOWN_PAIRS, score_names=("score",))
SENTENCES = Wanted(result=("text",), known=tuple((name,) for name in _TEXTS))
DOCUMENTS = Wanted(result=("id", "text"), known=(("id", "text"), ("_id", "text")))
"""Texts with their ids: from the stated columns, else from those of known names, else from the only two."""
RELEVANCE = Wanted(
    result=("sentence1", "sentence2"),
    known=(("query-id", "corpus-id"), *KNOWN_PAIRS),
    score_names=("score", "relevance", "label"),
)
"""Which documents answer which queries, as texts or as ids; where there is a score, it is above 0 for an answer."""
CANDIDATES = Wanted(
    result=("query", "positive", "negative"), known=(("query", "positive", "negative"),), can_skip=False
)


def read_pairs(
    source: str | os.PathLike[str] | Dataset,
    *,
    columns: Sequence[str] | None = None,
    score_column: str | None = None,
    needs_score: bool = False,
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

    A path that exists takes precedence, then the data folder, then the hub. Rows stream to an Arrow file in the
    cache folder, so memory grows by 24 bytes per pair, not with the length of the texts.

    Args:
        source: a .tsv, .csv, .jsonl or .parquet file, or .txt with `sentence1||sentence2` (also with .gz or .zst); a
            pattern, a folder of parts, or a URL of such files; "-" for stdin; a folder with one `<split>.jsonl.gz` per
            split; an id in the data folder or on the hub, also as `id:config@revision`; or a
            `datasets.Dataset`, whose rows are not copied if its column types fit.
        columns: names of the two text columns; in a TSV or CSV without a header their positions ("1", "2").
            Default: well-known names (`sentence1`/`sentence2`, `premise`/`hypothesis`, ...), else the only two that
            do not hold numbers, or the first two of a TSV or CSV without a header.
        score_column: name or position of the gold score. Default: a column called `score`, if there is one.
        needs_score: whether gold scores are required; if no column is called `score`, the only column of numbers is
            taken.
        header: whether the first row of a TSV or CSV is a header. Default: it is when all its fields are
            well-known names, or when it is unlike the rows below; an error is raised if that is not certain.
        score_range: lowest and highest score allowed, such as (0, 5).
        split: split to read, such as `test` or `validation[:1000]`; may be left out when there is only one.
        config: the data set's configuration on the hub, a sub-folder in a local copy.
        revision: the hub's commit, tag or branch.
        token: the hub's token for private data sets; None: the one that `hf auth login` stored.
        cache_folder: folder for Arrow files and downloads. Default: TRANSENCODER_CACHE, else ~/.cache/transencoder
            (downloads: the hub's cache).
        data_folder: folder with local copies of data sets, `<id>[/<config>]/<split>.jsonl.gz`. Default:
            TRANSENCODER_DATA.
        skip_bad_rows: whether to leave out bad and duplicate rows, and count and log them, instead of raising an error
            at the first bad one. Faults of the whole file (a truncated gzip, a missing column, a bad first row)
            remain errors.
        bad_rows_file: file for the skipped rows: `path:line`, reason and what was read, tab-separated.
        file_format: tsv, csv, jsonl or parquet, also with .gz, for stdin (default: tsv) and for files whose names
            have another suffix.

    Returns:
        Columns `sentence1`, `sentence2` and, where stated, required or present, `score` (float64). Rows keep their
        order. Rows equal in all columns are kept and counted in a warning.

    Raises:
        InputError: the source or a row cannot be used; the message gives `path:line`, what was read, what is allowed
            and what to do.
        RunError: the cache folder or `bad_rows_file` cannot be written.
    """
    return read_rows(
        Source(
            source,
            columns=columns,
            score_column=score_column,
            header=header,
            score_range=score_range,
            split=split,
            config=config,
            revision=revision,
            token=token,
            cache_folder=cache_folder,
            data_folder=data_folder,
            skip_bad_rows=skip_bad_rows,
            bad_rows_file=bad_rows_file,
            file_format=file_format,
        ),
        replace(PAIRS, needs_score=needs_score),
    )


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

    Arguments and errors are those of `read_pairs`. A further format is .txt: one sentence per line, no header. `column`
    is the name of the text column, or its position in a TSV or CSV without a header. Default: the column called `text`,
    `sentence`, `body`, `description`, `content`, `message`, `comment`, `question`, `ticket` or `title`, else the only
    one, or the first of a TSV or CSV without a header.

    Returns:
        A data set with the column `text`.
    """
    return read_rows(
        Source(
            source,
            columns=None if column is None else (column,),
            header=header,
            split=split,
            config=config,
            revision=revision,
            token=token,
            cache_folder=cache_folder,
            data_folder=data_folder,
            skip_bad_rows=skip_bad_rows,
            bad_rows_file=bad_rows_file,
            file_format=file_format,
        ),
        SENTENCES,
    )


def read_candidates(source: Source) -> Dataset:
    """Read queries with their candidates as pairs of a query and a candidate, checked one by one.

    Queries without a positive or without a negative candidate are left out, and their number is logged. A candidate
    that occurs twice is kept, as in sentence-transformers, and counted in a warning.

    Args:
        source: where to read from. Its columns are the query (a text) and the positive and the negative candidates
            (lists of texts, which JSONL, Parquet, the hub and a Dataset can hold). Default: `query`, `positive` and
            `negative`.

    Returns:
        Columns `sentence1` (the query), `sentence2` (the candidate), `score` (1.0 positive, 0.0 negative) and
        `query` (int64, the row in the source, from 0, so that two queries with the same text remain two).

    Raises:
        InputError: the source or a row cannot be used; the message gives `path:line`, what was read, what is allowed
            and what to do.
        RunError: the cache folder cannot be written.
    """
    source = replace(source, columns=source.columns or CANDIDATES.result)
    with open_source(source, CANDIDATES) as opened:
        columns = opened.table.columns

        def check(values: Sequence[object]) -> Sequence[object]:
            check_text(values[0], columns[0])
            for column, candidates in zip(columns[1:], values[1:], strict=True):
                if not isinstance(candidates, list):
                    reason = f"{column} is {shorten(candidates)}, of type {type(candidates).__name__}"
                    raise Fault(reason, "It must be a list of texts, which may be empty")
                for position, text in enumerate(candidates):
                    check_text(text, f"{column}[{position}]")
            return values

        rows = _flattened(good_rows(opened.table, opened.bad_rows, check), opened.found.name)
        return store_rows(rows, ("sentence1", "sentence2", "score", "query"), opened.folder, opened.bad_rows)


def read_rows(source: Source, wanted: Wanted) -> Dataset:
    """Read the wanted columns of a source, checked row by row."""
    n_texts = len(wanted.result)
    with open_source(source, wanted) as opened:
        table, bad_rows, dataset = opened.table, opened.bad_rows, opened.found.dataset
        names = (*wanted.result, "score")[: len(table.columns)]
        has_score = len(names) > n_texts
        if source.score_range is not None and not has_score:
            raise InputError(
                f"{bad_rows.name}: score_range is stated, but no score column is found. State its name with "
                "score_column."
            )

        def check(values: Sequence[object]) -> Sequence[object]:
            check_texts(values[:n_texts], table.columns[:n_texts])
            if not has_score:
                return values
            column, parse = table.columns[n_texts], table.has_text_scores
            return (*values[:n_texts], checked_score(values[n_texts], column, source.score_range, parse=parse))

        rows = _not_empty(good_rows(table, bad_rows, check), table, bad_rows)
        renamed = None if dataset is None else _renamed(dataset, table.columns, names)
        if renamed is None or bad_rows.skips:
            return store_rows(rows, names, opened.folder, bad_rows)
        index = RowIndex()
        deque(index.watch(rows), maxlen=0)
        index.duplicates(renamed, bad_rows)
        return renamed


@dataclass(frozen=True)
class OpenSource:
    """Opened source, whose rows can be read."""

    found: Found
    table: Table
    bad_rows: BadRows
    folder: Path
    """Folder for the Arrow file."""


@contextmanager
def open_source(source: Source, wanted: Wanted) -> Iterator[OpenSource]:
    """Find a source, choose its columns and open its rows."""
    wanted = replace(wanted, columns=source.columns, score_column=source.score_column, header=source.header)
    bad_rows_file = None if source.bad_rows_file is None else Path(source.bad_rows_file).expanduser()
    found = find_source(source)
    folder = cache_folder_for_rows(source.cache_folder)
    with ExitStack() as stack:
        bad_rows = stack.enter_context(
            watch_bad_rows(
                found.name, found.names, skips=source.skip_bad_rows, can_skip=wanted.can_skip, path=bad_rows_file
            )
        )
        if found.dataset is not None:
            table = read_dataset(found.dataset, found.name, wanted)
        else:
            table = stack.enter_context(_opened(found, 0, wanted, folder))
            if len(found.files) > 1:
                table = replace(table, rows=_of_all(found, table, wanted, folder))
            if found.start or found.stop is not None:
                table = replace(table, rows=_sliced(table.rows, found))
        yield OpenSource(found, table, bad_rows, folder)


@contextmanager
def _opened(found: Found, n_th: int, wanted: Wanted, folder: Path) -> Iterator[Table]:
    """Open the rows of a source's n-th file, counted from 0."""
    name = found.names[n_th]
    can_seek_in = folder if found.file_format == "parquet" else None
    with open_stream(found.files[n_th], name, packed=found.packed, seekable_in=can_seek_in) as stream:
        yield READERS[found.file_format](stream, name, wanted)


def _of_all(found: Found, first: Table, wanted: Wanted, folder: Path) -> Iterator[Row | BadRow]:
    """Yield the rows of all files; the first file is open already and has decided on the columns.

    Raises:
        InputError: Another file has different columns.
    """
    yield from first.rows
    for n_th in range(1, len(found.files)):
        with _opened(found, n_th, wanted, folder) as table:
            if table.columns != first.columns:
                raise InputError(
                    f"{found.names[n_th]}: its columns are {', '.join(table.columns)}, and those of {found.names[0]} "
                    f"{', '.join(first.columns)}. All files need the same. State columns, or read them one by one."
                )
            for row in table.rows:
                yield row._replace(number=row.number + n_th * NEXT_FILE)


def _sliced(rows: Iterator[Row | BadRow], file: Found) -> Iterator[Row | BadRow]:
    n_rows = 0
    for row in itertools.islice(rows, file.start, file.stop):
        n_rows += 1
        yield row
    warn_of_short_slice(file.name, n_rows, file.start, file.stop)


def _renamed(dataset: Dataset, columns: Sequence[str], names: Sequence[str]) -> Dataset | None:
    """Return the data set's own rows with the columns renamed; None if the type of a column does not fit."""
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
            f"{bad_rows.name}: no good row: {bad_rows.summary()}. At least one is needed. Correct the rows, or "
            "state other columns."
        )
    what = "a header and no rows" if table.has_header else "no rows"
    raise InputError(
        f"{bad_rows.name}: {what}. At least one row is needed. Was it written to the end, and is the split right?"
    )


def _flattened(rows: Iterator[Row], name: str) -> Iterator[Row]:
    """Yield one row per candidate: query, candidate, score, number of the query."""
    n_queries = n_left_out = 0
    for number, (query, positive, negative) in rows:
        if positive and negative:
            for candidates, score in ((positive, 1.0), (negative, 0.0)):
                yield from (Row(number, (query, candidate, score, n_queries)) for candidate in candidates)
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
