"""List run folders with their state and disk use, and clean what a run no longer needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transencoder.errors import RunError
from transencoder.files import TEMPORARY, remove_folder, remove_temporary
from transencoder.runs import folder as run_folder
from transencoder.runs.files import DamagedError, folder_bytes
from transencoder.runs.log import LOG_NAME, read_log, write_log
from transencoder.runs.records import CHECKPOINTS_NAME, RECORD_NAME, STAGES_NAME

_MAX_DEPTH = 4

State = Literal["finished", "unfinished", "running"]


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """Summary of a run folder."""

    folder: Path
    """Path of the run folder."""
    method: str | None
    """Name of the method; None if the run was stopped while its folder was being made."""
    state: State
    """State: `running` while a process holds its lock, `finished` with a result of its recipe, else `unfinished`."""
    started: str | None
    """Time when it was first opened, ISO format in UTC."""
    n_stages: int
    """Number of finished stages."""
    disk_bytes: int
    """Total bytes of its files."""


def list_runs(root: str | Path) -> list[RunSummary]:
    """Return the runs in a folder, up to four folders deep, sorted by path; the folder itself may be one.

    Raises:
        RunError: when there is no such folder.
    """
    root = Path(root)
    if not root.is_dir():
        raise RunError(f"{root} is not a folder; give the folder that holds the runs, or one run.")
    return [_summary(folder) for folder in _find_runs(root, _MAX_DEPTH)]


def _find_runs(folder: Path, depth: int) -> Iterator[Path]:
    try:
        if run_folder.is_run(folder):
            yield folder
            return
        children = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except PermissionError:
        return
    for child in children if depth else ():
        yield from _find_runs(child, depth - 1)


def _summary(folder: Path) -> RunSummary:
    environment, entries = run_folder.read_environment(folder), read_log(folder)
    state: State = "finished" if run_folder.read_result(folder) is not None else "unfinished"
    return RunSummary(
        folder=folder,
        method=environment.get("method"),
        state="running" if run_folder.is_locked(folder) else state,
        started=entries[0]["time"] if entries else environment.get("time"),
        n_stages=len(list((folder / STAGES_NAME).glob(f"*/{RECORD_NAME}"))),
        disk_bytes=folder_bytes(folder),
    )


@dataclass(frozen=True, kw_only=True)
class CleanSummary:
    """Summary of what a cleaning removed, or would remove."""

    names: tuple[str, ...]
    """Removed folders, relative to the run folder."""
    bytes_freed: int
    """Total bytes of the removed files."""


def clean_run(folder: str | Path, *, everything: bool = False, dry_run: bool = False) -> CleanSummary:
    """Remove unused stages, unfinished stages, and step checkpoints.

    The stages in use are those that the result names or, without a result of the present recipe, those that the recipe
    has asked for so far. An interrupted stage loses its progress: finish the run first to keep it. Recipe, environment,
    log, result and everything outside `stages/` stay.

    Args:
        folder: the run folder.
        everything: remove all stages; running the recipe again then computes everything again.
        dry_run: only report what would be removed.

    Raises:
        RunError: when the folder is no run, a process is working on it, or its recipe cannot be read.
    """
    folder = Path(folder)
    if not run_folder.is_run(folder):
        raise RunError(f"{folder} is not a run; runs have a recipe.toml and an environment.json; list them first.")
    lock = run_folder.take_lock(folder)
    try:
        doomed = list(_doomed_folders(folder, everything))
        names = tuple(str(path.relative_to(folder)) for path in doomed)
        bytes_freed = sum(folder_bytes(path) for path in doomed)
        if doomed and not dry_run:
            write_log(folder, "run_cleaned", {"names": names, "bytes": bytes_freed})
            for path in doomed:
                if not path.name.startswith(TEMPORARY):
                    remove_folder(path)
            remove_temporary(folder / STAGES_NAME)
    finally:
        run_folder.release_lock(lock)
    return CleanSummary(names=names, bytes_freed=bytes_freed)


def _doomed_folders(folder: Path, everything: bool) -> Iterator[Path]:
    used = set() if everything else {key[:12] for key in _used_stage_keys(folder)}
    for stage in sorted((folder / STAGES_NAME).glob("*")):
        is_done = (stage / RECORD_NAME).exists()
        if not stage.is_dir():
            continue
        if stage.name.startswith(TEMPORARY) or not is_done or stage.name[-12:] not in used:
            yield stage
        elif (stage / CHECKPOINTS_NAME).is_dir():
            yield stage / CHECKPOINTS_NAME


def _used_stage_keys(folder: Path) -> set[str]:
    """Return the keys of the stages that the result names or, without one, that the recipe has asked for."""
    result = run_folder.read_result(folder)
    if result is not None:
        return {stage["key"] for stage in result["stages"]}
    if not any((folder / STAGES_NAME).glob(f"*/{RECORD_NAME}")):
        return set()
    try:
        return _asked_for(folder, run_folder.own_recipe_hash(folder))
    except DamagedError as error:
        raise RunError(
            f"{error}: which of its stages are used is not known; run its command again, or remove all (--everything)."
        ) from error


def _asked_for(folder: Path, recipe_hash: str) -> set[str]:
    keys: set[str] | None = None
    is_own = False
    for entry in read_log(folder):
        if entry["event"] == "run_opened":
            is_own = entry.get("recipe_sha256") == recipe_hash
            keys = keys or set() if is_own else keys
        elif is_own and keys is not None and entry["event"] in ("stage_started", "stage_reused"):
            keys.add(entry.get("key", ""))
    if keys is None:
        raise DamagedError(f"{folder / LOG_NAME} does not say when its recipe was run")
    return keys
