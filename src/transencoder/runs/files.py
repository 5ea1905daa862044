"""Files and folders that are whole or not there, whenever the process is killed."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from transencoder.files import TEMPORARY, draft_of, whole_file
from transencoder.files import sync as sync_folder
from transencoder.runs.canonical import plain
from transencoder.runs.disk_full import disk_full_explained

__all__ = ["TEMPORARY", "sync_folder"]


def atomic_json(path: str | Path, value: object) -> None:
    """Write a value as indented JSON; after a crash the file holds the old or the new content, never a part.

    Raises:
        InputError: when a part of the value has no JSON form, a NaN for instance.
        RunError: when the disk is full.
    """
    text = json.dumps(plain(value, Path(path).name), indent=1, allow_nan=False)
    atomic_write_text(path, text + "\n")


def atomic_write_text(path: str | Path, text: str) -> None:
    """Write text as UTF-8; after a crash the file holds the old or the new content, never a part."""
    atomic_write_bytes(path, text.encode())


def atomic_write_bytes(path: str | Path, content: bytes) -> None:
    """Write bytes; after a crash the file holds the old or the new content, never a part.

    The bytes go to a temporary name in the same folder, reach the disk, and are then moved into place.

    Raises:
        RunError: when the disk is full.
    """
    path = Path(path)
    with disk_full_explained(path.parent), whole_file(path) as draft:
        draft.write_bytes(content)


def remove_file(path: Path) -> None:
    """Remove a file, if it is there, for good: the removal survives a power cut."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def remove_folder(folder: Path) -> None:
    """Remove a folder in one step: it is renamed first, so a kill leaves no part of it under its name."""
    doomed = draft_of(folder)
    try:
        os.replace(folder, doomed)
    except FileNotFoundError:
        return
    sync_folder(folder.parent)
    shutil.rmtree(doomed)


def remove_temporary(folder: Path) -> None:
    """Remove what killed processes left directly in a folder under temporary names."""
    for path in folder.glob(f"{TEMPORARY}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def sync_and_hash(path: Path) -> tuple[str, int]:
    """Bring a file to the disk and return its sha256 (hex) and its size in bytes."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size


def sha256_of(path: Path) -> str:
    """Return the sha256 (hex) of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_under(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder in a fixed order; linked folders are not entered."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names))


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; a file that disappears meanwhile counts as none."""
    total = 0
    for path in files_under(folder):
        try:
            total += path.lstat().st_size
        except FileNotFoundError:
            continue
    return total
