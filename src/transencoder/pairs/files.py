"""Files come into being under a temporary name and get their own when complete."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import RunError

_UNFINISHED = ".unfinished-"
_ABANDONED_SECONDS = 7 * 24 * 3600


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
