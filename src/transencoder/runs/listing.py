"""What run folders there are, how far each got, and how much disk it takes."""

import json
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from transencoder.errors import InputError, RunError
from transencoder.runs.canonical import canonical_json
from transencoder.runs.files import TEMPORARY, folder_bytes
from transencoder.runs.lock import LOCK_NAME, is_locked
from transencoder.runs.log import LOG_NAME, read_log
from transencoder.runs.records import RECORD_NAME, STAGES_NAME

RECIPE_NAME = "recipe.toml"
ENVIRONMENT_NAME = "environment.json"
RESULT_NAME = "result.json"
_MAX_DEPTH = 4

State = Literal["finished", "unfinished", "running"]


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run folder at a glance."""

    folder: Path
    """Where it is."""
    method: str | None
    """The method's name; None when the run was stopped while its folder was being made."""
    state: State
    """`running` while a process holds it, `finished` with a result of its recipe, else `unfinished`."""
    started: str | None
    """When it was first opened, ISO time in UTC."""
    n_stages: int
    """How many stages are done."""
    disk_bytes: int
    """Bytes of all its files."""


def list_runs(root: str | Path) -> list[RunSummary]:
    """Return the runs in a folder, sorted by path; the folder itself may be one. Looks four folders deep.

    Raises:
        RunError: when there is no such folder.
    """
    root = Path(root)
    if not root.is_dir():
        raise RunError(f"{root} is not a folder; give the folder that holds the runs, or one run.")
    return [_summary(folder) for folder in _find_runs(root, _MAX_DEPTH)]


def is_run(folder: str | Path) -> bool:
    """Tell whether a folder is a run, one that was killed while it was being made included."""
    folder = Path(folder)
    if not folder.is_dir():
        return False
    names = set(os.listdir(folder))
    own = {LOCK_NAME, RECIPE_NAME, ENVIRONMENT_NAME, RESULT_NAME, LOG_NAME, STAGES_NAME}
    foreign = {name for name in names - own if not name.startswith(TEMPORARY)}
    return {RECIPE_NAME, ENVIRONMENT_NAME} <= names or (LOCK_NAME in names and not foreign)


def read_result(folder: str | Path, *, expected_hash: str | None = None) -> dict[str, Any] | None:
    """Return a run's result, or None when there is none or it is not the result of the run's recipe.

    Args:
        folder: the run folder.
        expected_hash: the hash of the recipe; that of the folder's own recipe when not given.
    """
    folder = Path(folder)
    try:
        result = json.loads((folder / RESULT_NAME).read_bytes())
        expected = expected_hash or _own_recipe_hash(folder)
    except (OSError, ValueError, InputError):
        return None
    return result if isinstance(result, dict) and result.get("recipe_sha256") == expected else None


def recipe_hash(method: str, recipe_toml: str) -> str:
    """Return the sha256 (hex) of what a recipe says; comments, order and spacing do not matter.

    Raises:
        InputError: when the recipe is not TOML.
    """
    try:
        recipe = tomllib.loads(recipe_toml)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"the recipe is not TOML ({error}); correct it at that place.") from error
    return sha256(canonical_json({"method": method, "recipe": recipe}, "recipe").encode()).hexdigest()


def used_stage_keys(folder: Path) -> set[str]:
    """Return the keys of the stages that the result names or, without one, that the recipe has asked for."""
    result = read_result(folder)
    if result is not None:
        return {stage["key"] for stage in result.get("stages", [])}
    try:
        own_hash = _own_recipe_hash(folder)
    except (OSError, ValueError, InputError):
        return set()
    keys, is_own = set(), False
    for entry in read_log(folder):
        if entry["event"] == "run_opened":
            is_own = entry["recipe_sha256"] == own_hash
        elif is_own and entry["event"] in ("stage_started", "stage_reused"):
            keys.add(entry["key"])
    return keys


def _find_runs(folder: Path, depth: int) -> Iterator[Path]:
    try:
        if is_run(folder):
            yield folder
            return
        children = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except PermissionError:
        return
    for child in children if depth else ():
        yield from _find_runs(child, depth - 1)


def _summary(folder: Path) -> RunSummary:
    environment = _environment(folder)
    state: State = "finished" if read_result(folder) is not None else "unfinished"
    entries = read_log(folder)
    return RunSummary(
        folder=folder,
        method=environment.get("method"),
        state="running" if is_locked(folder) else state,
        started=entries[0]["time"] if entries else environment.get("time"),
        n_stages=len(list((folder / STAGES_NAME).glob(f"*/{RECORD_NAME}"))),
        disk_bytes=folder_bytes(folder),
    )


def _environment(folder: Path) -> dict[str, Any]:
    try:
        environment = json.loads((folder / ENVIRONMENT_NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return environment if isinstance(environment, dict) else {}


def _own_recipe_hash(folder: Path) -> str:
    return recipe_hash(_environment(folder).get("method", ""), (folder / RECIPE_NAME).read_text("utf-8"))
