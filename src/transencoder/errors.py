"""Errors that a user can meet, and functions that format values in messages.

A message says what is wrong, with the value; what is allowed; what to do.
"""

import math
import re
from pathlib import PurePath

ABSENT = "–"
"""Text shown where there is no number."""

_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters, marks that change the direction of text, and code points that are not characters."""


class TransencoderError(Exception):
    """Base class of all errors that the user can solve; the command line prints them without a traceback.

    If a message is too long to read, because it shows long values, its middle is left out.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= 2000 else f"{message[:1200]} ... {message[-700:]}")


class InputError(TransencoderError):
    """Bad data or a bad option. Exit code 2."""


class RunError(TransencoderError):
    """Trouble with a run folder: locked, damaged, or no space left. Exit code 3."""


class RunInUseError(RunError):
    """Run folder that another process works on."""


def visible(text: str) -> str:
    r"""Escape characters that are invisible or control a terminal, as in `\x1b`; tabs and line ends stay."""
    return _INVISIBLE.sub(lambda found: ascii(found[0])[1:-1], text)


_COMPUTED = tuple("=+-@\t\r")
"""First characters of the texts that spreadsheets compute as formulas."""


def spreadsheet_cell(value: object) -> object:
    """Return a value for a CSV that spreadsheets read: an apostrophe is put before texts that they would compute."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_COMPUTED) else value


def from_spreadsheet_cell(cell: object) -> object:
    """Return the value that `spreadsheet_cell` was given."""
    is_marked = isinstance(cell, str) and cell[:1] == "'" and cell[1:].startswith(_COMPUTED)
    return str(cell)[1:] if is_marked else cell


def shorten(value: object, limit: int = 80) -> str:
    """Return the value's repr on one line, cut to about `limit` characters."""
    if isinstance(value, str | bytes):
        text = repr(value[: limit + 1])
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(shorten(item, limit) for item in value[:20]) + (", ..." if len(value) > 20 else "") + "]"
    else:
        try:
            text = repr(value)
        except (ValueError, RecursionError):  # a number of more than 4,300 digits, a deep table
            text = f"<{type(value).__name__}>"
    return text if len(text) <= limit + 2 else text[:limit] + "..."


def reason_of(error: BaseException) -> str:
    """Return the first line of an error's message, at most 200 characters and without a full stop, or its type."""
    lines = str(error).strip().splitlines()
    return lines[0][:200].rstrip(". ") if lines else type(error).__name__


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, such as `1 field` or `3 fields`, with commas between thousands."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def number(value: float | None) -> str:
    """Return a metric with two decimals; a dash where there is none."""
    if value is None:
        return ABSENT
    return "nan" if math.isnan(value) else f"{value:.2f}"


def shown_source(source: str) -> str:
    """Return the id of a data set or model as it is, and a path outside the current folder as its last two parts."""
    path = PurePath(source)
    if path.is_absolute() or ".." in path.parts or len(path.parts) > 3:
        return "/".join(part for part in path.parts[-2:] if part not in (path.anchor, ".."))
    return source
