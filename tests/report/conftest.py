"""Hand-made results: a full one, and one of a run that had neither dev nor test sets."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from transencoder.report.result import Cycle, FormCycle, Result

STARTS = {"sts12": 70.0, "stsb": 80.0}


def _part(first: float, stage: str) -> FormCycle:
    return {
        "dev": first + 2,
        "curve": [(200, first), (400, first + 2), (600, first + 1.5)],
        "seconds": 90.0,
        "stage": stage,
    }


def _cycle(number: int) -> Cycle:
    return {
        "cycle": number,
        "cross": _part(80.0 + number, f"cross{number}"),
        "bi": _part(81.0 + number, f"bi{number}"),
    }


@pytest.fixture
def result() -> Result:
    """Two cycles, a dev set, two test sets; the best cross-encoder is of cycle 1, the bi-encoder of 2."""
    return {
        "method": "trans-encoder",
        "recipe": "trans-encoder/minilm-sts",
        "finished": "2026-11-21T10:00:00+00:00",
        "seed": 2021,
        "config": {
            "members": [{"start": "sentence-transformers/all-MiniLM-L6-v2", "cross_start": None, "pooling": None}],
            "cycles": 2,
            "output": "/home/somebody/runs/a",
            "bi": {"epochs": 3, "batch_size": 128, "learning_rate": 5e-05},
            "cross": {"epochs": 1, "batch_size": 32, "learning_rate": 2e-05},
        },
        "environment": {"commit": "0123abc", "device": "cpu", "threads": 2, "versions": {"torch": "2.13.0"}},
        "data": {
            "pairs": {
                "source": "/home/somebody/data/pairs/sts-sickr",
                "rows": 37077,
                "fingerprint": "ab" * 32,
                "transductive": True,
            },
            "dev": {"source": "stsb", "rows": 1500, "fingerprint": "cd" * 32},
            "tests": {name: {"source": name, "rows": 3108, "fingerprint": "ef" * 32} for name in STARTS},
        },
        "metric": "spearman",
        "cycles": [_cycle(1), _cycle(2)],
        "best": {
            "bi": {"cycle": 2, "dev": 85.0, "path": "bi-encoder"},
            "cross": {"cycle": 1, "dev": 83.0, "path": "cross-encoder"},
        },
        "dev": {"start": 81.8, "bi": 85.0, "cross": 83.0},
        "scores": {
            "start": dict(STARTS),
            "bi": {"sts12": 71.5, "stsb": 80.254},
            "cross": {"sts12": 69.0, "stsb": 82.0},
        },
        "analysis": None,
        "stages": [
            {"name": "labels/cycle-1/bi", "key": "1" * 64, "seconds": 12.3, "reused": True},
            {"name": "fit/cycle-1/cross", "key": "2" * 64, "seconds": 95.0, "reused": False},
        ],
        "seconds": 366.0,
        "notes": ["The pairs file had 3 rows with the same sentence twice."],
    }


@pytest.fixture
def bare_result(result: Result) -> Result:
    """The same run with no dev set, no test set and no recipe name."""
    del result["recipe"]
    result["data"]["dev"], result["data"]["tests"] = None, {}
    del result["data"]["pairs"]["transductive"]
    result["dev"], result["scores"], result["notes"] = None, {}, []
    for cycle in result["cycles"]:
        for part in (cycle["bi"], cycle["cross"]):
            part["dev"], part["curve"] = None, []
    for best in result["best"].values():
        best["cycle"], best["dev"] = 2, None
    return result


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[[str, Result | None], Path]:
    """Write a run folder below `tmp_path/runs` as a run does; without a result it is unfinished."""

    def make(name: str, result: Result | None) -> Path:
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        log = [
            {
                "time": "2026-11-21T09:00:00",
                "event": "stage_started",
                "stage": "fit/cycle-1/cross",
                "folder": "/secret",
            }
        ]
        (folder / "log.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in log) + '{"time": "2026-11-', encoding="utf-8"
        )
        if result is not None:
            (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
        return folder

    return make
