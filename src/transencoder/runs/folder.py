"""A run folder: its lock, its result and the recipe that this belongs to, and how it is opened for a recipe.

If the process is killed at any line, the run can be opened again and holds no wrong result.
"""

import errno
import fcntl
import json
import logging
import os
import socket
import time
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from transencoder.errors import InputError, RunError, RunInUseError, plural, reason_of
from transencoder.files import TEMPORARY, make_folder, remove_folder, remove_temporary, sync
from transencoder.runs.files import (
    DamagedError,
    atomic_write_bytes,
    canonical_json,
    read_checked_json,
    write_checked_json,
)
from transencoder.runs.log import LOG_NAME, changes, now, write_log
from transencoder.runs.records import RECORD_NAME, STAGES_NAME

LOCK_NAME = ".lock"
RECIPE_NAME = "recipe.toml"
ENVIRONMENT_NAME = "environment.json"
RESULT_NAME = "result.json"
PREVIOUS_NAME = "previous"
"""Subfolder of a run with the result of its previous recipe."""

_ATTEMPTS = 4
_PAUSE_SECONDS = 0.05
_WAIT_SECONDS = 0.5

_held: set[int] = set()
"""File descriptors of the locks that this process holds."""

_logger = logging.getLogger(__name__)


class _Environment(TypedDict):
    """Fields of `environment.json` that are relied on."""

    method: str
    time: NotRequired[str]


class _StageOfResult(TypedDict):
    name: str
    key: str


class _Finished(TypedDict):
    """Fields of any run's `result.json` that are relied on."""

    stages: list[_StageOfResult]
    recipe_sha256: NotRequired[str]


def take_lock(folder: Path) -> int:
    """Lock a folder for this process and return the lock's file descriptor, for `release_lock`.

    The kernel holds the lock and frees it when the process ends: nothing is left to clean up.

    Raises:
        RunInUseError: when another process holds the lock; the message says which one.
        RunError: when the folder cannot be written.
    """
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise RunError(
            f"{folder} cannot be written ({error.strerror}); choose an output folder that is yours."
        ) from error
    try:
        if not _try_lock(descriptor, folder):
            raise RunInUseError(_refusal(folder, os.pread(descriptor, 4096, 0)))
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "started": now()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    _held.add(descriptor)
    _keep_locks_from_children()
    return descriptor


def release_lock(descriptor: int) -> None:
    """Release the lock. In a forked child, which never held it, do nothing."""
    if descriptor in _held:
        _held.discard(descriptor)
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Check whether a process, including this one, holds the folder's lock."""
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
    """Wait until no process holds the folder's lock."""
    while is_locked(folder):
        time.sleep(_WAIT_SECONDS)


def _try_lock(descriptor: int, folder: Path) -> bool:
    """Try to lock a few times: `is_locked` in another process holds the lock for some microseconds."""
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
    except (ValueError, KeyError, TypeError, RecursionError):
        who = "another process that is just starting"
    return (
        f"{folder} is in use by {who}; one process at a time may work on a run; "
        "wait until that process ends, stop it, or choose another output folder."
    )


@cache  # the hook is registered once per process
def _keep_locks_from_children() -> None:
    """Close the locks in forked children (data-loader workers): they must not keep them when this process is killed."""
    os.register_at_fork(after_in_child=_close_in_child)


def _close_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


def is_run(folder: str | Path) -> bool:
    """Check whether a folder is a run, including one that lost a file or was killed while it was being made."""
    folder = Path(folder)
    if not folder.is_dir():
        return False
    names = set(os.listdir(folder))
    own = {LOCK_NAME, RECIPE_NAME, ENVIRONMENT_NAME, RESULT_NAME, LOG_NAME, STAGES_NAME}
    foreign = {name for name in names - own if not name.startswith(TEMPORARY)}
    if {RECIPE_NAME, ENVIRONMENT_NAME} <= names or {LOCK_NAME, LOG_NAME, STAGES_NAME} <= names:
        return True
    return LOCK_NAME in names and not foreign


def read_environment(folder: Path) -> dict[str, Any]:
    """Return a run's environment when it was last opened, and its method; empty if the record cannot be read."""
    try:
        return read_checked_json(folder / ENVIRONMENT_NAME, _Environment)
    except (OSError, DamagedError):
        return {}


def read_result(folder: str | Path, *, expected_hash: str | None = None) -> dict[str, Any] | None:
    """Return a run's result, or None if there is none or it belongs to another recipe.

    `expected_hash` is the hash of the recipe, by default of the folder's own.
    """
    folder = Path(folder)
    try:
        result = read_checked_json(folder / RESULT_NAME, _Finished)
        expected = expected_hash or own_recipe_hash(folder)
    except (OSError, DamagedError):
        return None
    return result if result.get("recipe_sha256") == expected else None


def recipe_hash(method: str, recipe_toml: str) -> str:
    """Return the sha256 (hex) of a recipe's content; comments, order and spacing do not matter.

    Raises:
        InputError: when the recipe is not TOML.
    """
    try:
        recipe = canonical_json({"method": method, "recipe": tomllib.loads(recipe_toml)}, "recipe")
    except (ValueError, RecursionError) as error:
        raise InputError(f"the recipe is not TOML ({reason_of(error)}); correct it at that place.") from error
    return sha256(recipe.encode()).hexdigest()


def own_recipe_hash(folder: Path) -> str:
    """Return the hash of the recipe that a run folder holds.

    Raises:
        DamagedError: The recipe, or the method's name in `environment.json`, cannot be read.
    """
    try:
        method = read_checked_json(folder / ENVIRONMENT_NAME, _Environment)["method"]
        return recipe_hash(method, (folder / RECIPE_NAME).read_text("utf-8"))
    except (OSError, ValueError, InputError) as error:
        raise DamagedError(f"{folder} does not say its recipe ({reason_of(error)})") from error


def take_folder(folder: Path) -> int:
    """Make the folder if needed, lock it, and return the lock.

    Raises:
        RunError: when another process holds it, or it is neither empty nor a run.
    """
    try:
        make_folder(folder)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise RunError(f"{folder} cannot be a folder ({error.strerror}); choose another output folder.") from error
    if any(folder.iterdir()) and not is_run(folder):
        raise RunError(
            f"{folder} is not empty and is not a run; a run needs a folder of its own; "
            "choose a new or empty output folder."
        )
    return take_lock(folder)


def describe_run(folder: Path, recipe_toml: str, environment: dict[str, Any], outputs: Sequence[str]) -> None:
    """Write a locked run's recipe and environment, and move another recipe's result and outputs to `previous`."""
    make_folder(folder / STAGES_NAME)
    for parent in (folder, *(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())):
        remove_temporary(parent)
    own_hash = recipe_hash(environment["method"], recipe_toml)
    write_log(folder, "run_opened", {"recipe_sha256": own_hash, "environment": environment})
    try:
        if read_checked_json(folder / RESULT_NAME, _Finished).get("recipe_sha256") != own_hash:
            set_result_aside(folder, outputs, "is another recipe's")
    except FileNotFoundError:
        pass
    except DamagedError:
        set_result_aside(folder, outputs, "is damaged")
    _note_changed_environment(folder, environment)
    n_done = len(list((folder / STAGES_NAME).glob(f"*/{RECORD_NAME}")))
    if n_done:
        _logger.info("%s has %s; those that have not changed are not computed again", folder, plural(n_done, "stage"))
    write_checked_json(folder / ENVIRONMENT_NAME, environment)
    atomic_write_bytes(folder / RECIPE_NAME, recipe_toml.encode())


def set_result_aside(folder: Path, outputs: Sequence[str], reason: str) -> None:
    """Move a result, its outputs and its recipe to `previous`; if the process is killed, the next call continues.

    `result.json` is moved last: it marks the move as complete, and only then may the next move replace it. `reason`
    completes the sentence about the result in the log, such as "is another recipe's".
    """
    result, previous = folder / RESULT_NAME, folder / PREVIOUS_NAME
    if (previous / RESULT_NAME).exists():
        remove_folder(previous)
    make_folder(previous)
    _logger.warning(
        "%s %s: it is moved to %s with its models and report; finished stages are kept and reused",
        result,
        reason,
        previous,
    )
    for path in [path for name in outputs for path in folder.glob(name)]:
        remove_folder(previous / path.name)  # of a move that was interrupted before another recipe's run
        os.replace(path, previous / path.name)
    if (folder / RECIPE_NAME).is_file():
        atomic_write_bytes(previous / RECIPE_NAME, (folder / RECIPE_NAME).read_bytes())
    os.replace(result, previous / RESULT_NAME)
    for place in (previous, folder):  # in this order: what has left `folder` is in `previous`
        sync(place)
    write_log(folder, "result_set_aside", {})


def _note_changed_environment(folder: Path, environment: dict[str, Any]) -> None:
    before = read_environment(folder)
    changed = changes(before, environment) if before else {}
    if changed and any((folder / STAGES_NAME).iterdir()):
        listed = "; ".join(f"{name}: {old} -> {new}" for name, (old, new) in changed.items())
        _logger.warning("%s has stages of another environment, which are reused (%s)", folder, listed)
        write_log(folder, "environment_changed", {"changed": changed})


def warn_of_absent(stage_caches: Iterable[str | Path]) -> None:
    """Warn of stage caches that are not run folders."""
    for stage_cache in stage_caches:
        if not (Path(stage_cache) / STAGES_NAME).is_dir():
            _logger.warning("%s is no run folder: no stage is taken from it", stage_cache)
