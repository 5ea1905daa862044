"""The record of a stage: its config and inputs, its result, and checksums of its files."""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from transencoder.errors import InputError
from transencoder.files import TEMPORARY, remove_folder, remove_temporary, whole_folder
from transencoder.runs.files import (
    Checksum,
    DamagedError,
    Json,
    check_files,
    files_under,
    plain,
    read_checked_json,
    sync_files,
    write_checked_json,
)

STAGES_NAME = "stages"
RECORD_NAME = "stage.json"
CHECKPOINTS_NAME = "checkpoints"
_STAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


class _Outputs(TypedDict):
    """Fields of `stage.json` that are needed to take one of the stage's files."""

    key: str
    outputs: dict[str, Checksum]


class _Content(_Outputs):
    """Fields of `stage.json` that later stages need."""

    name: str
    result: dict[str, Any]
    started: str
    seconds: int | float
    environment: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class StageRecord:
    """Record of a finished stage; in a plan, where nothing is computed, it has no result and no outputs."""

    key: str
    """Key: sha256 (64 hex digits) of name, config and inputs; give it to later stages as an input."""
    name: str
    """Name, for instance `cycle-1/cross`."""
    folder: Path
    """Folder of the outputs."""
    result: dict[str, Any] = field(default_factory=dict)
    """What the stage returned, read back from JSON: it is the same whether the stage just ran or is reused."""
    outputs: dict[str, Checksum] = field(default_factory=dict)
    """Files of the stage: path relative to the folder, with `/` -> sha256 (hex) and size (bytes)."""
    started: str = ""
    """Start time of the attempt that finished the stage, ISO format in UTC."""
    seconds: float = 0.0
    """Seconds that the stage took, including earlier attempts as far as the log tells."""
    environment: dict[str, Any] = field(default_factory=dict)
    """Environment of the stage: the content of environment.json at the time."""
    reused: bool = False
    """Whether the stage was finished before this call; not stored."""


def stage_folder_name(name: str, key: str) -> str:
    """Return the name of a stage's folder: its name with `-` for `/`, and the first 12 digits of its key.

    Raises:
        InputError: when the name is not a valid stage name.
    """
    if not _STAGE_NAME.fullmatch(name):
        raise InputError(f"the stage name {name!r} is wrong; use letters, digits and '._-', in parts separated by '/'.")
    return f"{name.replace('/', '-')}-{key[:12]}"


def write_record(draft: StageRecord, *, config: Json, inputs: Sequence[str]) -> StageRecord:
    """Flush a stage's files to disk, then write `stage.json` atomically, which marks the stage as finished."""
    content = {
        "format": 2,
        "name": draft.name,
        "key": draft.key,
        "config": config,
        "inputs": list(inputs),
        "result": plain(draft.result, "result"),
        "outputs": sync_files(draft.folder, _outputs(draft.folder)),
        "started": draft.started,
        "seconds": round(draft.seconds, 3),
        "environment": dict(draft.environment),
    }
    write_checked_json(draft.folder / RECORD_NAME, content)
    return _as_record(draft.folder, content, reused=False)


def read_record(folder: Path, key: str) -> StageRecord | None:
    """Return the record of a finished stage after checking every output, or None if the stage is not finished.

    Raises:
        DamagedError: when the record or an output has changed.
    """
    path = folder / RECORD_NAME
    try:
        record = _as_record(folder, read_checked_json(path, _Content), reused=True)
        _check_key(path, record.key, key)
        check_files(folder, record.outputs)
    except FileNotFoundError:
        return None
    return record


def _check_key(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise DamagedError(f"{path} belongs to another stage, {found}")


def stage_file(run_folder: Path, stage: str, key: str, name: str) -> Path | None:
    """Return a file of a finished stage, or None if there is no such stage or no file of that name.

    Raises:
        DamagedError: The file or the record has changed, or the record is missing.
    """
    folder = run_folder / STAGES_NAME / stage_folder_name(stage, key)
    try:
        record = read_checked_json(folder / RECORD_NAME, _Outputs)
    except FileNotFoundError as error:
        if folder.exists():  # stages that are cleaned away leave no folder
            raise DamagedError(f"{folder / RECORD_NAME} is missing") from error
        return None
    _check_key(folder / RECORD_NAME, record["key"], key)
    if name not in record["outputs"]:
        return None
    check_files(folder, {name: record["outputs"][name]})
    return folder / name


def is_finished(run_folder: Path, stage: str, key: str) -> bool:
    """Check whether a run has finished a stage; the stage's files are not checked."""
    return (run_folder / STAGES_NAME / stage_folder_name(stage, key) / RECORD_NAME).exists()


def copy_finished(source: Path, folder: Path, key: str) -> StageRecord | None:
    """Copy a stage that another run has finished, checking every file; return None if it is unfinished or damaged."""
    try:
        if read_record(source, key) is None:
            return None
    except DamagedError:
        return None
    unneeded = shutil.ignore_patterns(CHECKPOINTS_NAME, f"{TEMPORARY}*", "*.tmp")
    try:
        with whole_folder(folder, replaces=True) as draft:  # an attempt may have been interrupted
            shutil.copytree(source, draft, ignore=unneeded, dirs_exist_ok=True)
    except (FileNotFoundError, shutil.Error):
        if (source / RECORD_NAME).exists():
            raise
        return None  # the other run was cleaned meanwhile
    return read_record(folder, key)


def drop_leftovers(folder: Path) -> None:
    """Remove what a finished stage no longer needs: step checkpoints and unfinished files."""
    remove_folder(folder / CHECKPOINTS_NAME)
    remove_temporary(folder)
    for path in list(files_under(folder)):
        if _is_temporary(path.relative_to(folder)):
            path.unlink(missing_ok=True)


def _outputs(folder: Path) -> Iterator[str]:
    """Yield the paths of a stage's files, relative to its folder."""
    for path in files_under(folder):
        name = path.relative_to(folder)
        if name.parts[0] not in (CHECKPOINTS_NAME, RECORD_NAME) and not _is_temporary(name):
            yield name.as_posix()


def _is_temporary(name: Path) -> bool:
    return name.suffix == ".tmp" or any(part.startswith(TEMPORARY) for part in name.parts)


def _as_record(folder: Path, content: Mapping[str, Any], *, reused: bool) -> StageRecord:
    return StageRecord(folder=folder, reused=reused, **{name: content[name] for name in _Content.__required_keys__})
