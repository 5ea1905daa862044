"""What crashes of a command can leave on the disk, all recorded while it runs once, undisturbed.

Before each file operation below a folder an audit hook keeps what is in the folder: a process killed there leaves that.
What `os.fsync` has brought to the disk is kept too: a power cut may leave no more. Linux only. Writes of native code
(Rust, C++) lie between two operations and are not halved by a kill, but they are by a power cut.
"""

import hashlib
import os
import pickle
import re
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fcntl import LOCK_EX, LOCK_UN, lockf
from pathlib import Path
from typing import Any

Files = dict[str, str | None]
"""Path below the folder -> the hash of a file's content; None: a folder."""

_PATHS = {"open": 1, "os.remove": 1, "os.rmdir": 1, "os.mkdir": 1, "os.rename": 2, "os.truncate": 1}
"""Audit events of operations -> how many paths they name."""
_CLOCK_NS = 100_000_000
"""A file that changed this lately may have changed again without its time telling."""
_SCRATCH = re.compile(r"(.*\.tmp-|tmp/)")
_REMOVALS = ("os.remove", "os.rmdir")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

CUTS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "emptied": lambda synced, _: synced,
    "halved": lambda synced, written: written[: len(written) // 2] + synced[len(written) // 2 :],
    "zeroed": lambda synced, written: synced or bytes(len(written)),
}
"""What a power cut may leave of a file that was written to and not synced since, where all names stay."""
KINDS = ("killed", *CUTS, "undone")
"""`undone`: of a power cut, names too go back to what was synced."""


class Recorder:
    """Records a process, and those it forks, into a journal; `arm` cannot be taken back.

    Args:
        root: The folder that is watched.
        journal: A file outside it.
        fail_at: The number of the operation that fails instead, from 1, or, where that removes something, the next that
            does not; nothing is recorded then.
        error: With what errno.
    """

    def __init__(self, root: Path, journal: Path, *, fail_at: int | None = None, error: int = 0) -> None:
        self.root = str(root)
        self.fail_at, self.error, self.n_operations, self.has_failed = fail_at, error, 0, False
        self._path, self._journal = journal, -1
        self._kept: set[str] = set()
        self._digests: dict[tuple[int, int, int], str] = {}
        self._held: dict[int, int] = {}

    def arm(self) -> None:
        """Watch from now on."""
        import numpy as np
        import safetensors.torch
        import torch

        self._journal = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        self._append("operation", "start", self._tree(is_held=True))
        sys.addaudithook(self._hook)
        os.fsync = self._around(os.fsync, lambda fd: os.readlink(f"/proc/self/fd/{fd}"), is_sync=True)
        np.memmap.flush = self._around(np.memmap.flush, lambda array: str(array.filename), is_sync=True)
        writer, rust = torch.serialization, safetensors.torch
        writer._open_zipfile_writer = self._around(writer._open_zipfile_writer, lambda file: str(file))
        rust.serialize_file = self._around(rust.serialize_file, lambda _, file, *__, **___: str(file))

    def end(self) -> None:
        """Keep what is there when the command is done."""
        self._boundary("end", self.root)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        n_paths = _PATHS.get(event)
        if n_paths is None or (event == "open" and not (isinstance(args[2], int) and args[2] & _WRITES)):
            return
        parents = args[-n_paths:] if event in ("os.remove", "os.rmdir", "os.mkdir", "os.rename") else (-1,)
        paths = [_absolute(path, parent) for path, parent in zip(args[:n_paths], parents, strict=True)]
        self._boundary(event, paths[-1])

    def _around(self, function: Any, path_of: Callable[..., str], *, is_sync: bool = False) -> Any:
        def recorded(*args: Any, **options: Any) -> Any:
            path = os.path.abspath(path_of(*args, **options))
            self._boundary(function.__name__, path)
            returned = function(*args, **options)
            if is_sync and self._is_below(path):
                self._note_sync(path)
            return returned

        return recorded

    def _is_below(self, path: str) -> bool:
        return path == self.root or path.startswith(f"{self.root}/")

    def _boundary(self, operation: str, path: str) -> None:
        if self._is_below(path):
            self.n_operations += 1
            if self.fail_at is None:
                self._append("operation", f"{operation} {path.removeprefix(self.root)}", self._tree())
            elif self.n_operations >= self.fail_at and not self.has_failed and operation not in _REMOVALS:
                self.has_failed = True
                raise OSError(self.error, os.strerror(self.error), path)

    def _tree(self, *, is_held: bool = False) -> dict[str, tuple[int, str | None]]:
        """Return what is in the folder: the inode and the content's hash of each path."""
        found: dict[str, tuple[int, str | None]] = {"": (os.stat(self.root).st_ino, None)}
        for parent, folders, names in os.walk(self.root):
            for name in (*folders, *names):
                path = os.path.join(parent, name)
                try:
                    is_file = os.path.isfile(path)
                    inode = os.stat(path).st_ino
                    found[path.removeprefix(f"{self.root}/")] = (inode, self._keep(path) if is_file else None)
                    if is_held:
                        self._hold(path, inode)
                except FileNotFoundError:  # another process of the command has removed it
                    continue
        return found

    def _note_sync(self, path: str) -> None:
        if os.path.isdir(path):
            names = {each.name: (each.inode(), each.is_dir()) for each in os.scandir(path)}
            for name, (inode, _) in names.items():
                self._hold(os.path.join(path, name), inode)
            self._append("names", os.stat(path).st_ino, names)
        elif os.path.isfile(path):
            self._hold(path, os.stat(path).st_ino)
            self._append("content", os.stat(path).st_ino, self._keep(path))

    def _hold(self, path: str, inode: int) -> None:
        """Keep the system from giving a file's inode to another while this process lives."""
        if inode not in self._held:
            self._held[inode] = os.open(path, os.O_PATH)

    def _keep(self, path: str) -> str:
        about = os.stat(path)
        known = (about.st_ino, about.st_size, about.st_mtime_ns)
        if known not in self._digests or time.time_ns() - about.st_mtime_ns < _CLOCK_NS:
            with open(path, "rb") as file:
                content = file.read()
            digest = self._digests[known] = hashlib.sha256(content).hexdigest()
            if digest not in self._kept:
                self._kept.add(digest)
                self._append("blob", digest, content)
        return self._digests[known]

    def _append(self, *entry: object) -> None:
        if self.fail_at is None:
            lockf(self._journal, LOCK_EX)
            os.write(self._journal, pickle.dumps(entry))
            lockf(self._journal, LOCK_UN)


def _what_counts(entry: tuple[str, str | None]) -> tuple[str, str | None]:
    """Return a path and its content as two states are compared by them: not by scratch, nor by how long the log is."""
    path, digest = entry
    found = _SCRATCH.match(path)
    return (found[1], None) if found else (path, "" if path.endswith("log.jsonl") else digest)


def _absolute(path: Any, parent: int) -> str:
    if not isinstance(path, str | bytes | os.PathLike):
        return ""  # a descriptor that is open already
    folder = os.getcwd() if parent < 0 else os.readlink(f"/proc/self/fd/{parent}")
    return os.path.abspath(os.path.join(folder, os.fsdecode(path)))


@dataclass(frozen=True)
class Crash:
    """One state of the disk, and how it came about."""

    operation: str
    """Before which it crashed."""
    kind: str
    """Of `KINDS`."""
    files: Files


@dataclass
class Crashes:
    """The distinct states that a recorded command can leave."""

    journal: Path
    has_all_cuts: bool = True
    """Or one kind of a power cut before each operation, by turns."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    n_operations: int = 0
    _names: dict[int, dict[str, tuple[int, bool]]] = field(default_factory=dict)
    _contents: dict[int, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Crash]:
        """Yield them in their order; one that has been before is left out, but for what is there in the end."""
        seen = set()
        for number, (operation, tree) in enumerate(self._operations()):
            is_end = operation == "end "
            for kind in KINDS if self.has_all_cuts or is_end else ("killed", KINDS[1 + number % 4]):
                files = self._after(kind, tree)
                state = frozenset(map(_what_counts, files.items()))
                if state not in seen or is_end:
                    seen.add(state)
                    yield Crash(operation, kind, files)

    def _operations(self) -> Iterator[tuple[str, dict[str, tuple[int, str | None]]]]:
        with open(self.journal, "rb") as file:
            while file.peek(1):
                what, key, value = pickle.load(file)
                if what == "blob":
                    self.blobs[key] = value
                elif what == "content":
                    self._contents[key] = value
                elif what == "names":
                    self._names[key] = value
                else:
                    if key == "start":
                        self._all_is_synced(value)
                    self.n_operations += 1
                    yield key, value

    def _all_is_synced(self, tree: dict[str, tuple[int, str | None]]) -> None:
        for path, (inode, digest) in tree.items():
            if digest is not None:
                self._contents[inode] = digest
            elif inode not in self._names:
                self._names[inode] = {}
            if path:
                parent, _, name = path.rpartition("/")
                self._names.setdefault(tree[parent][0], {})[name] = (inode, digest is None)

    def _after(self, kind: str, tree: dict[str, tuple[int, str | None]]) -> Files:
        if kind == "undone":
            return dict(self._undone(tree[""][0], ""))
        return {path: self._left(kind, *entry) for path, entry in tree.items() if path}

    def _left(self, kind: str, inode: int, written: str | None) -> str | None:
        synced = self._contents.get(inode)
        if kind == "killed" or written is None or written == synced:
            return written
        return self._blob(CUTS[kind](self.blobs[synced] if synced else b"", self.blobs[written]))

    def _undone(self, folder: int, parent: str) -> Iterator[tuple[str, str | None]]:
        for name, (inode, is_folder) in self._names.get(folder, {}).items():
            yield parent + name, None if is_folder else self._contents.get(inode, self._blob(b""))
            if is_folder:
                yield from self._undone(inode, f"{parent}{name}/")

    def _blob(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return digest

    def restore(self, crash: Crash, root: Path) -> None:
        """Make a folder what the crash left."""
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        for path, digest in sorted(crash.files.items()):
            if digest is None:
                (root / path).mkdir()
            else:
                (root / path).write_bytes(self.blobs[digest])


def hashes(root: Path) -> Files:
    """Return what is in a folder."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        for path in root.rglob("*")
    }
