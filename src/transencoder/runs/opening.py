"""Make a folder a run of a recipe: a kill at any line leaves a run that opens again, and no wrong result."""

import json
import logging
from pathlib import Path
from typing import Any

from transencoder.errors import RunError
from transencoder.runs.environment import changes
from transencoder.runs.files import atomic_json, atomic_write_text, remove_file, remove_temporary
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
from transencoder.runs.records import STAGES_NAME

_logger = logging.getLogger(__name__)


def take_folder(folder: Path) -> int:
    """Make the folder if need be, lock it, and return the lock.

    Raises:
        RunError: when another process holds it, or it is neither empty nor a run.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise RunError(f"{folder} cannot be a folder ({error.strerror}); choose another output folder.") from error
    if any(folder.iterdir()) and not is_run(folder):
        raise RunError(
            f"{folder} is not empty and is not a run; a run needs a folder of its own; "
            "choose a new or empty output folder."
        )
    return take_lock(folder)


def describe_run(folder: Path, recipe_toml: str, environment: dict[str, Any]) -> LogWriter:
    """Write a locked run's recipe and environment, remove another recipe's result, and return the log.

    Args:
        folder: the run folder.
        recipe_toml: the whole config.
        environment: what the run runs on, and its method.
    """
    (folder / STAGES_NAME).mkdir(exist_ok=True)
    for parent in (folder, *(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())):
        remove_temporary(parent)
    log = LogWriter(folder)
    own_hash = recipe_hash(environment["method"], recipe_toml)
    log.write("run_opened", {"recipe_sha256": own_hash, "environment": environment})
    _drop_foreign_result(folder, own_hash, log)
    _note_changed_environment(folder, environment, log)
    atomic_json(folder / ENVIRONMENT_NAME, environment)
    atomic_write_text(folder / RECIPE_NAME, recipe_toml)
    return log


def _drop_foreign_result(folder: Path, own_hash: str, log: LogWriter) -> None:
    path = folder / RESULT_NAME
    if path.exists() and read_result(folder, expected_hash=own_hash) is None:
        _logger.warning("%s belongs to another recipe and is removed; the finished stages are kept", path)
        remove_file(path)
        log.write("result_removed", {})


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
