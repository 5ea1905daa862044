"""Good and bad rows. Texts and scores are checked here, once; all later code trusts them."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from transencoder.errors import InputError, plural, shorten

_MOST_KINDS = 20
"""Number of kinds of bad rows that are counted separately; all further kinds are counted as one."""
_READ_LIMIT = 1000
"""Number of characters of a row's content that are written to the file of bad rows."""


NEXT_FILE = 1 << 40
"""Offset of the row numbers from one file of a source to the next."""


class Row(NamedTuple):
    """One row, as the reader of its format returns it."""

    number: int
    """Line where the row starts in a text file, or row number in Parquet or a Dataset, from 1. With several files,
    `NEXT_FILE` is added in the second, twice that in the third, and so on."""
    values: Sequence[Any]


class BadRow(NamedTuple):
    """A row that cannot be used, with the reason and the advice for the user."""

    number: int
    reason: str
    advice: str
    read: object

    def message(self, place: str) -> str:
        """Return a message that says what is wrong, at a place such as `pairs.tsv:7`, and what is allowed."""
        return f"{place}: {self.reason}. Read: {shorten(self.read)}. {self.advice}."


class Fault(Exception):
    """Error from the check of a row: why a value cannot be used, and what to do."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


class BadRows:
    """Handler of bad rows: it raises an error or, if they are to be skipped, counts them and writes them to a file.

    Args:
        name: Name of the source, for messages.
        files: Names of its files, if there are several.
        skips: Whether bad rows are left out.
        can_skip: Whether the reader has an option to leave them out, which the error then advises.
        write: Function that takes a line for the file of bad rows: `path:line`, the reason, the repr of what was read.
    """

    def __init__(
        self,
        name: str,
        files: Sequence[str] = (),
        *,
        skips: bool = False,
        can_skip: bool = True,
        write: Callable[[str], object] | None = None,
    ) -> None:
        self.name = name
        self._files = files or (name,)
        self.skips = skips
        self._can_skip = can_skip
        self._write = write
        self._reasons: Counter[str] = Counter()
        self._examples: dict[str, int] = {}

    def add(self, row: BadRow, kind: str | None = None) -> None:
        """Record one bad row, counted under `kind`; default: its reason.

        Raises:
            InputError: bad rows are not skipped.
        """
        if not self.skips:
            others = ", or leave such rows out with skip_bad_rows=True (--skip-bad-rows)" if self._can_skip else ""
            raise InputError(f"{row.message(self.place(row.number))} Correct the row{others}.")
        kind = kind or row.reason
        if kind not in self._examples and len(self._examples) >= _MOST_KINDS:
            kind = "other reasons"
        self._reasons[kind] += 1
        self._examples.setdefault(kind, row.number)
        if self._write is not None:
            reason = row.reason.translate({ord(space): " " for space in "\t\n\r"})
            self._write(f"{self.place(row.number)}\t{reason}\t{shorten(row.read, _READ_LIMIT)}\n")

    def place(self, number: int) -> str:
        """Return the place of a row, such as `pairs.tsv:7`."""
        n_th_file, line = divmod(number, NEXT_FILE)
        return f"{self._files[n_th_file]}:{line}"

    @property
    def count(self) -> int:
        """Number of bad rows so far."""
        return self._reasons.total()

    def summary(self) -> str:
        """Return a text with the number of bad rows and, for each reason, the number and the first row."""
        reasons = "; ".join(
            f"{count:,} x {kind} (first: {self.place(self._examples[kind])})"
            for kind, count in self._reasons.most_common()
        )
        return f"{plural(self.count, 'bad row')} skipped: {reasons}"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of an open source, after its columns were chosen."""

    columns: tuple[str, ...]
    """Columns of the source that are read: the texts, then the score if there is one."""
    rows: Iterator[Row | BadRow]
    has_header: bool = False
    has_text_scores: bool = False
    """Whether scores are written as text (TSV, CSV) and have to be parsed."""


def good_rows(table: Table, bad_rows: BadRows, check: Callable[[Sequence[object]], Sequence[object]]) -> Iterator[Row]:
    """Yield the rows that pass `check`, which returns their values or raises `Fault`; add the others to `bad_rows`."""
    for row in table.rows:
        if isinstance(row, BadRow):
            bad_rows.add(row)
            continue
        try:
            values = check(row.values)
        except Fault as fault:
            bad_rows.add(BadRow(row.number, fault.reason, fault.advice, list(row.values)))
        else:
            yield Row(row.number, values)


def check_texts(values: Sequence[object], columns: Sequence[str]) -> None:
    """Check that texts can be used.

    Raises:
        Fault: A text cannot be used; the first such text is reported.
    """
    for value, column in zip(values, columns, strict=True):
        if isinstance(value, str) and value.isascii() and "\0" not in value and value and not value.isspace():
            continue  # a quick check that most texts pass
        check_text(value, _shown(column))


def check_text(value: object, name: str) -> None:
    """Check that a value is a text that can be used; `name` names it in messages.

    Raises:
        Fault: It is not; the error says why, and what to do.
    """
    if value is None:
        raise Fault(f"{name} is null", "Every row needs its texts")
    if isinstance(value, bytes):
        raise Fault(f"{name} is not UTF-8", "Text must be UTF-8: write the file again from text")
    if not isinstance(value, str):
        raise Fault(
            f"{name} is {shorten(value)}, of type {type(value).__name__}", "It must be a text, in quotes in JSON"
        )
    if not value or value.isspace():
        problem = f"only white space: {shorten(value)}" if value else "empty"
        raise Fault(f"{name} is {problem}", "Every text must have at least one character that is not white space")
    if "\0" in value:
        raise Fault(
            f"{name} has a NUL byte (0x00)",
            "NUL is not text: is the file UTF-16, or damaged? Save it as UTF-8 without NUL",
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Fault(
            f"{name} has a lone surrogate (\\u{ord(value[error.start]):04x})",
            "It is half of a character: write the text again as UTF-8",
        ) from error


def checked_score(value: object, column: str, score_range: tuple[float, float] | None, *, parse: bool) -> float:
    """Return a score as a finite float in range, both ends included; `parse` says that it is written as text.

    Raises:
        Fault: The value is not such a score.
    """
    score = _number(value, parse=parse)
    low, high = score_range or (-math.inf, math.inf)
    if score is not None and math.isfinite(score) and low <= score <= high:
        return score
    allowed = "A score is a finite number" + (f" from {low:g} to {high:g}" if score_range else "")
    if score is None:
        reason = f"{_shown(column)} is {shorten(value)} ({type(value).__name__}), not a number"
        raise Fault(reason, f"{allowed}, with a point and without quotes")
    problem = f"{score:g}, out of range" if math.isfinite(score) else f"{shorten(value)}, not finite"
    raise Fault(f"{_shown(column)} is {problem}", allowed)


def _number(value: object, *, parse: bool) -> float | None:
    if parse and isinstance(value, str):
        if not value.isascii() or "_" in value:  # float() would accept 1_000 and digits of other scripts
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


def _shown(column: str) -> str:
    return f"column {column}" if column.isdecimal() else column
