"""A small data folder in the hub's layout, made here."""

import gzip
import json

import pytest

from transencoder.tasks import TASKS


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))


def write_rows(folder, split, rows):
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / f"{split}.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def rows_of(task, split):
    """Three pairs of its own, and one that all splits of all tasks share; or two queries with candidates."""
    name = task.name
    if task.layout == "candidates":
        texts = [f"{name} {split} {role}" for role in ("query", "positive", "negative")]
        return [(f"{texts[0]} {row}", [f"{texts[1]} {row}"], [f"{texts[2]} {i}" for i in range(2)]) for row in range(2)]
    scores = (1.0, 2.0, 3.0, 2.0) if task.positive_label is None else (1, 0, 0, 1)
    if task.metric == "accuracy":
        scores = (1, 0, 2, 1)
    own = [(f"{name} {split} left {row}", f"{name} {split} right {row}", scores[row]) for row in range(3)]
    return [*own, ("A shared sentence.", "Another shared one.", scores[3])]


@pytest.fixture
def small_data(tmp_path):
    """All tasks with four rows a split, or two queries with three candidates, without `pairs/sts-sickr`."""
    folder = tmp_path / "data"
    files = {}
    for task in TASKS.values():
        for split in {split.partition("[")[0] for split in (*task.splits.values(), *task.unlabelled)}:
            rows = [dict(zip(task.columns, row, strict=True)) for row in rows_of(task, split)]
            kept = files.setdefault((folder / task.dataset / (task.config or ""), split), rows)
            for first, second in zip(kept, rows, strict=True):  # two tasks of one data set
                first |= second | first
    for (path, split), rows in files.items():
        write_rows(path, split, rows)
    return folder


@pytest.fixture
def write_split(small_data):
    """Write rows as one split of a task: task, split, rows."""

    def write(task, split, rows):
        rows = [dict(zip(task.columns, row, strict=True)) for row in rows]
        write_rows(small_data / task.dataset / (task.config or ""), split, rows)

    return write
