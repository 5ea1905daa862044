"""Files and folders that are whole or not there, whenever the process is killed or the power fails."""

import fcntl
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY = ".tmp-"
"""How the names of unfinished files and folders begin."""

_SCRATCH = f"{TEMPORARY}transencoder-"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a name to write a file under; at the end the file is moved to its path, after an error it is removed."""
    with scratch_folder(path.parent) as folder:
        draft = folder / path.name
        yield draft
        move_into_place(draft, path)


@contextmanager
def whole_folder(path: Path, *, replaces: bool = False) -> Iterator[Path]:
    """Give a new folder to write to; at the end it is moved to its path, after an error it is removed.

    Args:
        path: Where the folder goes; those above it are made.
        replaces: Whether it takes the place of a folder that is there.

    Raises:
        OSError: At the end, where the path holds something else than an empty folder and nothing is replaced.
    """
    make_folder(path.parent)
    with scratch_folder(path.parent) as folder:
        draft = folder / path.name
        draft.mkdir()
        yield draft
        move_into_place(draft, path, aside=folder / ".replaced" if replaces else None)


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Give a folder of this process alone, which is removed at the end, as are those that killed processes left.

    Each is locked while its process lives. Where a file system has no locks, those of killed processes stay.

    Args:
        parent: Where the folder is made. None: where the system keeps temporary files.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    remove_abandoned(parent)
    folder, descriptor = _locked_folder(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _locked_folder(parent: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=parent))
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # taken for abandoned before it was locked
            continue
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():
            return folder, descriptor
        os.close(descriptor)


def remove_abandoned(parent: Path) -> None:
    """Remove the scratch folders that no process holds; those that are held, or another user's, stay."""
    for folder in parent.glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def move_into_place(draft: Path, path: Path, *, aside: Path | None = None) -> None:
    """Bring a file, or a folder with all that is in it, to the disk, then give it its name in one step.

    Args:
        draft: What is moved.
        path: Where it goes.
        aside: Where what has that name goes first, if anything does.
    """
    if draft.is_dir():
        for parent, _, names in os.walk(draft):
            for name in names:
                sync(Path(parent, name))
            sync(Path(parent))
    else:
        sync(draft)
    if aside is not None:
        with suppress(FileNotFoundError):
            os.replace(path, aside)
    os.replace(draft, path)
    sync(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, where they are not there; then their names are on the disk."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def reserve(path: Path, n_bytes: int) -> None:
    """Make a file of so many bytes, or enlarge one, its space taken now: a full disk later would end the process."""
    with path.open("ab") as file:
        if sys.platform == "linux" and n_bytes:
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        else:
            file.truncate(n_bytes)


def sync(path: Path) -> None:
    """Bring a file's content, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove a folder, or a file in its place, in one step: a kill leaves no part of it under its name."""
    doomed = folder.with_name(f"{TEMPORARY}{folder.name}-{secrets.token_hex(4)}")
    try:
        os.replace(folder, doomed)
    except FileNotFoundError:
        return
    sync(folder.parent)
    _remove(doomed)


def remove_temporary(folder: Path) -> None:
    """Remove what killed processes left directly in a folder under temporary names."""
    for path in folder.glob(f"{TEMPORARY}*"):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
