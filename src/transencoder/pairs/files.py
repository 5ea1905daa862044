"""Files: bytes from files and stdin, and new files that get their own name when they are complete."""

from __future__ import annotations

import gzip
import io
import os
import secrets
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from transencoder.errors import InputError, RunError

_BUFFER_BYTES = 1 << 20
_UNFINISHED = ".unfinished-"
_ABANDONED_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class File:
    """One file to read, found and named."""

    name: str
    path: Path | None
    """None is stdin."""
    file_format: str
    is_gzip: bool
    start: int = 0
    stop: int | None = None
    """Rows [start, stop) are read, counted from 0."""


@contextmanager
def open_stream(file: File, *, seekable_in: Path | None = None) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked.

    Args:
        file: what to open.
        seekable_in: a folder for an unpacked temporary copy, where the format needs to seek (Parquet) and the
            file cannot.

    Raises:
        InputError: the file is missing, unreadable, a folder, or (when copied) not whole.
    """
    with ExitStack() as stack:
        stream: IO[bytes]
        with source_faults(file.name):
            stream = (
                sys.stdin.buffer if file.path is None else stack.enter_context(open(file.path, "rb", _BUFFER_BYTES))
            )
        if file.is_gzip:
            unpacked = stack.enter_context(gzip.GzipFile(fileobj=stream, mode="rb"))
            stream = stack.enter_context(io.BufferedReader(cast(io.RawIOBase, unpacked), _BUFFER_BYTES))
        if seekable_in is not None and (file.is_gzip or file.path is None):
            copy = stack.enter_context(tempfile.TemporaryFile(dir=seekable_in))
            with source_faults(file.name):
                shutil.copyfileobj(stream, copy, _BUFFER_BYTES)
            copy.seek(0)
            stream = copy
        yield cast(BinaryIO, stream)


@contextmanager
def source_faults(name: str) -> Iterator[None]:
    """Turn what goes wrong while bytes are read into an InputError that names the file."""
    try:
        yield
    except EOFError as error:
        raise InputError(
            f"{name}: the gzip data ends early, so rows are missing at its end. A whole gzip file is needed. "
            "Copy or download it again."
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{name}: not valid gzip data ({error}). A file called .gz must be a whole gzip file. Copy or "
            "download it again, or drop .gz from its name if it is not compressed."
        ) from error
    except FileNotFoundError as error:
        raise InputError(f"{name}: no such file. State the path of a file that is there.") from error
    except OSError as error:
        raise InputError(
            f"{name}: cannot be read: {error.strerror or error}. Check the path and its permissions."
        ) from error


@contextmanager
def unfinished_file(path: Path, *, advice: str) -> Iterator[Path]:
    """A new name beside `path` to write to and then move; what is still there at the end is removed.

    Raises:
        RunError: the folder cannot be written to.
    """
    name = path.parent / f"{_UNFINISHED}{os.getpid()}-{secrets.token_hex(4)}-{path.name}"
    with write_faults(path, advice=advice):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path.parent)
        name.touch(exist_ok=False)
    try:
        yield name
    finally:
        with suppress(FileNotFoundError):
            name.unlink()


def _remove_abandoned(folder: Path) -> None:
    """Remove what killed processes left; nobody writes for a week without touching the file."""
    for path in folder.glob(f"{_UNFINISHED}*"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()


@contextmanager
def write_faults(path: Path, *, advice: str) -> Iterator[None]:
    """Turn an OSError of writing (no space, no permission) into a RunError that names the path."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{path} cannot be written: {error.strerror or error}. It needs a writable folder with room. {advice}."
        ) from error
