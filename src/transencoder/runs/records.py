"""A stage's record: what it was asked, what came out, and the proof that the files are still the same."""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from transencoder.errors import InputError, RunError
from transencoder.files import TEMPORARY, sync
from transencoder.runs.files import (
    Json,
    atomic_json,
    files_under,
    plain,
    remove_folder,
    remove_temporary,
    sha256_of,
    sync_and_hash,
)

STAGES_NAME = "stages"
RECORD_NAME = "stage.json"
CHECKPOINTS_NAME = "checkpoints"
_STAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


class Output(TypedDict):
    """One file of a stage."""

    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class StageRecord:
    """A finished stage; in a plan, where nothing is computed, one without result or outputs."""

    key: str
    """Address: sha256 (64 hex digits) of name, config and inputs; give it to later stages as an input."""
    name: str
    """Name, for instance `cycle-1/cross`."""
    folder: Path
    """Where the outputs are."""
    result: dict[str, Any] = field(default_factory=dict)
    """What `compute` returned, as JSON gives it back: the same whether the stage just ran or is reused."""
    outputs: dict[str, Output] = field(default_factory=dict)
    """Every file of the stage: path relative to the folder, with `/` -> sha256 (hex) and size (bytes)."""
    started: str = ""
    """When the attempt that finished it began, ISO time in UTC."""
    seconds: float = 0.0
    """How long it took, earlier attempts included as far as the log tells."""
    environment: dict[str, Any] = field(default_factory=dict)
    """What it ran on: the content of environment.json at the time."""
    reused: bool = False
    """Whether it was done before this call; not stored."""


class DamagedStageError(RunError):
    """A stage that was done and is no longer whole; the message names the file."""


def stage_folder_name(name: str, key: str) -> str:
    """Return the name of a stage's folder: its name with `-` for `/`, and the first 12 digits of its key.

    Raises:
        InputError: when the name cannot be a folder's.
    """
    if not _STAGE_NAME.fullmatch(name):
        raise InputError(f"the stage name {name!r} is wrong; use letters, digits and '._-', in parts separated by '/'.")
    return f"{name.replace('/', '-')}-{key[:12]}"


def write_record(draft: StageRecord, *, config: Json, inputs: Sequence[str]) -> StageRecord:
    """Bring a stage's files to the disk, then say in `stage.json`, last and atomically, that it is done."""
    content = {
        "format": 1,
        "name": draft.name,
        "key": draft.key,
        "config": config,
        "inputs": list(inputs),
        "result": plain(draft.result, "result"),
        "outputs": _collect_outputs(draft.folder),
        "started": draft.started,
        "seconds": round(draft.seconds, 3),
        "environment": dict(draft.environment),
    }
    atomic_json(draft.folder / RECORD_NAME, content)
    return _as_record(draft.folder, content, reused=False)


def read_record(folder: Path, key: str) -> StageRecord | None:
    """Return the record of a finished stage after checking every output, or None when the stage is not done.

    Raises:
        DamagedStageError: when the record or an output is not what it was.
    """
    path = folder / RECORD_NAME
    try:
        record = _as_record(folder, json.loads(path.read_bytes()), reused=True)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedStageError(f"{path} is damaged ({error!r})") from error
    if record.key != key:
        raise DamagedStageError(f"{path} belongs to another stage, {record.key}")
    for name, output in record.outputs.items():
        _check_output(folder / name, output)
    return record


def finished_stage(run_folder: Path, name: str, key: str) -> Path | None:
    """Return the folder of a stage that is done, its files unchecked, or None where it is not there."""
    folder = run_folder / STAGES_NAME / stage_folder_name(name, key)
    return folder if (folder / RECORD_NAME).is_file() else None


def copy_finished(source: Path, folder: Path, key: str) -> StageRecord | None:
    """Copy a stage that is finished in another run, every file checked, or return None where it is not."""
    try:
        if read_record(source, key) is None:
            return None
    except (DamagedStageError, NotADirectoryError):
        return None
    unfinished = folder.with_name(f"{TEMPORARY}{folder.name}")
    remove_folder(unfinished)
    remove_folder(folder)  # an attempt that was interrupted
    shutil.copytree(source, unfinished, ignore=shutil.ignore_patterns(CHECKPOINTS_NAME))
    for path in files_under(unfinished):
        sync_and_hash(path)
    os.replace(unfinished, folder)
    sync(folder.parent)
    return read_record(folder, key)


def drop_leftovers(folder: Path) -> None:
    """Remove what a finished stage no longer needs: step checkpoints and unfinished files."""
    remove_folder(folder / CHECKPOINTS_NAME)
    remove_temporary(folder)
    for path in list(files_under(folder)):
        if _is_temporary(path.relative_to(folder)):
            path.unlink(missing_ok=True)


def _collect_outputs(folder: Path) -> dict[str, Output]:
    outputs: dict[str, Output] = {}
    parents = {folder}
    for path in files_under(folder):
        name = path.relative_to(folder)
        if name.parts[0] in (CHECKPOINTS_NAME, RECORD_NAME) or _is_temporary(name):
            continue
        sha256, size = sync_and_hash(path)
        outputs[name.as_posix()] = Output(sha256=sha256, size=size)
        parents.add(path.parent)
    for parent in sorted(parents):
        sync(parent)
    return outputs


def _is_temporary(name: Path) -> bool:
    return name.suffix == ".tmp" or any(part.startswith(TEMPORARY) for part in name.parts)


def _as_record(folder: Path, content: Mapping[str, Any], *, reused: bool) -> StageRecord:
    return StageRecord(
        key=content["key"],
        name=content["name"],
        folder=folder,
        result=content["result"],
        outputs=content["outputs"],
        started=content["started"],
        seconds=content["seconds"],
        environment=content["environment"],
        reused=reused,
    )


def _check_output(path: Path, output: Output) -> None:
    if not path.is_file():
        raise DamagedStageError(f"{path} is missing")
    size = path.stat().st_size
    if size != output["size"]:
        raise DamagedStageError(f"{path} has {size} bytes instead of {output['size']}")
    if sha256_of(path) != output["sha256"]:
        raise DamagedStageError(f"{path} has changed: its sha256 is not the recorded one")
