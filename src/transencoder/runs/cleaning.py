"""Free the disk of what a run no longer needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transencoder.errors import RunError
from transencoder.runs.files import TEMPORARY, folder_bytes, remove_folder, remove_temporary
from transencoder.runs.listing import is_run, used_stage_keys
from transencoder.runs.lock import release_lock, take_lock
from transencoder.runs.log import LogWriter
from transencoder.runs.records import CHECKPOINTS_NAME, RECORD_NAME, STAGES_NAME


@dataclass(frozen=True, kw_only=True)
class CleanSummary:
    """What a cleaning removed, or would remove."""

    folder: Path
    """The run folder."""
    names: tuple[str, ...]
    """What was removed, relative to the run folder."""
    bytes_freed: int
    """How many bytes of files that was."""
    dry_run: bool
    """Whether nothing was removed, only counted."""


def clean_run(folder: str | Path, *, everything: bool = False, dry_run: bool = False) -> CleanSummary:
    """Remove unused stages, half-done ones, and step checkpoints.

    Used are the stages that the result names or, without a result of the present recipe, those that the
    recipe has asked for so far. An interrupted stage loses what it had: end the run first to keep that.
    Recipe, environment, log, result and everything outside `stages/` stay.

    Args:
        folder: the run folder.
        everything: remove all stages; running the recipe again then computes everything again.
        dry_run: only say what would go.

    Raises:
        RunError: when the folder is no run, or a process is working on it.
    """
    folder = Path(folder)
    if not is_run(folder):
        raise RunError(f"{folder} is not a run; runs have a recipe.toml and an environment.json; list them first.")
    lock = take_lock(folder)
    try:
        doomed = list(_doomed_folders(folder, everything))
        names = tuple(str(path.relative_to(folder)) for path in doomed)
        bytes_freed = sum(folder_bytes(path) for path in doomed)
        if doomed and not dry_run:
            LogWriter(folder).write("run_cleaned", {"names": names, "bytes": bytes_freed})
            _remove(folder, doomed)
    finally:
        release_lock(lock)
    return CleanSummary(folder=folder, names=names, bytes_freed=bytes_freed, dry_run=dry_run)


def _doomed_folders(folder: Path, everything: bool) -> Iterator[Path]:
    used = set() if everything else {key[:12] for key in used_stage_keys(folder)}
    for stage in sorted((folder / STAGES_NAME).glob("*")):
        is_done = (stage / RECORD_NAME).exists()
        if not stage.is_dir():
            continue
        if stage.name.startswith(TEMPORARY) or not is_done or stage.name[-12:] not in used:
            yield stage
        elif (stage / CHECKPOINTS_NAME).is_dir():
            yield stage / CHECKPOINTS_NAME


def _remove(folder: Path, doomed: list[Path]) -> None:
    for path in doomed:
        if not path.name.startswith(TEMPORARY):
            remove_folder(path)
    remove_temporary(folder / STAGES_NAME)
