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
def whole_folder(path: Path, *, replaces: bool = False) -> Iterator[Path]:
    """Give a new folder to write to; at the end it is moved to its path, after an error it is removed.

    Args:
        path: Where the folder goes.
        replaces: Whether it takes the place of a folder that is there.

    Raises:
        OSError: At the end, where the path holds something else than an empty folder and nothing is replaced.
    """
    draft = draft_of(path)
    draft.mkdir()
    try:
        yield draft
        if replaces:
            remove_folder(path)
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


def remove_folder(folder: Path) -> None:
    """Remove a folder in one step: it is renamed first, so a kill leaves no part of it under its name."""
    doomed = draft_of(folder)
    try:
        os.replace(folder, doomed)
    except FileNotFoundError:
        return
    sync(folder.parent)
    shutil.rmtree(doomed)


def remove_temporary(folder: Path) -> None:
    """Remove what killed processes left directly in a folder under temporary names."""
    for path in folder.glob(f"{TEMPORARY}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
