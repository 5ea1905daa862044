"""Build a search index of a corpus on disk. An interrupted build resumes where it stopped."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from transencoder import distributed, progress
from transencoder.devices import computed_in
from transencoder.errors import InputError, shorten
from transencoder.files import TEMPORARY, make_folder, remove_temporary
from transencoder.pairs import fingerprint, read_sentences
from transencoder.runs.files import disk_full_explained
from transencoder.runs.folder import LOCK_NAME, release_lock, take_lock
from transencoder.search.embedder import Embedder
from transencoder.search.record import (
    DOCUMENTS_NAME,
    DRAFT_NAME,
    LISTS_NAME,
    RECORD_NAME,
    VECTORS_NAME,
    Recipe,
    Record,
    files_of,
    read_record,
    write_record,
)
from transencoder.search.vectors import VectorPrecision, make_vectors
from transencoder.shards import Arrays, Parts, Shard

logger = logging.getLogger(__name__)

_EMBEDDINGS = "embeddings"
_CHUNK = 1 << 13
"""Number of documents read at a time."""
_LOOKED_AT = 1024
"""Number of documents, the first ones, whose lengths are compared with what the model reads."""
_SHARD_ROWS = 1 << 14
"""Maximum number of documents in a shard, and so of documents embedded again after an interruption."""


@progress.shown()
def build_index(
    corpus: Any,
    embedder: Embedder,
    folder: str | os.PathLike[str],
    *,
    precision: VectorPrecision = "float32",
    merge: bool = False,
) -> Record:
    """Embed a corpus and write an index of it. Do nothing if the folder already holds that index.

    Up to 100,000 documents, memory holds the whole index: 4 bytes per number (`int8`: 1). Beyond that, it holds a
    sample of the embeddings, on which the clusters are trained. A `binary` index is always held in memory: 1/8 byte per
    number. Until the build is done, the disk holds 8 more bytes per number. Under torchrun, each process embeds some
    shards, and the first one builds the index.

    Args:
        corpus: n documents in `text`, optionally with unique ids in `id`. Or a list and whatever else `read_sentences`
            takes.
        embedder: The bi-encoder.
        folder: Folder of the index: new, empty, or with an interrupted build.
        precision: How embeddings are stored; see `transencoder.search.vectors`.
        merge: Embed nothing, and use the shards that `embed_shard` has embedded; none may be missing.

    Raises:
        InputError: The folder holds other files, the corpus is empty, two documents have the same id, or a shard is
            missing.
        RunError: Another process is building in the folder, or the disk is full.
    """
    folder = Path(folder)
    corpus, recipe = _given(corpus, embedder, precision)
    if distributed.from_first((folder / RECORD_NAME).exists):
        record = _same_index(folder, recipe)
        distributed.from_first(partial(_clear, folder))
        return record
    _check(corpus, embedder, folder)
    distributed.barrier()  # all have checked the folder before one writes to it
    with disk_full_explained(folder), _locked(folder) if distributed.rank() == 0 else nullcontext():
        if distributed.from_first((folder / RECORD_NAME).exists):  # another command has built it meanwhile
            return _same_index(folder, recipe)
        parts = _parts(corpus, embedder, folder / DRAFT_NAME, recipe)
        if not merge:
            parts.make_all(partial(_embedded, corpus, embedder))
        embeddings = parts.join(parts.folder)[_EMBEDDINGS]

        def write() -> Record:
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
            shutil.rmtree(folder / DRAFT_NAME)
            return record

        return distributed.from_first(write)


@progress.shown()
def embed_shard(
    corpus: Dataset,
    embedder: Embedder,
    folder: str | os.PathLike[str],
    shard: Shard,
    *,
    precision: VectorPrecision = "float32",
) -> None:
    """Embed one shard of a corpus. `build_index` with `merge` then builds the index from all shards.

    Raises:
        InputError: As for `build_index`.
    """
    folder = Path(folder)
    parts = embedding_parts(corpus, embedder, folder, precision=precision)
    if not (folder / RECORD_NAME).exists():
        with disk_full_explained(folder):
            parts.make(shard, partial(_embedded, corpus, embedder))


def embedding_parts(
    corpus: Dataset, embedder: Embedder, folder: str | os.PathLike[str], *, precision: VectorPrecision = "float32"
) -> Parts:
    """Return the parts that hold an index's embeddings, after checking corpus, model and folder like `build_index`."""
    folder = Path(folder)
    corpus, recipe = _given(corpus, embedder, precision)
    if (folder / RECORD_NAME).exists():
        _same_index(folder, recipe)
    else:
        _check(corpus, embedder, folder)
    return _parts(corpus, embedder, folder / DRAFT_NAME, recipe)


def embed_documents(corpus: Dataset, embedder: Embedder, folder: Path) -> np.ndarray:
    """Embed documents shard by shard.

    Args:
        corpus: n documents in `text`.
        embedder: The bi-encoder.
        folder: Folder for the parts and embeddings of this corpus only; all processes must see it.

    Returns:
        Unit embeddings, float32 (n, dimensions), memory-mapped.
    """
    parts = Parts(folder=folder, n_rows=len(corpus), maker={}, shard_rows=_SHARD_ROWS)
    parts.make_all(partial(_embedded, corpus, embedder))
    return parts.join(folder)[_EMBEDDINGS]


def _given(corpus: Dataset, embedder: Embedder, precision: VectorPrecision) -> tuple[Dataset, Recipe]:
    """Return the columns of the corpus that are indexed, and the recipe of its index."""
    corpus = corpus if isinstance(corpus, Dataset) else read_sentences(corpus)
    if not len(corpus):
        raise InputError("the corpus has no documents; give at least one")
    if precision not in get_args(VectorPrecision):
        raise InputError(f"precision is {precision!r}; give one of {', '.join(get_args(VectorPrecision))}")
    corpus = corpus.select_columns([name for name in ("id", "text") if name in corpus.column_names])
    return corpus, Recipe(
        corpus=fingerprint(corpus),
        model_fingerprint=embedder.fingerprint,
        query_prompt=embedder.query_prompt,
        document_prompt=embedder.document_prompt,
        max_length=embedder.model.max_seq_length,
        dimensions=embedder.dimensions,
        precision=precision,
        pooling=embedder.pooling,
    )


def _parts(corpus: Dataset, embedder: Embedder, folder: Path, recipe: Recipe) -> Parts:
    """Return the parts that hold the embeddings. They do not depend on the precision of the index."""
    texts = corpus.select_columns("text")
    return Parts(
        folder=folder,
        n_rows=len(corpus),
        maker={name: value for name, value in asdict(recipe).items() if name not in ("corpus", "precision")},
        rows_hash=lambda rows: fingerprint(texts.select(range(rows.start, rows.stop))),
        remedy="run the same command with --shard {shard}",
        shard_rows=_SHARD_ROWS,
        computed_in=computed_in(embedder.model.device, embedder.precision),
    )


def _embedded(corpus: Dataset, embedder: Embedder, rows: slice) -> Arrays:
    return {_EMBEDDINGS: embedder.documents(corpus[rows]["text"])}


def _check(corpus: Dataset, embedder: Embedder, folder: Path) -> None:
    _check_folder(folder)
    _check_ids(corpus)
    _warn_of_cut_documents(corpus, embedder)


def _same_index(folder: Path, recipe: Recipe) -> Record:
    record = read_record(folder)
    found = asdict(record.recipe)
    differing = [name for name, value in asdict(recipe).items() if value != found[name]]
    if differing:
        raise InputError(
            f"{folder} is an index with another {' and '.join(differing)}. Choose another folder, or remove it first"
        )
    logger.info("%s is that index already; nothing is done", folder)
    return record


def _clear(folder: Path) -> None:
    """Remove what a build that was killed after it had written the index has left."""
    if any((folder / name).exists() for name in (DRAFT_NAME, LOCK_NAME)):
        with _locked(folder):
            shutil.rmtree(folder / DRAFT_NAME, ignore_errors=True)


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, and an index is a folder. Choose another name.")
    ours = {DRAFT_NAME, LOCK_NAME, *files_of(has_lists=True)}
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
    """Warn of documents that are longer than the model's maximum length; check the first `_LOOKED_AT` only."""
    texts = corpus[:_LOOKED_AT]["text"]
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
