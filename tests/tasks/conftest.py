"""A small data folder in the hub's layout, made here, and the real one where it is at hand."""

import gzip
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from transencoder.tasks import TASKS, Task

Row = tuple[str, str, float] | tuple[str, list[str], list[str]]


def _write_split(folder: Path, split: str, rows: Iterable[Row], columns: tuple[str, str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / f"{split}.jsonl.gz", "wt", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(dict(zip(columns, row, strict=True))) + "\n")


def _rows_of(task: Task, split: str) -> list[Row]:
    """Three pairs of its own, and one that all splits of all tasks share; or two queries with candidates."""
    name = task.name
    if task.layout == "candidates":
        texts = [f"{name} {split} {role}" for role in ("query", "positive", "negative")]
        return [(f"{texts[0]} {row}", [f"{texts[1]} {row}"], [f"{texts[2]} {i}" for i in range(2)]) for row in range(2)]
    scores = (1.0, 2.0, 3.0, 2.0) if task.positive_label is None else (1, 0, 0, 1)
    if task.metric == "accuracy":
        scores = (1, 0, 2, 1)
    own: list[Row] = [(f"{name} {split} left {row}", f"{name} {split} right {row}", scores[row]) for row in range(3)]
    return [*own, ("A shared sentence.", "Another shared one.", scores[3])]


@pytest.fixture
def write_split() -> Callable[..., None]:
    """Write rows as one split of a data set: folder, split, rows, columns."""
    return _write_split


@pytest.fixture
def small_data(tmp_path: Path) -> Path:
    """All tasks with four rows a split, or two queries with three candidates, without `pairs/sts-sickr`."""
    folder = tmp_path / "data"
    files: dict[tuple[Path, str], list[dict[str, object]]] = {}
    for task in TASKS.values():
        for split in {split.partition("[")[0] for split in (*task.splits.values(), *task.unlabelled)}:
            rows = [dict(zip(task.columns, row, strict=True)) for row in _rows_of(task, split)]
            kept = files.setdefault((folder / task.dataset / (task.config or ""), split), rows)
            for first, second in zip(kept, rows, strict=True):  # two tasks of one data set
                first |= second | first
    for (path, split), rows in files.items():
        _write_split(path, split, [tuple(row.values()) for row in rows], tuple(rows[0]))
    return folder


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data; the test is skipped where there is none."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("TRANSENCODER_DATA") or beside)
    if not folder.is_dir():
        pytest.skip(f"real data not found at {folder}: set TRANSENCODER_DATA to the folder that holds it")
    return folder
