"""What a run ran on: versions, platform, threads and the commit of the source."""

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from transencoder.runs.canonical import plain
from transencoder.runs.log import now

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
_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
    "WORLD_SIZE",
)
_ROOT = Path(__file__).resolve().parents[3]
_COMPARED = ("python", "platform", "versions", "threads", "git", "details")


def describe_environment(details: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Return what the run runs on, as JSON parts; nothing is imported for it.

    Args:
        details: what only the caller knows, for instance the device and torch's number of threads.
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
    """Return what differs between two environments and may change numbers: name -> [before, after]."""
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
