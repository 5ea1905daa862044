"""Rows, good and bad: every row's texts and score are checked here, once; behind this point they are trusted."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TextIO

from transencoder.errors import InputError
from transencoder.files import move_into_place
from transencoder.pairs.files import unfinished_file, write_faults
from transencoder.wording import plural, shorten

logger = logging.getLogger(__name__)

_READ_LIMIT = 1000
_ADVICE = "State another bad_rows_file"


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

    def message(self, name: str) -> str:
        """Tell what is wrong, with the place in the source called `name`, and what is allowed."""
        return f"{name}:{self.number}: {self.reason}. Read: {shorten(self.read)}. {self.advice}."


@dataclass(frozen=True, kw_only=True)
class Table:
    """An open source whose columns are chosen."""

    columns: tuple[str, ...]
    """The source's columns that are read: the texts, then the score where there is one."""
    rows: Iterator[Row | BadRow]
    has_header: bool = False
    has_text_scores: bool = False
    """Scores are written as text (TSV, CSV) and have to be parsed."""


class BadRows:
    """What happens to a bad row: an error, or, where the caller said so, counted and written to a file."""

    def __init__(self, name: str, *, skip: bool = False, file: TextIO | None = None, path: Path | None = None) -> None:
        """Take the source's name for messages, whether to skip, and the file for skipped rows."""
        self.name = name
        self.skips = skip
        self._file = file
        self._path = path
        self._reasons: Counter[str] = Counter()
        self._examples: dict[str, int] = {}

    def add(self, row: BadRow, kind: str | None = None) -> None:
        """Take note of one bad row.

        Args:
            row: the row.
            kind: what it is counted as; its reason where not given.

        Raises:
            InputError: bad rows are not to be skipped.
        """
        if not self.skips:
            raise InputError(
                f"{row.message(self.name)} Correct the row, or leave such rows out with skip_bad_rows=True "
                "(--skip-bad-rows)."
            )
        kind = kind or row.reason
        if kind not in self._examples and len(self._examples) >= 20:
            kind = "other reasons"
        self._reasons[kind] += 1
        self._examples.setdefault(kind, row.number)
        if self._file is not None and self._path is not None:
            with write_faults(self._path, advice=_ADVICE):
                self._file.write(f"{self.name}:{row.number}\t{_flat(row.reason)}\t{shorten(row.read, _READ_LIMIT)}\n")

    @property
    def count(self) -> int:
        """Number of bad rows so far."""
        return self._reasons.total()

    def summary(self) -> str:
        """Count the bad rows, and for each reason name the first."""
        reasons = "; ".join(
            f"{count:,} x {kind} (first: {self.name}:{self._examples[kind]})"
            for kind, count in self._reasons.most_common()
        )
        return f"{plural(self.count, 'bad row')} skipped: {reasons}"


@contextmanager
def watch_bad_rows(name: str, *, skip: bool, path: Path | None) -> Iterator[BadRows]:
    """Open the file for bad rows, and at the end log their number and move the file into place.

    The file has one line a row, without a header: `path:line`, the reason, the repr of what was read, tab-separated.
    An error leaves none.
    """
    with ExitStack() as stack:
        file: TextIO | None = None
        if path is not None:
            draft = stack.enter_context(unfinished_file(path, advice=_ADVICE))
            file = stack.enter_context(open(draft, "w", encoding="utf-8"))
        bad_rows = BadRows(name, skip=skip, file=file, path=path)
        yield bad_rows
        if file is not None and path is not None:
            with write_faults(path, advice=_ADVICE):
                file.close()
                move_into_place(Path(file.name), path)
        if bad_rows.count:
            written = f"written to {path}" if path else "written nowhere: state bad_rows_file to have them"
            logger.warning("%s: %s; %s", name, bad_rows.summary(), written)


def checked_rows(
    table: Table, n_texts: int, score_range: tuple[float, float] | None, bad_rows: BadRows
) -> Iterator[Row]:
    """Yield the good rows: texts that are text, and the score as a finite float in range.

    Args:
        table: rows whose values are `n_texts` texts and, where there is one, a score.
        n_texts: 2 for pairs, 1 for sentences.
        score_range: lowest and highest score allowed, both included.
        bad_rows: takes the others.
    """
    has_score = len(table.columns) > n_texts
    for row in table.rows:
        if isinstance(row, BadRow):
            bad_rows.add(row)
            continue
        bad, values = text_fault(row, table.columns, n_texts), row.values
        if bad is None and has_score:
            score = _score(row.values[n_texts], parse=table.has_text_scores)
            bad = _score_fault(row, table.columns[n_texts], score, score_range)
            values = (*row.values[:n_texts], score)
        if bad is None:
            yield Row(row.number, values)
        else:
            bad_rows.add(bad)


def text_fault(row: Row, columns: Sequence[str], n_texts: int) -> BadRow | None:
    """Say what is wrong with the first of a row's texts that cannot be used; None where all can."""
    for position in range(n_texts):
        value = row.values[position]
        if isinstance(value, str) and value.isascii() and "\0" not in value and value and not value.isspace():
            continue
        reason, advice = why_no_text(value)
        if reason:
            return BadRow(row.number, f"{_column(columns[position])} {reason}", advice, list(row.values))
    return None


def why_no_text(value: object) -> tuple[str, str]:
    """Say why a value is no text that can be used, and what to do; two empty texts where it is one."""
    if value is None:
        return "is null", "Every row needs its texts"
    if isinstance(value, bytes):
        return "is not UTF-8", "Text must be UTF-8: write the file again from text"
    if not isinstance(value, str):
        return f"is {shorten(value)}, of type {type(value).__name__}", "It must be a text, in quotes in JSON"
    if not value:
        return "is empty", "Every text must have at least one character that is not white space"
    if value.isspace():
        return (
            f"is only white space: {shorten(value)}",
            "Every text must have at least one character that is not white space",
        )
    if "\0" in value:
        return (
            "has a NUL byte (0x00)",
            "NUL is not text: is the file UTF-16, or damaged? Save it as UTF-8 without NUL",
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return (
            f"has a lone surrogate (\\u{ord(value[error.start]):04x})",
            "It is half of a character: write the text again as UTF-8",
        )
    return "", ""


def _score(value: object, *, parse: bool) -> float | None:
    if parse and isinstance(value, str):
        if not value.isascii() or "_" in value:  # float() takes 1_000 and digits of other scripts
            return None
        with suppress(ValueError):
            return float(value) + 0.0  # -0.0 becomes 0.0
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value) + 0.0
        except OverflowError:
            return math.inf
    return None


def _score_fault(row: Row, column: str, score: float | None, score_range: tuple[float, float] | None) -> BadRow | None:
    value = row.values[-1]
    allowed = "A score is a finite number" + (f" from {score_range[0]:g} to {score_range[1]:g}" if score_range else "")
    if score is None:
        reason = f"{_column(column)} is {shorten(value)} ({type(value).__name__}), not a number"
        return BadRow(row.number, reason, f"{allowed}, with a point and without quotes", list(row.values))
    if not math.isfinite(score):
        return BadRow(row.number, f"{_column(column)} is {shorten(value)}, not finite", allowed, list(row.values))
    if score_range and not score_range[0] <= score <= score_range[1]:
        return BadRow(row.number, f"{_column(column)} is {score:g}, out of range", allowed, list(row.values))
    return None


def _column(name: str) -> str:
    return f"column {name}" if name.isdecimal() else name


def _flat(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ").replace("\r", " ")


def warn_of_short_slice(name: str, n_rows: int, start: int, stop: int | None) -> None:
    """Warn when a split's slice, such as [0:1000], asks for more rows than there are."""
    if stop is not None and n_rows < stop - start:
        logger.warning(
            "%s: the split's slice [%d:%d] asks for more rows than there are: %d read", name, start, stop, n_rows
        )
