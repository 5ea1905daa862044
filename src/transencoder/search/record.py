"""The record of an index, `index.json`, written last: a folder without it holds no index, or an unfinished one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from transencoder.configs import Pooling
from transencoder.errors import InputError, shorten
from transencoder.runs.files import DamagedError, check_files, read_checked_json, sync_files, write_checked_json
from transencoder.search.vectors import Approximation, VectorPrecision

VECTORS_NAME = "vectors.faiss"
LISTS_NAME = "vectors.lists"
DOCUMENTS_NAME = "documents.arrow"

RECORD_NAME = "index.json"
DRAFT_NAME = ".building"
"""Folder for parts of the embeddings, from which an interrupted build resumes."""
_KIND = "transencoder search index"
_FORMAT = 3
QUICK_BYTES = 1 << 26
"""Maximum size in bytes of files that are read to check them when an index is opened."""
_AGAIN = "Build it again: remove the folder and run `transencoder search build`"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that determines an index: the same recipe makes the same index."""

    corpus: str
    """Fingerprint of the documents."""
    model_fingerprint: str
    """Fingerprint of the bi-encoder's weights, configs and tokenizer."""
    query_prompt: str
    """Text put before every query."""
    document_prompt: str
    """Text put before every document."""
    max_length: int | None
    """Maximum number of tokens of a text."""
    dimensions: int
    """Number of dimensions of an embedding that are kept."""
    precision: VectorPrecision
    """Precision in which embeddings are stored."""
    pooling: Pooling | None = None
    """Pooling method; None: the model's own."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """Record of a finished index."""

    recipe: Recipe
    """What the index was built from."""
    model: str
    """Folder or hub id of the bi-encoder at the build."""
    n_documents: int
    has_ids: bool
    """Whether documents have ids."""
    is_one_line: bool
    """Whether no document contains a tab or a line break."""
    approximation: Approximation | None
    """Approximate search of a corpus too large to be compared with every query; None: the search is exact."""


def write_record(folder: Path, record: Record) -> None:
    """Flush the index's files to disk, then write `index.json` atomically, which marks the index as complete."""
    files = sync_files(folder, files_of(has_lists=record.approximation is not None))
    write_checked_json(folder / RECORD_NAME, {"kind": _KIND, "format": _FORMAT, **asdict(record), "files": files})


def read_record(folder: Path, *, is_quick: bool = False) -> Record:
    """Read an index's record after checking every file.

    Args:
        folder: Folder of the index.
        is_quick: Check only the size of files over 64 MB: reading 10 GB takes a minute, searching in them none.

    Raises:
        InputError: There is no index, or it has changed since it was written.
    """
    content = _content(folder)
    try:
        approximation = content["approximation"]
        files = {name: content["files"][name] for name in files_of(has_lists=approximation is not None)}
        with explained():
            check_files(folder, files, up_to_bytes=QUICK_BYTES if is_quick else None)
        record = Record(
            recipe=Recipe(**content["recipe"]),
            model=content["model"],
            n_documents=content["n_documents"],
            has_ids=content["has_ids"],
            is_one_line=content["is_one_line"],
            approximation=None if approximation is None else Approximation(**approximation),
        )
        _check_types(record, record.recipe, record.approximation)
        return record
    except (AttributeError, KeyError, TypeError) as error:  # written by another program
        raise InputError(f"{folder / RECORD_NAME} is damaged ({error!r}). {_AGAIN}") from error


def files_of(*, has_lists: bool) -> tuple[str, ...]:
    """Return the names of an index's files, except its record."""
    return (VECTORS_NAME, DOCUMENTS_NAME, *([LISTS_NAME] if has_lists else []))


@contextmanager
def explained() -> Iterator[None]:
    """Turn a `DamagedError` in the block into an `InputError` that says what to do."""
    try:
        yield
    except DamagedError as error:
        raise InputError(f"{error}. {_AGAIN}") from error


def _check_types(*parts: object) -> None:
    for part in parts:
        for name, kind in get_type_hints(type(part)).items():
            if not _fits(value := getattr(part, name), kind):
                raise TypeError(f"{name} is {shorten(value)}")


def _fits(value: object, kind: Any) -> bool:
    """Check whether a value is of a type: a class, a `Literal`, or a union of these."""
    if str(get_origin(kind)) == str(Literal):
        return value in get_args(kind)
    parts = get_args(kind)
    return any(_fits(value, part) for part in parts) if parts else isinstance(value, kind)


def _content(folder: Path) -> dict[str, Any]:
    path = folder / RECORD_NAME
    try:
        with explained():
            content = read_checked_json(path)
    except FileNotFoundError as error:
        is_begun = (folder / DRAFT_NAME).exists()
        advice = "It was begun and not finished: run its `search build` again."
        raise InputError(
            f"{folder} is no index: it has no {RECORD_NAME}. "
            f"{advice if is_begun else '`transencoder search build` makes one.'}"
        ) from error
    if content.get("kind") != _KIND:
        raise InputError(f"{path} is not of an index that transencoder made; give the folder of one")
    if content.get("format") != _FORMAT:
        raise InputError(
            f"{path} is of format {content.get('format')!r}, and this version of transencoder reads {_FORMAT}. {_AGAIN}"
        )
    return content
