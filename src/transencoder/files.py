"""Files and folders that are whole or not there, whenever the process is killed or the power fails."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPORARY = ".tmp-"
"""How the names of unfinished files and folders begin."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a name to write a file under; at the end the file is moved to its path, after an error it is removed."""
    draft = draft_of(path)
    try:
        yield draft
        move_into_place(draft, path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give a new folder to write to; at the end it is moved to its path, after an error it is removed.

    Raises:
        OSError: At the end, where the path holds something else than an empty folder.
    """
    draft = draft_of(path)
    draft.mkdir()
    try:
        yield draft
        move_into_place(draft, path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def draft_of(path: Path) -> Path:
    """Return a name beside a path that nobody else uses."""
    return path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}")


def move_into_place(draft: Path, path: Path) -> None:
    """Bring a file, or a folder with all that is in it, to the disk, then give it its name in one step."""
    if draft.is_dir():
        for parent, _, names in os.walk(draft):
            for name in names:
                sync(Path(parent, name))
            sync(Path(parent))
    else:
        sync(draft)
    os.replace(draft, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Bring a file's content, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
