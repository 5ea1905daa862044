"""What an index says of itself, `index.json`, written last: a folder without it holds no index, or not yet."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from transencoder.errors import InputError
from transencoder.files import sync
from transencoder.runs.files import atomic_json, sha256_of, sync_and_hash
from transencoder.search.vectors import Approximation, VectorPrecision

RECORD_NAME = "index.json"
VECTORS_NAME = "vectors.faiss"
DOCUMENTS_NAME = "documents.arrow"

_KIND = "transencoder search index"
_FORMAT = 1
_AGAIN = "Build it again: remove the folder and run `transencoder search build`"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What decides an index: the same corpus and recipe make the same index."""

    corpus: str
    """Fingerprint of the documents."""
    model_fingerprint: str
    """Of the bi-encoder's weights, configs and tokenizer."""
    query_prompt: str
    """Put before every query."""
    document_prompt: str
    """Put before every document."""
    max_length: int | None
    """Tokens of a text."""
    dimensions: int
    """Numbers of an embedding that are kept."""
    precision: VectorPrecision
    """How these are kept."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished index."""

    recipe: Recipe
    """What it was made of."""
    model: str
    """Where the bi-encoder was."""
    n_documents: int
    """How many there are."""
    has_ids: bool
    """Whether documents have ids."""
    is_one_line: bool
    """Whether no document has a tab or a line end."""
    approximation: Approximation | None
    """Of a corpus too large to be compared with every query."""


def write_record(folder: Path, record: Record) -> None:
    """Bring the index's files to the disk, then say in `index.json`, last and atomically, that it is whole."""
    files = {}
    for name in (VECTORS_NAME, DOCUMENTS_NAME):
        sha256, size = sync_and_hash(folder / name)
        files[name] = {"sha256": sha256, "size": size}
    sync(folder)
    atomic_json(folder / RECORD_NAME, {"kind": _KIND, "format": _FORMAT, **asdict(record), "files": files})


def read_record(folder: Path) -> Record:
    """Read an index's record after checking every file.

    Raises:
        InputError: There is no index, or it is not what it was.
    """
    content = _content(folder)
    try:
        for name in (VECTORS_NAME, DOCUMENTS_NAME):
            _check_file(folder / name, **content["files"][name])
        approximation = content["approximation"]
        return Record(
            recipe=Recipe(**content["recipe"]),
            model=content["model"],
            n_documents=content["n_documents"],
            has_ids=content["has_ids"],
            is_one_line=content["is_one_line"],
            approximation=None if approximation is None else Approximation(**approximation),
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder / RECORD_NAME} is damaged ({error!r}). {_AGAIN}") from error


def is_index(folder: Path) -> bool:
    """Whether a folder holds a finished index, whole or damaged."""
    return (folder / RECORD_NAME).exists()


def _content(folder: Path) -> dict[str, Any]:
    path = folder / RECORD_NAME
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        started = (
            " It was begun and not finished: run its `search build` again." if (folder / DRAFT_NAME).exists() else ""
        )
        raise InputError(
            f"{folder} is no index: it has no {RECORD_NAME}.{started or ' `transencoder search build` makes one.'}"
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}). {_AGAIN}") from error
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        raise InputError(f"{path} is not of an index that transencoder made; give the folder of one")
    if content.get("format") != _FORMAT or content["recipe"]["precision"] not in get_args(VectorPrecision):
        raise InputError(
            f"{path} is of format {content.get('format')!r}, and this version of transencoder reads {_FORMAT}. {_AGAIN}"
        )
    return content


DRAFT_NAME = ".building"
"""Folder for what an interrupted build leaves to the next."""


def _check_file(path: Path, sha256: str, size: int) -> None:
    if not path.is_file():
        raise InputError(f"{path} is missing. {_AGAIN}")
    found = path.stat().st_size
    if found != size:
        raise InputError(f"{path} has {found} bytes instead of {size}. {_AGAIN}")
    if sha256_of(path) != sha256:
        raise InputError(f"{path} is damaged: its sha256 is not the recorded one. {_AGAIN}")
