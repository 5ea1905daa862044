"""Reader of pairs with classes, by name or number, such as natural language inference or paraphrase detection."""

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset, Features
from pyarrow import parquet

from transencoder.errors import InputError, plural, shorten
from transencoder.pairs.columns import KNOWN_PAIRS, Wanted
from transencoder.pairs.files import open_stream
from transencoder.pairs.read import open_source
from transencoder.pairs.rows import Fault, check_text, check_texts, good_rows
from transencoder.pairs.source import Found, Source
from transencoder.pairs.store import store_rows

logger = logging.getLogger(__name__)

LABEL_NAMES = ("label", "labels", "gold_label")
"""Names that a column of classes is recognised by."""
NO_CLASS = ("-1", "-", "")
"""Values that mark a row without a class: -1 on the hub, `-` in SNLI's own files, an empty text. Null does so too."""
MOST_CLASSES = 100
"""Largest number of classes; more are taken for a mistake, such as a column of scores."""

_CLASSES = Wanted(result=("sentence1", "sentence2"), known=KNOWN_PAIRS, score_names=LABEL_NAMES)
_NUMBER = re.compile(r"-?\d+(\.\d*)?")


@dataclass(frozen=True)
class ClassPairs:
    """Pairs and their classes."""

    pairs: Dataset
    """n rows of `sentence1` and `sentence2`."""
    classes: np.ndarray
    """Class of each pair as its position in `names`, int64 (n,)."""
    names: tuple[str, ...]
    n_without: int
    """Number of rows that had no class and were left out."""


def read_classes(
    source: Source, *, class_names: Sequence[str] = (), numbers: Sequence[str] | None = None
) -> ClassPairs:
    """Read pairs with classes, checked row by row.

    Rows whose class is -1, `-`, empty or null have no class. They are left out, and their number is logged.

    Args:
        source: where to read from. Its `score_column` is the column of classes. Default: `label`, `labels` or
            `gold_label`.
        class_names: all classes, in order. Default: the names in the data set's own feature, else the classes that
            occur, sorted (numbers by value).
        numbers: the class that each number from 0 stands for, where rows hold numbers. The data set's own feature
            takes precedence. Default: `class_names`, unless these are numbers themselves.

    Raises:
        InputError: the source or a row cannot be used; the message gives `path:line`, what was read, what is allowed
            and what to do.
        RunError: the cache folder or the file for bad rows cannot be written.
    """
    _check_names(class_names)
    with open_source(source, _CLASSES) as opened:
        columns, name = opened.table.columns, opened.found.name
        if len(columns) < 3:
            raise InputError(
                f"{name}: no column of classes is called {', '.join(LABEL_NAMES[:-1])} or {LABEL_NAMES[-1]}. "
                "State its name with label_column; scores are learned with label_kind scores."
            )
        own = _features_of(opened.found).get(columns[2])
        own_names = tuple(getattr(own, "names", None) or ())
        known = tuple(class_names) or own_names
        are_numbers = any(each.lstrip("-").isdecimal() for each in known)
        by_number = own_names or (tuple(numbers) if numbers is not None else () if are_numbers else known)

        def check(values: Sequence[object]) -> Sequence[object]:
            check_texts(values[:2], columns[:2])
            return (*values[:2], _class_name(values[2], columns[2], known, by_number))

        rows = good_rows(opened.table, opened.bad_rows, check)
        stored = store_rows(rows, ("sentence1", "sentence2", "label"), opened.folder, opened.bad_rows)
    return _numbered(stored, known, name)


def _check_names(names: Sequence[str]) -> None:
    if len(names) == 1 or len(set(names)) < len(names):
        raise InputError(f"class_names are {', '.join(names)}; give two or more, each once")
    if nothing := [name for name in names if name in NO_CLASS]:
        raise InputError(f"class_names has {nothing[0]!r}, which marks rows without a class; leave it out")


def _features_of(found: Found) -> Mapping[str, Any]:
    """Return a data set's features, also those that `datasets` stored in the schema of an unpacked Parquet file."""
    features: Mapping[str, Any] = {}
    if found.dataset is not None:
        features = found.dataset.features
    if found.file_format != "parquet" or found.files[0] is None or found.packed:
        return features
    with (
        suppress(ValueError, KeyError, TypeError, AttributeError),  # the schema is not as datasets writes it
        open_stream(found.files[0], found.names[0]) as stream,
    ):
        features = Features.from_arrow_schema(parquet.read_schema(stream))
    return features


def _class_name(value: object, column: str, known: tuple[str, ...], by_number: tuple[str, ...]) -> str:
    """Return the name of a class; empty if the row has none.

    Raises:
        Fault: The value is not a class, or not one of the known classes.
    """
    name = _as_text(value, known)
    if name and name.isdecimal() and int(name) < len(by_number):
        name = by_number[int(name)]
    if name is None or (known and name and name not in known):
        numbers = f", or 0 to {len(by_number) - 1}" if by_number else ""
        allowed = "a text or a whole number from 0; scores are another label_kind"
        if known:
            allowed = f"{', '.join(known)}{numbers}"
        raise Fault(
            f"{column} is {shorten(value)}, which is no class",
            f"Allowed are {allowed}; {NO_CLASS[0]} marks a row without",
        )
    if name:
        check_text(name, column)
    return name


def _as_text(value: object, known: tuple[str, ...]) -> str | None:
    """Return a value as the text of a class: empty if it marks no class, None if it cannot be one. 1.0 becomes 1."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    name = str(value).strip()
    if not isinstance(value, str) and not _NUMBER.fullmatch(name):  # such as nan
        return None
    if name not in known and _NUMBER.fullmatch(name):
        number = float(name)
        if number != -1 and (number < 0 or not number.is_integer()):
            return None
        name = str(int(number))
    return "" if name in NO_CLASS else name


def _numbered(stored: Dataset, known: tuple[str, ...], name: str) -> ClassPairs:
    found = np.asarray(stored["label"][:], dtype=object)
    has_class = found != ""
    n_without = int((~has_class).sum())
    if n_without:
        logger.warning("%s: %s without a class left out", name, plural(n_without, "row"))
    occurring = sorted(set(found[has_class]), key=_order)
    names = known or tuple(occurring)
    if not known and 0 < sum(each.isdecimal() for each in occurring) < len(occurring):
        raise InputError(
            f"{name} has both numbers and names as classes: {shorten(occurring[:4])}. State class_names, all of them "
            "in the order of their numbers"
        )
    n_names = len(names) if has_class.any() else 0
    if not 2 <= n_names <= MOST_CLASSES:
        such = f", such as {shorten(list(names[:3]))}" if n_names else ""
        raise InputError(
            f"{name} has {n_names:,} different classes{such}; 2 to {MOST_CLASSES} are allowed. Is the column of "
            "classes the right one (label_column)?"
        )
    if missing := [each for each in names if each not in occurring]:
        logger.warning("%s: no row has the class %s", name, " or ".join(missing))
    positions = {each: position for position, each in enumerate(names)}
    classes = np.array([positions[each] for each in found[has_class]], np.int64)
    pairs = stored.select_columns(["sentence1", "sentence2"])
    return ClassPairs(pairs.select(np.flatnonzero(has_class)) if n_without else pairs, classes, names, n_without)


def _order(name: str) -> tuple[bool, int, str]:
    """Return a sort key that puts numbers first, by value, and then the other names."""
    is_number = name.lstrip("-").isdecimal()
    return not is_number, int(name) if is_number else 0, name
