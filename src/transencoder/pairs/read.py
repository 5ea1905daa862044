"""The readers of pairs and texts, and the one path all readers take: find, choose columns, check each row, store."""

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
"""What a column of texts is called, the surest first."""

PAIRS = Wanted(result=("sentence1", "sentence2"), known=KNOWN_PAIRS, score_names=("score",))
SENTENCES = Wanted(result=("text",), known=tuple((name,) for name in _TEXTS))
DOCUMENTS = Wanted(result=("id", "text"), known=(("id", "text"), ("_id", "text")))
RELEVANCE = Wanted(
    result=("sentence1", "sentence2"),
    known=(("query-id", "corpus-id"), *KNOWN_PAIRS),
    score_names=("score", "relevance", "label"),
)
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

    A path that exists wins, then the data folder, then the hub. Rows stream to an Arrow file in the cache
    folder, so memory grows by 24 bytes a pair, never by the texts.

    Args:
        source: a .tsv, .csv, .jsonl or .parquet file (also with .gz); "-" for stdin; a folder with one
            `<split>.jsonl.gz` a split; an id in the data folder or on the hub, also as `id:config@revision`; or a
            `datasets.Dataset`, whose rows are used where they are when its column types fit.
        columns: names of the two text columns; in a TSV or CSV without a header their positions ("1", "2").
            Default: well-known names (`sentence1`/`sentence2`, `premise`/`hypothesis`, ...), else the first two that
            do not hold numbers.
        score_column: name or position of the gold score. Default: a column called `score`, if there is one.
        needs_score: refuse pairs without gold scores; the only column of numbers is taken where none is called `score`.
        header: whether the first row of a TSV or CSV is a header. Default: it is when all its fields are
            well-known names, or when it is unlike the rows below; an error asks where that is not certain.
        score_range: lowest and highest score allowed, such as (0, 5).
        split: such as `test` or `validation[:1000]`; may be left out when there is only one.
        config: the data set's configuration on the hub, a sub-folder in a local copy.
        revision: the hub's commit, tag or branch.
        token: the hub's token for private data sets; None takes the one that `hf auth login` stored.
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

    Arguments and errors are those of `read_pairs`; beside its formats there is .txt: one sentence a line, no
    header. `column` is the name of the text column, its position in a TSV or CSV without a header; default: one that
    is called `text`, `sentence`, `body`, `description`, `content`, `message`, `comment`, `question`, `ticket` or
    `title`, else the only or first one.

    Returns:
        The column `text`.
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


def read_documents(source: Source) -> Dataset:
    """Read texts with their ids, checked one by one: columns `id` and `text`.

    They are read from the columns stated, else from `id` or `_id`, and `text`, else from the first two.
    """
    return read_rows(source, DOCUMENTS)


def read_relevance(source: Source) -> Dataset:
    """Read which documents answer which queries: a query and a document a row, as texts or as ids.

    They are read from the columns stated, else from `query-id` and `corpus-id`, those of `read_pairs`, else from the
    first two. The relevance, above 0 where the document answers, is the column stated, else `score`, `relevance` or
    `label`; without such a column every row is an answer.

    Returns:
        Columns `sentence1` (the query), `sentence2` (the document) and, where there is one, `score`.
    """
    return read_rows(source, RELEVANCE)


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
    """Read the rows of a source, checked one by one, with the columns that are wanted."""
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
    """A source whose rows can be read."""

    found: Found
    table: Table
    bad_rows: BadRows
    folder: Path
    """For the Arrow file."""


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
    """Open the rows of a source's n-th file, from 0."""
    name = found.names[n_th]
    can_seek_in = folder if found.file_format == "parquet" else None
    with open_stream(found.files[n_th], name, packed=found.packed, seekable_in=can_seek_in) as stream:
        yield READERS[found.file_format](stream, name, wanted)


def _of_all(found: Found, first: Table, wanted: Wanted, folder: Path) -> Iterator[Row | BadRow]:
    """Yield the rows of all files; the first, which is open, has chosen the columns.

    Raises:
        InputError: Another has other columns.
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
    """Return the data set's own rows under our names; None where a column is of another type."""
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
    """Yield one row a candidate: query, candidate, score, number of the query."""
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
