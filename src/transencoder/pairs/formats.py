"""One reader per format: it takes an open stream and the wanted columns, and returns a table of rows.

The first row must be good, even if bad rows are skipped, because it decides on the columns.
"""

import csv
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
from datasets import Dataset
from pyarrow import parquet

from transencoder.errors import InputError, plural, shorten
from transencoder.pairs.columns import MOST_FIELDS, Wanted, choose_columns, numbers_of, require_texts, split_header
from transencoder.pairs.files import MOST_LINE_BYTES, Lines
from transencoder.pairs.rows import BadRow, Row, Table

_BATCH_ROWS = 4096
_LOOKED_AT = 100
"""Number of rows below the first that are compared with it, to detect a header."""

_TSV_ADVICE = "A TSV row is one line of fields with a tab between them; texts with tabs need CSV or JSONL"
_BARS_ADVICE = "Each line must be sentence1||sentence2"
_CSV_ADVICE = "A field with a comma, quote or line end stands in double quotes, a quote inside is doubled (RFC 4180)"
_CR_ADVICE = "Some programs end a row there: end rows with LF or CRLF, and take the CR out of texts"
_JSON_ADVICE = "Each line must be one JSON object"


def read_tsv(stream: BinaryIO, name: str, wanted: Wanted) -> Table:
    """Read plain tab-separated text: no quoting, no escapes."""
    return _delimited(_split_lines(Lines(stream, name), "\t"), name, wanted, _TSV_ADVICE)


def read_csv(stream: BinaryIO, name: str, wanted: Wanted) -> Table:
    """Read comma-separated values as in RFC 4180; a quoted field may hold line ends."""
    return _delimited(_csv_rows(Lines(stream, name)), name, wanted, _CSV_ADVICE)


def read_txt(stream: BinaryIO, name: str, wanted: Wanted) -> Table:
    """Read one sentence per line, or a pair as sentence1||sentence2, as in Trans-Encoder's release; no header."""
    if wanted.header or wanted.stated:
        raise InputError(
            f"{name}: plain text has neither columns nor a header: each line is one sentence. Leave header "
            "and column out, or use a .tsv, .csv, .jsonl or .parquet file."
        )
    if wanted.needs_score:
        raise InputError(f"{name}: plain text has no scores. Use a .tsv, .csv, .jsonl or .parquet file with a column.")
    n_texts = len(wanted.result)
    first, rows = _first(_split_lines(Lines(stream, name), "||" if n_texts == 2 else None), name)
    if len(first.values) != n_texts:
        raise InputError(
            f"{name}: plain text has one sentence a line, but {n_texts} texts a row are needed. Use a .tsv, .csv, "
            ".jsonl or .parquet file, or write pairs as sentence1||sentence2."
        )
    rows = itertools.chain([first], rows)
    picked = rows if n_texts == 1 else _by_position(rows, range(n_texts), n_texts, _BARS_ADVICE)
    return Table(columns=wanted.result, rows=picked)


def read_jsonl(stream: BinaryIO, name: str, wanted: Wanted) -> Table:
    """Read one JSON object per line; keys that are not wanted are ignored."""
    first, rows = _first(_json_rows(Lines(stream, name)), name)
    keys = _object(first)
    columns = _known_columns(
        list(keys), numbers_of(list(keys), [list(keys.values())]), wanted, f"{name}:{first.number}"
    )
    return Table(columns=columns, rows=_by_key(itertools.chain([first], rows), columns))


def read_parquet(stream: BinaryIO, name: str, wanted: Wanted) -> Table:
    """Read the chosen columns of a Parquet file, one batch at a time. The stream must be seekable."""
    with _arrow_faults(name):
        file = parquet.ParquetFile(stream, pre_buffer=False, buffer_size=1 << 20)
        columns = _known_columns(file.schema_arrow.names, _numbers(file.schema_arrow), wanted, name)

    def batches() -> Iterator[Any]:
        with _arrow_faults(name):
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns), use_threads=False):
                yield batch
                pa.default_memory_pool().release_unused()  # the allocator would hold on to decoded pages

    return Table(columns=columns, rows=_arrow_rows(batches(), columns))


def read_dataset(dataset: Dataset, name: str, wanted: Wanted) -> Table:
    """Read the chosen columns of a `datasets.Dataset`."""
    columns = _known_columns(dataset.column_names, _numbers(dataset.features.arrow_schema), wanted, name)
    chosen = dataset.select_columns(list(columns)).with_format("arrow")
    return Table(columns=columns, rows=_arrow_rows(chosen.iter(batch_size=_BATCH_ROWS), columns))


def _known_columns(names: Sequence[str], numbers: Sequence[str], wanted: Wanted, name: str) -> tuple[str, ...]:
    """Choose among columns that have names; refuse to guess the text columns."""
    if not wanted.columns and len(names) >= len(wanted.result):
        require_texts(names, numbers, wanted, name)
    return choose_columns(names, wanted, name, numbers)


def _numbers(schema: pa.Schema) -> list[str]:
    return [each.name for each in schema if pa.types.is_integer(each.type) or pa.types.is_floating(each.type)]


READERS: dict[str, Callable[[BinaryIO, str, Wanted], Table]] = {
    "tsv": read_tsv,
    "csv": read_csv,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
    "txt": read_txt,
}


def _first(rows: Iterator[Row | BadRow], name: str) -> tuple[Row, Iterator[Row | BadRow]]:
    first = next(rows, None)
    if first is None:
        raise InputError(f"{name}: the file is empty. At least one row is needed. Was it written to the end?")
    if isinstance(first, BadRow):
        message = first.message(f"{name}:{first.number}")
        raise InputError(
            f"{message} The first row decides on the columns, so it cannot be skipped: correct or remove it."
        )
    return first, rows


def _delimited(rows: Iterator[Row | BadRow], name: str, wanted: Wanted, advice: str) -> Table:
    first, rows = _first(rows, name)
    below = list(itertools.islice(rows, _LOOKED_AT))
    rows = itertools.chain(below, rows)
    first_fields, *others = ([str(field) for field in row.values] for row in (first, *below) if isinstance(row, Row))
    names, has_header = split_header(first_fields, others, wanted, name)
    columns = choose_columns(names, wanted, name, numbers_of(names, others))
    if not has_header:
        rows = itertools.chain([first], rows)
    picked = _by_position(rows, [names.index(column) for column in columns], len(names), advice)
    return Table(columns=columns, rows=picked, has_header=has_header, has_text_scores=True)


def _by_position(
    rows: Iterable[Row | BadRow], positions: Sequence[int], n_fields: int, advice: str
) -> Iterator[Row | BadRow]:
    for row in rows:
        if isinstance(row, BadRow):
            yield row
        elif len(row.values) == n_fields:
            yield Row(row.number, [row.values[position] for position in positions])
        elif row.values in ([], [""]):
            yield BadRow(row.number, "a blank line", "Every row needs its fields: remove the line", "")
        else:
            found = plural(len(row.values), "field")
            yield BadRow(row.number, f"{found} where the first row has {n_fields}", advice, row.values)


def _split_lines(lines: Lines, separator: str | None) -> Iterator[Row | BadRow]:
    for line in lines:
        lines.count_row_end()
        if lines.fault is not None:
            yield lines.take_fault(lines.number, line)
        elif "\r" in line:
            reason = "a carriage return (CR) without a line feed inside the row"
            yield BadRow(lines.number, reason, _CR_ADVICE, line)
        else:
            yield Row(lines.number, [line] if separator is None else line.split(separator, MOST_FIELDS))


def _csv_rows(lines: Lines) -> Iterator[Row | BadRow]:
    csv.field_size_limit(max(csv.field_size_limit(), MOST_LINE_BYTES))  # for the whole process; never lowered
    reader = csv.reader((line + lines.ending for line in lines), strict=True)
    while True:
        number = lines.number + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _csv_fault(error, number, lines)
            continue
        lines.count_row_end()
        yield Row(number, fields) if lines.fault is None else lines.take_fault(number, fields)


def _csv_fault(error: csv.Error, number: int, lines: Lines) -> BadRow:
    reason = str(error)
    if "unexpected end of data" in reason or "field limit" in reason:
        what = (
            "a quote is opened in this row and"
            if "end" in reason
            else "a field of this row is too long, as if a quote were"
        )
        raise InputError(
            f"{lines.name}:{number}: {what} not closed by line {lines.number:,} "
            f"({reason}). {_CSV_ADVICE}. Correct the row: what follows it cannot be told apart, so it cannot "
            "be skipped."
        )
    if "new-line character" in reason:
        reason = "a carriage return (CR) without a line feed outside quotes"
    until = f" (the row reaches to line {lines.number})" if lines.number > number else ""
    lines.fault = None
    return BadRow(number, f"not valid CSV: {reason}{until}", _CSV_ADVICE, lines.text)


def _json_rows(lines: Lines) -> Iterator[Row | BadRow]:
    for line in lines:
        lines.count_row_end()
        if lines.fault is not None:
            yield lines.take_fault(lines.number, line)
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            blank = not line or line.isspace()
            yield BadRow(lines.number, "a blank line" if blank else f"not valid JSON: {error}", _JSON_ADVICE, line)
            continue
        if isinstance(value, dict):
            yield Row(lines.number, [value])
        else:
            yield BadRow(lines.number, f"a JSON {type(value).__name__}, not an object", _JSON_ADVICE, line)


def _object(row: Row) -> dict[str, object]:
    value = row.values[0]
    assert isinstance(value, dict)
    return value


def _by_key(rows: Iterable[Row | BadRow], columns: Sequence[str]) -> Iterator[Row | BadRow]:
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        value = _object(row)
        try:
            yield Row(row.number, [value[column] for column in columns])
        except KeyError as error:
            advice = f"Every object needs the keys {', '.join(columns)}"
            yield BadRow(row.number, f"the key {error} is missing", advice, value)


def _arrow_rows(batches: Iterable[Any], columns: Sequence[str]) -> Iterator[Row]:
    numbers = itertools.count(1)
    for batch in batches:
        values = [_python_values(batch.column(column)) for column in columns]
        for row, number in zip(zip(*values, strict=True), numbers, strict=False):  # `numbers` last: it is endless
            yield Row(number, row)


def _python_values(column: Any) -> list[object]:  # noqa: ANN401 - an Arrow array; pyarrow has no types
    try:
        values: list[object] = column.to_pylist()
    except UnicodeDecodeError:  # some value is not UTF-8: it is left as bytes, which the checks report
        values = [value if value is None else _decoded(value) for value in column.cast(pa.binary()).to_pylist()]
    return values


def _decoded(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


@contextmanager
def _arrow_faults(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{name}: not a whole Parquet file, or a damaged one ({shorten(str(error), 160)}). Write it "
            "again, or copy or download it again."
        ) from error
