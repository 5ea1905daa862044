"""A run's log, one JSON object per line, readable after a crash at any byte; and the environment of a run."""

import fcntl
import json
import logging
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from transencoder.runs.files import DamagedError, check_shape, disk_full_explained, plain

LOG_NAME = "log.jsonl"

_PACKAGES = (
    "transencoder",
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "datasets",
    "accelerate",
    "numpy",
    "scipy",
)
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TOKENIZERS_PARALLELISM", "WORLD_SIZE")
_ROOT = Path(__file__).resolve().parents[3]
_COMPARED = ("python", "platform", "versions", "threads", "git", "details")

_logger = logging.getLogger(__name__)


def now() -> str:
    """Return the time in UTC as ISO text with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_log(folder: Path, event: str, fields: Mapping[str, object]) -> None:
    """Append a line to a run's log in one write, flushed on return; a line that was cut off before is ended first.

    Raises:
        RunError: when the disk is full.
    """
    entry = {"time": now(), "event": event, **fields}
    line = json.dumps(entry, allow_nan=False) + "\n"
    with disk_full_explained(folder), open(folder / LOG_NAME, "ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # otherwise another worker's line may look as if it had been cut off
        if file.tell():
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else "\n" + line
        file.write(line.encode())


class _Entry(TypedDict):
    """Fields of a line that are relied on."""

    time: str
    event: str
    key: NotRequired[str]
    """Key of the stage that the line is about."""
    recipe_sha256: NotRequired[str]


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """Return the entries of a run's log, oldest first, without damaged or cut-off lines; empty if there is no log."""
    path = Path(folder) / LOG_NAME
    if not path.is_file():
        return []
    entries = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                entry = json.loads(line)
                check_shape(entry, _Entry, "the line")
                datetime.fromisoformat(entry["time"]).timestamp()
                entries.append(entry)
            except (ValueError, OverflowError, RecursionError, DamagedError):
                if line.strip():
                    _logger.debug("%s:%d is no event, or was cut off by a crash, and is left out", path, number)
    return entries


def interrupted_seconds(entries: list[dict[str, Any]], key: str) -> float:
    """Return the seconds that earlier, unfinished attempts at a stage took, as far as the log tells.

    A killed process writes no final line, so its attempt counts up to the last line that it wrote. The current attempt
    does not count, nor do attempts from before the stage was last finished or its remains were cleaned away.
    """
    total, begin, latest = 0.0, None, 0.0
    for entry in entries:
        moment = datetime.fromisoformat(entry["time"]).timestamp()
        event, is_ours = entry["event"], entry.get("key") == key
        if event == "run_cleaned" or (is_ours and event == "stage_done"):
            total, begin = 0.0, None
        elif is_ours and event == "stage_started":
            begin = moment
        elif begin is not None and event == "run_opened":
            total, begin = total + max(0.0, latest - begin), None
        elif begin is not None and is_ours and event in ("stage_failed", "stage_interrupted"):
            total, begin = total + max(0.0, moment - begin), None
        latest = moment
    return total


def describe_environment(details: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Return a description of the environment in JSON types, without importing any package.

    `details` are what only the caller knows, for instance the device and torch's number of threads.
    """
    return {
        "time": now(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)) if platform.system() == "Linux" else os.cpu_count(),
        "threads": {name: os.environ.get(name) for name in _VARIABLES},
        "versions": {name: _version(name) for name in _PACKAGES},
        "git": source_commit(),
        "details": plain(details or {}, "details"),
    }


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the differences between two environments that may change results: name -> [before, after]."""
    differing: dict[str, list[Any]] = {}
    for name in _COMPARED:
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            parts = sorted(old.keys() | new.keys())
            differing |= {
                f"{name}.{part}": [old.get(part), new.get(part)] for part in parts if old.get(part) != new.get(part)
            }
        elif old != new:
            differing[name] = [old, new]
    return differing


def source_commit(root: Path = _ROOT) -> dict[str, Any] | None:
    """Return the commit of the source and whether tracked files were changed, or None outside a checkout."""
    if not (root / ".git").exists() or not (root / "src" / "transencoder").is_dir():
        return None
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "is_changed": _git(root, "status", "--porcelain", "--untracked-files=no") != ""}


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, check=False, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
