"""A corpus into an index on disk; an interrupted build goes on where it stopped.

The index says of itself what it is in `index.json`, written last: a folder without it holds no index, or not yet.
"""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from transencoder import distributed, progress
from transencoder.configs import Pooling
from transencoder.errors import InputError, shorten
from transencoder.files import TEMPORARY, make_folder, remove_temporary
from transencoder.pairs import fingerprint
from transencoder.runs import stage_key
from transencoder.runs.files import (
    DamagedError,
    check_files,
    disk_full_explained,
    read_checked_json,
    sync_files,
    write_checked_json,
)
from transencoder.runs.folder import LOCK_NAME, release_lock, take_lock
from transencoder.search.embedder import Embedder
from transencoder.search.vectors import Approximation, VectorPrecision, make_vectors
from transencoder.shards import Arrays, Parts, Shard

logger = logging.getLogger(__name__)

VECTORS_NAME = "vectors.faiss"
LISTS_NAME = "vectors.lists"
DOCUMENTS_NAME = "documents.arrow"

_RECORD_NAME = "index.json"
_DRAFT_NAME = ".building"
"""Folder for what an interrupted build leaves to the next: by the index's key, parts of its embeddings."""
_EMBEDDINGS = "embeddings"
_KIND = "transencoder search index"
_FORMATS = (1, 2, 3)
"""Of index.json, the newest last; since the second it has a hash of itself, since the third lists are on disk."""
QUICK_BYTES = 1 << 26
_AGAIN = "Build it again: remove the folder and run `transencoder search build`"
_CHUNK = 1 << 13
"""Documents at a time."""
_SHARD_ROWS = 1 << 14
"""Documents of a shard: as many are embedded again after an interruption at most."""


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
    pooling: Pooling | None = None
    """None: the model's own."""

    @property
    def key(self) -> str:
        """Of what an interrupted build left; own pooling is left out, as there was no other before."""
        return stage_key("index", {name: value for name, value in asdict(self).items() if value or name != "pooling"})


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished index."""

    recipe: Recipe
    """What it was made of."""
    model: str
    """Where the bi-encoder was."""
    n_documents: int
    has_ids: bool
    """Whether documents have ids."""
    is_one_line: bool
    """Whether no document has a tab or a line end."""
    approximation: Approximation | None
    """Of a corpus too large to be compared with every query."""


@progress.shown()
def build_index(
    corpus: Dataset,
    embedder: Embedder,
    folder: str | os.PathLike[str],
    *,
    precision: VectorPrecision = "float32",
    merge: bool = False,
) -> Record:
    """Embed a corpus and write an index of it; where that very index is there already, nothing is done.

    Up to 100,000 documents memory holds the index, 4 bytes a number (`int8`: 1), beyond that a sample to find clusters
    with; of `binary` it always holds the index, 1/8 byte a number. The disk holds 8 bytes a number more until it is
    done. Under torchrun each rank embeds some shards, and the first makes the index.

    Args:
        corpus: n documents in `text`, with `id` where they have ids, each its own.
        embedder: The bi-encoder.
        folder: Where the index goes: new, empty, or begun before.
        precision: How embeddings are kept; see `transencoder.search.vectors`.
        merge: Embed nothing; all shards were embedded by `embed_shard`.

    Raises:
        InputError: The folder holds something else, no document is given, two have one id, or a shard is missing.
        RunError: Another process builds in the folder, or the disk is full.
    """
    folder = Path(folder)
    corpus, recipe = _given(corpus, embedder, precision)
    if (folder / _RECORD_NAME).exists():
        return _same_index(folder, recipe)
    _check_folder(folder)
    _check_ids(corpus)
    _warn_of_cut_documents(corpus, embedder)
    distributed.barrier()  # before one of them begins
    is_first, record = distributed.rank() == 0, None
    with disk_full_explained(folder), _locked(folder) if is_first else nullcontext():
        parts = _parts(corpus, folder, recipe)
        if not merge:
            parts.make_all(partial(_embedded, corpus, embedder))
        if is_first:
            embeddings = parts.join(parts.folder)[_EMBEDDINGS]
            vectors = make_vectors(embeddings, precision, lists=folder / LISTS_NAME)
            vectors.save(folder / VECTORS_NAME)
            record = Record(
                recipe=recipe,
                model=embedder.name,
                n_documents=len(corpus),
                has_ids="id" in corpus.column_names,
                is_one_line=_write_documents(corpus, folder / DOCUMENTS_NAME),
                approximation=vectors.approximation,
            )
            write_record(folder, record)
            shutil.rmtree(folder / _DRAFT_NAME)
    record = distributed.broadcast(record)
    assert record is not None, "the first has made it"
    return record


@progress.shown()
def embed_shard(
    corpus: Dataset,
    embedder: Embedder,
    folder: str | os.PathLike[str],
    shard: Shard,
    *,
    precision: VectorPrecision = "float32",
) -> None:
    """Embed one shard of a corpus for the index that `build_index` will make of all of them, with `merge`.

    Raises:
        InputError: As of `build_index`.
    """
    folder = Path(folder)
    corpus, recipe = _given(corpus, embedder, precision)
    if (folder / _RECORD_NAME).exists():
        _same_index(folder, recipe)
        return
    _check_folder(folder)
    with disk_full_explained(folder):
        _parts(corpus, folder, recipe).make(shard, partial(_embedded, corpus, embedder))


def embed_documents(corpus: Dataset, embedder: Embedder, folder: Path) -> np.ndarray:
    """Embed documents shard by shard.

    Args:
        corpus: n documents in `text`.
        embedder: The bi-encoder.
        folder: Where parts and embeddings are kept; under torchrun all ranks see it.

    Returns:
        Unit embeddings, float32 (n, dimensions), memory-mapped.
    """
    parts = _parts_in(folder, corpus, "")
    parts.make_all(partial(_embedded, corpus, embedder))
    return parts.join(folder)[_EMBEDDINGS]


def _given(corpus: Dataset, embedder: Embedder, precision: VectorPrecision) -> tuple[Dataset, Recipe]:
    corpus = corpus.select_columns([name for name in ("id", "text") if name in corpus.column_names])
    return corpus, _recipe(corpus, embedder, precision)


def _parts(corpus: Dataset, folder: Path, recipe: Recipe) -> Parts:
    return _parts_in(folder / _DRAFT_NAME / recipe.key[:16], corpus, recipe.key)


def _parts_in(folder: Path, corpus: Dataset, key: str) -> Parts:
    return Parts(
        folder=folder,
        n_rows=len(corpus),
        maker={"key": key},
        again="run the same command with --shard {shard}",
        shard_rows=_SHARD_ROWS,
    )


def _embedded(corpus: Dataset, embedder: Embedder, rows: slice) -> Arrays:
    return {_EMBEDDINGS: embedder.documents(corpus[rows]["text"])}


def write_record(folder: Path, record: Record) -> None:
    """Bring the index's files to the disk, then say in `index.json`, last and atomically, that it is whole."""
    files = sync_files(folder, _files_of(record.approximation is not None))
    write_checked_json(
        folder / _RECORD_NAME, {"kind": _KIND, "format": max(_FORMATS), **asdict(record), "files": files}
    )


def read_record(folder: Path, *, is_quick: bool = False) -> Record:
    """Read an index's record after checking every file.

    Args:
        folder: Of the index.
        is_quick: Check of files over 64 MB the size alone: reading 10 GB takes a minute, searching in them none.

    Raises:
        InputError: There is no index, or it is not what it was.
    """
    content = _content(folder)
    try:
        approximation = content["approximation"]
        files = {name: content["files"][name] for name in _files_of(approximation is not None)}
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
    except (AttributeError, KeyError, TypeError) as error:  # of format 1, which has no hash
        raise InputError(f"{folder / _RECORD_NAME} is damaged ({error!r}). {_AGAIN}") from error


def _files_of(has_lists: bool) -> tuple[str, ...]:
    return (VECTORS_NAME, DOCUMENTS_NAME, *([LISTS_NAME] if has_lists else []))


@contextmanager
def explained() -> Iterator[None]:
    """Refuse what is damaged inside the block, and say what to do."""
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
    """Tell whether a value is of a type: a class, choices, or a union of such."""
    if str(get_origin(kind)) == str(Literal):
        return value in get_args(kind)
    parts = get_args(kind)
    return any(_fits(value, part) for part in parts) if parts else isinstance(value, kind)


def _content(folder: Path) -> dict[str, Any]:
    path = folder / _RECORD_NAME
    try:
        with explained():
            content = read_checked_json(path)
    except FileNotFoundError as error:
        is_begun = (folder / _DRAFT_NAME).exists()
        advice = "It was begun and not finished: run its `search build` again."
        raise InputError(
            f"{folder} is no index: it has no {_RECORD_NAME}. "
            f"{advice if is_begun else '`transencoder search build` makes one.'}"
        ) from error
    if content.get("kind") != _KIND:
        raise InputError(f"{path} is not of an index that transencoder made; give the folder of one")
    is_read = (
        content.get("format") in _FORMATS[-1:] if content.get("approximation") else content.get("format") in _FORMATS
    )
    if not is_read or content["recipe"]["precision"] not in get_args(VectorPrecision):
        raise InputError(
            f"{path} is of format {content.get('format')!r}, and this version of transencoder reads "
            f"{max(_FORMATS)}. {_AGAIN}"
        )
    return content


def _recipe(corpus: Dataset, embedder: Embedder, precision: VectorPrecision) -> Recipe:
    if not len(corpus):
        raise InputError("the corpus has no documents; give at least one")
    return Recipe(
        corpus=fingerprint(corpus),
        model_fingerprint=embedder.fingerprint,
        query_prompt=embedder.query_prompt,
        document_prompt=embedder.document_prompt,
        max_length=embedder.model.max_seq_length,
        dimensions=embedder.dimensions,
        precision=precision,
        pooling=embedder.pooling,
    )


def _same_index(folder: Path, recipe: Recipe) -> Record:
    record = read_record(folder)
    if any((folder / name).exists() for name in (_DRAFT_NAME, LOCK_NAME)):
        with _locked(folder):  # a build that was killed when its index was whole
            shutil.rmtree(folder / _DRAFT_NAME, ignore_errors=True)
    found = asdict(record.recipe)
    differing = [name for name, value in asdict(recipe).items() if value != found[name]]
    if differing:
        raise InputError(
            f"{folder} is an index with another {' and '.join(differing)}. Choose another folder, or remove it first"
        )
    logger.info("%s is that index already; nothing is done", folder)
    return record


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, and an index is a folder. Choose another name.")
    ours = {_DRAFT_NAME, LOCK_NAME, *_files_of(True)}
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    others = [name for name in names if name not in ours and not name.startswith(TEMPORARY)]
    if others:
        raise InputError(
            f"{folder} holds other things, such as {others[0]}. Choose a new or empty folder for the index."
        )


def _check_ids(corpus: Dataset) -> None:
    if "id" not in corpus.column_names:
        return
    counted = pc.value_counts(corpus.with_format("arrow")[:]["id"].combine_chunks())
    repeated = counted.filter(pc.greater(counted.field("counts"), 1))
    if len(repeated):
        raise InputError(
            f"{len(repeated)} ids are of several documents, the first {shorten(repeated[0]['values'].as_py())}. "
            "Each document needs an id of its own"
        )


def _warn_of_cut_documents(corpus: Dataset, embedder: Embedder) -> None:
    """Say how many documents are longer than what the model reads, by the first of them."""
    texts = corpus[:_CHUNK]["text"]
    share = embedder.share_cut(texts)
    if share:
        logger.warning(
            "%s reads the first %d tokens of a text, and %.0f %% of the first %d documents are longer: what follows is "
            "not searched. A model that can read more takes --max-length",
            embedder.name,
            embedder.model.max_seq_length,
            max(1.0, 100 * share),
            len(texts),
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    make_folder(folder)
    lock = take_lock(folder)
    try:
        remove_temporary(folder)
        yield
        (folder / LOCK_NAME).unlink(missing_ok=True)
    finally:
        release_lock(lock)


def _write_documents(corpus: Dataset, path: Path) -> bool:
    """Write the documents to an Arrow file; return whether each is one line without tabs."""
    schema = pa.schema([(name, pa.string()) for name in corpus.column_names])
    is_one_line = True
    with path.open("wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for table in corpus.with_format("arrow").iter(batch_size=_CHUNK):
            writer.write_table(table.cast(schema))
            is_one_line &= not pc.any(pc.match_substring_regex(table.column("text"), "[\t\r\n]")).as_py()
    return bool(is_one_line)
