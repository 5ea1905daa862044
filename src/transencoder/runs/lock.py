"""One process per run folder; the lock is the kernel's and dies with the process: nothing to clean."""

import errno
import fcntl
import json
import os
import socket
import time
from pathlib import Path

from transencoder.errors import RunError, RunInUseError
from transencoder.runs.log import now

LOCK_NAME = ".lock"
_ATTEMPTS = 4
_PAUSE_SECONDS = 0.05
_WAIT_SECONDS = 0.5

_held: set[int] = set()
_is_fork_hook_set = False


def take_lock(folder: Path) -> int:
    """Lock a run folder for this process and return the lock's file descriptor, for `release_lock`.

    Raises:
        RunInUseError: when another process holds the lock; the message says which one.
        RunError: when it cannot be written.
    """
    descriptor = _open_lock(folder)
    try:
        if not _try_lock(descriptor, folder):
            raise RunInUseError(_refusal(folder, os.pread(descriptor, 4096, 0)))
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "started": now()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    _keep_from_children(descriptor)
    return descriptor


def release_lock(descriptor: int) -> None:
    """Give the lock back; in a forked child, which never held it, nothing happens."""
    if descriptor in _held:
        _held.discard(descriptor)
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Tell whether a process, this one included, holds the run folder."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    else:
        return False
    finally:
        os.close(descriptor)


def wait_until_free(folder: Path) -> None:
    """Return as soon as no process holds the run folder."""
    while is_locked(folder):
        time.sleep(_WAIT_SECONDS)


def _open_lock(folder: Path) -> int:
    try:
        return os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise RunError(
            f"{folder} cannot be written ({error.strerror}); choose an output folder that is yours."
        ) from error


def _try_lock(descriptor: int, folder: Path) -> bool:
    """Try for a moment: `is_locked` in another process holds the lock for some microseconds."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise RunError(
                    f"{folder} cannot be locked ({error.strerror}); a run needs a file system with locks; "
                    "choose an output folder on a local disk."
                ) from error
    return False


def _refusal(folder: Path, content: bytes) -> str:
    try:
        holder = json.loads(content)
        who = f"process {holder['pid']} on {holder['host']} since {holder['started']}"
    except (ValueError, KeyError, TypeError):
        who = "another process that is just starting"
    return (
        f"{folder} is in use by {who}; one process at a time may work on a run; "
        "wait until that process ends, stop it, or choose another output folder."
    )


def _keep_from_children(descriptor: int) -> None:
    """Close the lock in forked children (data-loader workers): they must not hold it when we are killed."""
    global _is_fork_hook_set  # noqa: PLW0603 - a process can take the hook once only
    _held.add(descriptor)
    if not _is_fork_hook_set:
        os.register_at_fork(after_in_child=_close_in_child)
        _is_fork_hook_set = True


def _close_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()
