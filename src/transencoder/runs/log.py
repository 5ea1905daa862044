"""The run's log: one JSON object a line, readable after a crash at any byte."""

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transencoder.errors import InputError
from transencoder.runs.canonical import readable
from transencoder.runs.disk_full import disk_full_explained

LOG_NAME = "log.jsonl"

_logger = logging.getLogger(__name__)


def now() -> str:
    """Return the time in UTC as ISO text with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class LogWriter:
    """Appends lines to a run's log, each in one write; a line that a crash cut off is closed first."""

    def __init__(self, folder: Path) -> None:
        """Look at the log of a run folder, which need not be there yet."""
        self._path = folder / LOG_NAME
        self._is_torn = _is_torn(self._path)

    def write(self, event: str, fields: dict[str, object]) -> None:
        """Append one line; it has left the process when this returns.

        Raises:
            InputError: when a field is named `time` or `event`.
            RunError: when the disk is full.
        """
        if {"time", "event"} & fields.keys():
            raise InputError(f"a log field of {event!r} is named 'time' or 'event'; the log has these; rename it.")
        entry = {"time": now(), "event": event, **{name: readable(value) for name, value in fields.items()}}
        line = ("\n" if self._is_torn else "") + json.dumps(entry, allow_nan=False) + "\n"
        self._is_torn = True
        with disk_full_explained(self._path.parent), open(self._path, "ab") as file:
            file.write(line.encode())
        self._is_torn = False


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """Return the entries of a run's log, oldest first; a line that a crash cut off is left out.

    Args:
        folder: the run folder. A run without a log gives an empty list.
    """
    path = Path(folder) / LOG_NAME
    if not path.exists():
        return []
    entries = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                entries.append(json.loads(line))
            except ValueError:
                if line.strip():
                    _logger.debug("%s:%d was cut off by a crash and is left out", path, number)
    return entries


def interrupted_seconds(entries: list[dict[str, Any]], key: str) -> float:
    """Return the seconds that earlier, unfinished attempts at a stage took, as far as the log tells.

    A killed process leaves no last line, so an attempt counts up to the last line that it did leave. The
    attempt under way does not count, nor do attempts before the stage was last done or
    its remains were cleaned away.
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


def _is_torn(path: Path) -> bool:
    if not path.exists() or path.stat().st_size == 0:
        return False
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
