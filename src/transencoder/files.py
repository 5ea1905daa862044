"""Files and folders that are either complete or absent, even if the process is killed or the power fails."""

import fcntl
import hashlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

TEMPORARY = ".tmp-"
"""Prefix of the names of unfinished files and folders."""

_SCRATCH = f"{TEMPORARY}transencoder-"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; at the end move the file to `path`, after an error remove it."""
    with scratch_folder(path.parent) as folder:
        draft = folder / path.name
        yield draft
        move_into_place(draft, path)


@contextmanager
def whole_folder(path: Path, *, replaces: bool = False) -> Iterator[Path]:
    """Yield a new folder to write to; at the end move it to `path`, after an error remove it.

    Args:
        path: Final path of the folder; missing parent folders are created.
        replaces: Whether to replace an existing folder.

    Raises:
        OSError: At the end, if the path holds something other than an empty folder and `replaces` is false.
    """
    make_folder(path.parent)
    with scratch_folder(path.parent) as folder:
        draft = folder / path.name
        draft.mkdir()
        yield draft
        move_into_place(draft, path, aside=folder / ".replaced" if replaces else None)


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield a folder for this process alone, removed at the end; also remove the folders that killed processes left.

    Each folder is locked while its process lives. On a file system without locks, those of killed processes stay.

    Args:
        parent: Folder to create it in. None: the system's folder for temporary files.
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
        except FileNotFoundError:  # removed as abandoned before it was locked
            continue
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():
            return folder, descriptor
        os.close(descriptor)


def remove_abandoned(parent: Path) -> None:
    """Remove the scratch folders that no process has locked; locked ones and those of other users stay."""
    for folder in parent.glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def move_into_place(draft: Path, path: Path, *, aside: Path | None = None) -> None:
    """Flush a file, or a folder with all that is in it, to disk, then move it to its path in one step.

    Args:
        draft: File or folder to move.
        path: Final path.
        aside: Path that a file or folder which exists at `path` is moved to first.
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
    try:
        os.replace(draft, path)
    except BaseException:
        if aside is not None and aside.exists() and not path.exists():
            os.replace(aside, path)
        raise
    sync(path.parent)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, if they are missing, and flush their names to disk."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def reserve(path: Path, n_bytes: int) -> None:
    """Create or enlarge a file to `n_bytes` and reserve its disk space: a full disk would later end the process."""
    with path.open("ab") as file:
        if sys.platform == "linux" and n_bytes:
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        else:
            file.truncate(n_bytes)


def allocate(path: Path, dtype: Any, shape: tuple[int, ...]) -> "np.memmap[Any, Any]":
    """Create a memory-mapped array and reserve its disk space: a full disk would later kill the process (SIGBUS)."""
    import numpy as np

    array: np.memmap[Any, Any] = np.lib.format.open_memmap(path, "w+", dtype, shape)
    reserve(path, path.stat().st_size)
    return array


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's list of names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove a folder, or a file in its place, in one step: a killed process leaves no part of it under its name."""
    doomed = folder.with_name(f"{TEMPORARY}{folder.name}-{secrets.token_hex(4)}")
    try:
        os.replace(folder, doomed)
    except FileNotFoundError:
        return
    sync(folder.parent)
    _remove(doomed)


def remove_temporary(folder: Path) -> None:
    """Remove the files and folders with temporary names that killed processes left directly in a folder."""
    for path in folder.glob(f"{TEMPORARY}*"):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """Return the sha256 (hex) of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
