"""Make a folder a run of a recipe: a kill at any line leaves a run that opens again, and no wrong result."""

import errno
import json
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from transencoder.errors import RunError
from transencoder.runs.environment import changes
from transencoder.runs.files import atomic_json, atomic_write_text, remove_folder, remove_temporary, sync_folder
from transencoder.runs.listing import (
    ENVIRONMENT_NAME,
    RECIPE_NAME,
    RESULT_NAME,
    is_run,
    read_result,
    recipe_hash,
)
from transencoder.runs.lock import take_lock
from transencoder.runs.log import LogWriter
from transencoder.runs.records import RECORD_NAME, STAGES_NAME
from transencoder.wording import plural

PREVIOUS_NAME = "previous"
"""Folder of a run for the result of the recipe that it had before."""

_logger = logging.getLogger(__name__)


def take_folder(folder: Path) -> int:
    """Make the folder if need be, lock it, and return the lock.

    Raises:
        RunError: when another process holds it, or it is neither empty nor a run.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
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


def warn_of_absent(lenders: Iterable[str | Path]) -> None:
    """Say which folders that stages are to be taken from are no runs."""
    for lender in lenders:
        if not (Path(lender) / STAGES_NAME).is_dir():
            _logger.warning("%s is no run folder: no stage is taken from it", lender)


def describe_run(folder: Path, recipe_toml: str, environment: dict[str, Any], outputs: Sequence[str] = ()) -> LogWriter:
    """Write a locked run's recipe and environment, set another recipe's result aside, and return the log.

    Args:
        folder: the run folder.
        recipe_toml: the whole config.
        environment: what the run runs on, and its method.
        outputs: what belongs to a result besides its record: files and folders of the run folder.
    """
    (folder / STAGES_NAME).mkdir(exist_ok=True)
    for parent in (folder, *(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())):
        remove_temporary(parent)
    log = LogWriter(folder)
    own_hash = recipe_hash(environment["method"], recipe_toml)
    log.write("run_opened", {"recipe_sha256": own_hash, "environment": environment})
    _set_foreign_result_aside(folder, own_hash, outputs, log)
    _note_changed_environment(folder, environment, log)
    _note_stages(folder)
    atomic_json(folder / ENVIRONMENT_NAME, environment)
    atomic_write_text(folder / RECIPE_NAME, recipe_toml)
    return log


def _set_foreign_result_aside(folder: Path, own_hash: str, outputs: Sequence[str], log: LogWriter) -> None:
    if (folder / RESULT_NAME).exists() and read_result(folder, expected_hash=own_hash) is None:
        set_result_aside(folder, outputs, log, "is another recipe's")


def _note_stages(folder: Path) -> None:
    n_done = len(list((folder / STAGES_NAME).glob(f"*/{RECORD_NAME}")))
    if n_done:
        _logger.info("%s has %s; those that have not changed are not computed again", folder, plural(n_done, "stage"))


def set_result_aside(folder: Path, outputs: Sequence[str], log: LogWriter, reason: str) -> None:
    """Move a result, its outputs and its recipe to `previous`; a kill leaves a move that goes on.

    The record goes last: with it the move is whole, and only then may the next one replace it.

    Args:
        folder: the run folder.
        outputs: what belongs to a result besides its record.
        log: the run's.
        reason: what is said of the result, such as "is another recipe's".
    """
    result, previous = folder / RESULT_NAME, folder / PREVIOUS_NAME
    if (previous / RESULT_NAME).exists():
        remove_folder(previous)
    previous.mkdir(exist_ok=True)
    _logger.warning(
        "%s %s: it is moved to %s with its models and report; finished stages are kept and reused",
        result,
        reason,
        previous,
    )
    for name in outputs:
        if (folder / name).exists():
            os.replace(folder / name, previous / name)
    if (folder / RECIPE_NAME).exists():
        atomic_write_text(previous / RECIPE_NAME, (folder / RECIPE_NAME).read_text(encoding="utf-8"))
    os.replace(result, previous / RESULT_NAME)
    sync_folder(folder)
    log.write("result_set_aside", {})


def _note_changed_environment(folder: Path, environment: dict[str, Any], log: LogWriter) -> None:
    try:
        before = json.loads((folder / ENVIRONMENT_NAME).read_bytes())
    except (OSError, ValueError):
        return
    changed = changes(before, environment)
    if changed and any((folder / STAGES_NAME).iterdir()):
        listed = "; ".join(f"{name}: {old} -> {new}" for name, (old, new) in changed.items())
        _logger.warning("%s has stages of another environment, which are reused (%s)", folder, listed)
        log.write("environment_changed", {"changed": changed})
