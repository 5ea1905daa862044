"""Choice of the columns to read, and of the header. Both are stated or detected, never guessed silently."""

import logging
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from transencoder.errors import InputError, plural, shorten

logger = logging.getLogger(__name__)

KNOWN_PAIRS = (
    ("sentence1", "sentence2"),
    ("sentence_A", "sentence_B"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("view1", "view2"),
    ("text1", "text2"),
    ("anchor", "positive"),
    ("text", "translation"),
    ("query", "document"),
    ("query", "passage"),
)
_KNOWN_TEXTS = (("text",), ("sentence",))
_KNOWN_OTHERS = (
    *("score", "relatedness_score", "similarity_score", "similarity", "relevance", "label", "labels", "gold_label"),
    *("id", "idx", "index", "pair_id", "qid1", "qid2", "subset", "genre", "source", "split", "negative"),
)
_NAME_OR_STATE = (
    "Name the columns that have the texts (columns, or column for one; --columns), or state header=True or "
    "header=False (--header, --no-header)."
)
MOST_FIELDS = 10_000
"""Largest number of fields in a row of TSV or CSV: a line of millions of tabs took minutes."""
_LIKE_A_NAME = re.compile(r"[A-Za-z][\w.-]{2,30}( ?(\d{1,2}|[A-Za-z]))?")
"""Pattern of a text that could be a column name, such as `query`, `text_a` or `Sentence 1`."""
_NUMBER = re.compile(r"[\s.,:/+-]*\d[\d\s.,:/+-]*")
"""Pattern of a number, a date or a time."""
_KNOWN = {name.lower() for names in (*KNOWN_PAIRS, *_KNOWN_TEXTS, _KNOWN_OTHERS) for name in names}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Columns that a reader takes, and what the caller stated about them."""

    result: tuple[str, ...]
    """Names of the text columns in the result: `sentence1`, `sentence2`, or `text`."""
    known: tuple[tuple[str, ...], ...]
    """Known names of the text columns, tried in this order when `columns` is not stated."""
    score_names: tuple[str, ...] = ()
    """Known names of the column of scores or classes, used when none is stated; the first one present is taken."""
    needs_score: bool = False
    """Whether gold scores are required. If so and no column has a known name, the only column of numbers is taken."""
    can_skip: bool = True
    """Whether the reader has the option to leave bad rows out."""
    columns: Sequence[str] | None = None
    score_column: str | None = None
    header: bool | None = None

    def __post_init__(self) -> None:
        """Refuse a wrong number of columns."""
        if self.columns is not None and len(self.columns) != len(self.result):
            raise InputError(
                f"{plural(len(self.columns), 'column')} stated: {', '.join(self.columns)}. "
                f"Exactly {len(self.result)} allowed. State the column of {' and of '.join(self.result)}."
            )

    @property
    def stated(self) -> tuple[str, ...]:
        """Columns that the caller stated, by name or by position."""
        return (*(self.columns or ()), *([self.score_column] if self.score_column else []))


def split_header(
    first_row: Sequence[str], below: Sequence[Sequence[str]], wanted: Wanted, name: str
) -> tuple[list[str], bool]:
    """Return the column names of a TSV or CSV from its first row, and whether that row is a header.

    Without a header the names are the positions "1", "2", ... `below` are some of the rows that follow.

    Raises:
        InputError: the row has too few fields, looks like a header only in part, or lacks a stated column.
    """
    if not len(wanted.result) <= len(first_row) <= MOST_FIELDS:
        found = plural(len(first_row), "field") if len(first_row) <= MOST_FIELDS else "too many fields"
        raise InputError(
            f"{name}:1: {found} in the first row: {shorten(list(first_row))}. "
            f"{len(wanted.result)} to {MOST_FIELDS:,} are needed. Is it separated by tabs (.tsv) or by commas (.csv)? "
            "State the right format (file_format, --file-format)."
        )
    has_header = wanted.header if wanted.header is not None else _is_header(first_row, below, wanted, name)
    if has_header:
        return list(first_row), True
    return [str(position) for position in range(1, len(first_row) + 1)], False


def choose_columns(names: Sequence[str], wanted: Wanted, name: str, numbers: Collection[str] = ()) -> tuple[str, ...]:
    """Choose the columns to read: the text columns, then the score column if it is stated, known by name or required.

    The text columns are the stated ones, else those with known names, else the first ones that are not in `numbers`,
    the columns that hold numbers. `name` is the source's name, for messages.

    Raises:
        InputError: a stated column is missing or occurs twice, or no column could be chosen.
    """
    texts = tuple(wanted.columns or ()) or _known_texts(names, wanted)
    if texts is None and len(names) >= len(wanted.result):
        others = [column for column in names if column not in numbers]
        texts = tuple((others if len(others) >= len(wanted.result) else names)[: len(wanted.result)])
    if texts is None:
        known = " or ".join("/".join(columns) for columns in wanted.known)
        option = "columns, --columns" if len(wanted.result) > 1 else "column, --columns"
        raise InputError(
            f"{name}: no columns for {' and '.join(wanted.result)} among {_listed(names)}. Known are {known}. "
            f"State others ({option})."
        )
    score = wanted.score_column
    if score is None:
        by_name = _by_name(names)
        score = next((by_name[name] for name in wanted.score_names if name in by_name), None)
    if score is None and wanted.needs_score:
        score = _only_numbers(names, texts, numbers, name)
    chosen = (*texts, *([score] if score else []))
    _require(chosen, names, name)
    unused = [column for column in names if column not in chosen]
    expected = (*wanted.result, *wanted.score_names[:1])[: len(chosen)]
    logger.log(
        logging.DEBUG if chosen == expected and not unused else logging.INFO,  # then there was nothing to choose
        "%s: %s read from %s; %s",
        name,
        ", ".join(expected),
        ", ".join(_shown(column) for column in chosen),
        f"not used: {', '.join(map(_shown, unused[:20]))}{', ...' * (len(unused) > 20)}"
        if unused
        else "no other columns",
    )
    return chosen


def _is_header(first_row: Sequence[str], below: Sequence[Sequence[str]], wanted: Wanted, name: str) -> bool:
    named = [column for column in wanted.stated if not column.isdecimal()]
    if named:
        _require(named, first_row, name)
        return True
    names = _KNOWN.union(*wanted.known, wanted.score_names)
    known = [field for field in first_row if field.strip().lower() in names]
    stands_apart = _stands_apart(first_row, below)
    if not (known or stands_apart or all(map(_LIKE_A_NAME.fullmatch, first_row))):
        return False
    reason = ""
    if not known:
        reason = "Each of its fields could be a column's name or a text of one word"
    elif len(known) < len(first_row) or _known_texts(first_row, wanted) is None:
        reason = (
            f"A header is detected when all its fields are known names, with those of {' and '.join(wanted.result)} "
            f"among them; here {', '.join(map(shorten, known))} could be"
        )
    if reason and stands_apart:
        require_texts(first_row, numbers_of(first_row, below), wanted, name)
    elif reason:
        first = shorten(list(first_row))
        raise InputError(
            f"{name}:1: cannot tell whether the first row is a header: {first}. {reason}. {_NAME_OR_STATE}"
        )
    logger.debug("%s: the first row is taken as a header: %s", name, ", ".join(first_row)[:1000])
    return True


def _stands_apart(first_row: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Check whether the first row is unlike those below: no value recurs; names above texts, or texts above numbers."""
    columns = list(zip(*(row for row in below if len(row) == len(first_row)), strict=True))
    if len(set(first_row)) < len(first_row) or not columns:
        return False
    if any(value in column for value, column in zip(first_row, columns, strict=True)):
        return False
    if any(all(map(_NUMBER.fullmatch, column)) for column in columns):
        return not any(map(_NUMBER.fullmatch, first_row))
    are_names = all(map(_LIKE_A_NAME.fullmatch, first_row))
    return are_names and any(
        2 * sum(map(bool, map(_LIKE_A_NAME.fullmatch, column))) < len(column) for column in columns
    )


def numbers_of(names: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the names of the columns that hold only numbers or dates in the given rows; none if there are no rows."""
    columns = list(zip(*(row for row in rows if len(row) == len(names)), strict=True))
    return [
        name for name, column in zip(names, columns, strict=False) if all(_NUMBER.fullmatch(str(v)) for v in column)
    ]


def _only_numbers(names: Sequence[str], texts: Sequence[str], numbers: Collection[str], name: str) -> str:
    """Return the only column of numbers whose name is unknown, to be taken as the gold scores."""
    found = [column for column in names if column in numbers and column not in texts and column.lower() not in _KNOWN]
    if len(found) != 1:
        raise InputError(
            f"{name}: no column of gold scores among {_listed(names)}. Call it score, or name it where there is the "
            "option score_column; higher must mean more alike"
        )
    return found[0]


def require_texts(names: Sequence[str], numbers: Collection[str], wanted: Wanted, name: str) -> None:
    """Refuse to guess the text columns if their names are unknown and other columns hold texts too."""
    n_texts = len(wanted.result)
    others = [each for each in names if each not in numbers]
    if _known_texts(names, wanted) is None and (len(others) != n_texts or _KNOWN & {each.lower() for each in others}):
        how = f"Name {'it' if n_texts == 1 else 'them'}: columns, --columns " + " ".join(["NAME"] * n_texts)
        if wanted.needs_score:
            how = f"Call them {', '.join(wanted.result)} and score"
        which = "which of" if n_texts == 1 else f"which {n_texts} of"
        raise InputError(
            f"{name}: {which} the columns {_listed(names)} {'has' if n_texts == 1 else 'have'} the texts? {how}"
        )


def _known_texts(names: Sequence[str], wanted: Wanted) -> tuple[str, ...] | None:
    by_name = _by_name(names)
    for known in wanted.known:
        if all(column.lower() in by_name for column in known):
            return tuple(by_name[column.lower()] for column in known)
    return None


def _by_name(names: Sequence[str]) -> dict[str, str]:
    """Return the column of each name in lower case; one that is written so comes first, then the leftmost."""
    return {column.strip().lower(): column for column in reversed(names)} | {column: column for column in names}


def _require(chosen: Sequence[str], names: Sequence[str], name: str) -> None:
    for column in chosen:
        if names.count(column) != 1:
            problem = "no column" if column not in names else f"{names.count(column)} columns are called"
            raise InputError(
                f"{name}: {problem} {shorten(column)}. Its columns are {_listed(names)}. State one of these; in a TSV "
                'or CSV without a header the columns are called "1", "2", ...'
            )
    if len(set(chosen)) < len(chosen):
        raise InputError(
            f"{name}: a column is stated twice: {', '.join(chosen)}. Each must be another one of {_listed(names)}."
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(shorten, names[:20])) + (", ..." if len(names) > 20 else "")


def _shown(column: str) -> str:
    return f"column {column}" if column.isdecimal() else shorten(column)
