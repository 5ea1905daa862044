"""Conversion of Python objects to what readers take: the name of a file or data set, or a `datasets.Dataset`.

Cost: a list or table is copied once into Arrow; a generator is run to its end.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from glob import has_magic
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transencoder.errors import InputError, reason_of, shorten

if TYPE_CHECKING:
    from datasets import Dataset

_PAIR = ("sentence1", "sentence2")
_ALLOWED = (
    "a path, a hub id, a list of texts, of tuples (text, text) or (text, text, score), or of dicts, a pandas or polars "
    "Series or DataFrame, a datasets.Dataset, a DatasetDict of one split, or a generator of rows"
)


_FORMATS = ("tsv", "csv", "jsonl", "parquet", "txt")
SUFFIXES = [f".{file_format}{packed}" for file_format in _FORMATS for packed in ("", ".gz", ".zst")]
ALLOWED_FILES = (
    f"Allowed are .{', .'.join(_FORMATS)} (.txt for sentences, or for pairs separated by `||`), each also with .gz or "
    ".zst"
)


def no_such_file(name: str, data_folder: Path | None) -> InputError:
    """Return the error for a name that can only be a file and does not exist."""
    where = f" and not in the data folder {data_folder}" if data_folder else ""
    return InputError(
        f"{name}: no such file (looked in {Path.cwd()}{where}). {ALLOWED_FILES}, or a hub id such as mteb/sts12-sts. "
        "Check the path."
    )


def check_file(name: str, data_folder: str | None = None) -> None:
    """Check that a name that can only be a file exists, here or in the data folder.

    Raises:
        InputError: There is no such file.
    """
    stated = data_folder or os.environ.get("TRANSENCODER_DATA")
    folder = Path(stated).expanduser() if stated else None
    is_several = "://" in name or has_magic(name)
    can_be_other = not name.lower().endswith(tuple(SUFFIXES)) and not name.startswith((".", "/", "~"))
    if not (is_several or can_be_other or Path(name).expanduser().exists() or (folder and (folder / name).exists())):
        raise no_such_file(name, folder)


def as_source(value: Any, name: str = "the source") -> str | Dataset:
    """Return the name of a file or data set as a string, or rows in memory as a Dataset.

    Args:
        value: A string or path is a name. A list, tuple, Series or generator of texts becomes the column `text`; one of
            tuples becomes `sentence1`, `sentence2` and, with a third item, `score`; one of dicts becomes their columns.
            A DataFrame, an Arrow table or a dict of lists keeps its columns.
        name: Name of the value in messages, such as `sentences`.

    Raises:
        InputError: The value is anything else, has no rows, or has rows that do not fit together.
    """
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    from datasets import Dataset, DatasetDict

    if isinstance(value, DatasetDict):
        if len(value) != 1:
            splits = ", ".join(value)
            raise InputError(
                f"{name} is a DatasetDict with the splits {splits}; give one of them, such as data['train']"
            )
        value = next(iter(value.values()))
    if isinstance(value, Dataset):
        return value
    try:
        return _table(value, name) if _is_table(value) else _of_rows(value, name)
    except InputError:
        raise
    except Exception as error:  # pandas, polars and Arrow raise errors of many kinds
        raise InputError(f"{name} cannot be read as rows ({reason_of(error)}); give {_ALLOWED}") from error


def _is_table(value: Any) -> bool:
    """Tell whether a value has named columns: a DataFrame, an Arrow table, a dict of lists."""
    return isinstance(value, Mapping) or hasattr(value, "columns") or hasattr(value, "column_names")


def _table(value: Any, name: str) -> Dataset:
    from datasets import Dataset

    if isinstance(value, Mapping):
        return Dataset.from_dict({str(column): list(rows) for column, rows in value.items()})
    library = type(value).__module__.partition(".")[0]
    if library == "pandas":
        return Dataset.from_pandas(value, preserve_index=False)
    if library == "polars":
        return Dataset.from_polars(value)
    if library == "pyarrow":
        return Dataset(value)
    return _of_rows(value, name)  # a streamed data set, which yields dicts


def _of_rows(value: Any, name: str) -> Dataset:
    """Return the Dataset of an iterable of texts, tuples or dicts."""
    from datasets import Dataset

    if not isinstance(value, Iterable) or isinstance(value, bytes | set | frozenset):
        raise InputError(f"{name} is of type {type(value).__name__}; give {_ALLOWED}")
    rows = iter(value)
    first = next(rows, None)
    if first is None:
        raise InputError(f"{name} has no rows, or begins with None; give at least one row: {_ALLOWED}")
    everything = chain([first], rows)
    if isinstance(first, str):
        return Dataset.from_dict({"text": _checked(everything, str, name)})
    if isinstance(first, Mapping):
        return Dataset.from_list(_checked(everything, Mapping, name))
    if isinstance(first, Sequence) and len(first) in (len(_PAIR), len(_PAIR) + 1):
        return _of_tuples(_checked(everything, Sequence, name), len(first), name)
    raise InputError(f"{name} has {shorten(first)} as its first row; give {_ALLOWED}")


def _of_tuples(rows: list[Any], width: int, name: str) -> Dataset:
    from datasets import Dataset

    for number, row in enumerate(rows, 1):
        if isinstance(row, str) or len(row) != width:
            raise InputError(f"row {number} of {name} is {shorten(row)}; the first has {width} items: give all as many")
    columns = (*_PAIR, "score")[:width]
    return Dataset.from_dict({column: [row[i] for row in rows] for i, column in enumerate(columns)})


def _checked(rows: Iterable[Any], kind: Any, name: str) -> list[Any]:
    """Return the rows as a list, after checking that all are of one kind; a text may be None, which readers see."""
    found = [None if isinstance(row, float) and math.isnan(row) else row for row in rows]  # pandas writes nan for None
    for number, row in enumerate(found, 1):
        if not isinstance(row, kind) and not (row is None and kind is str):
            raise InputError(
                f"row {number} of {name} is {shorten(row)} ({type(row).__name__}), and the first is "
                f"{shorten(found[0])} ({type(found[0]).__name__}); give rows of one kind"
            )
    return found
