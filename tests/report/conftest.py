"""Hand-made results: a full one, and one of a run that had neither dev nor test sets."""

import copy
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from transencoder.evidence import Evidence, drawn_intervals
from transencoder.pairs import text_statistics
from transencoder.runs.files import sync_files, write_checked_json

STARTS = {"sts12": 70.0, "stsb": 80.0}


def _statistics(pairs):
    return text_statistics(Dataset.from_dict({"sentence1": [a for a, _ in pairs], "sentence2": [b for _, b in pairs]}))


def _part(first, stage):
    curve = [(200, first), (400, first + 2), (600, first + 1.5)]
    return {"dev": first + 2, "curve": curve, "seconds": 90.0, "stage": stage}


def _cycle(number):
    parts = {"cross": _part(80.0 + number, f"cross{number}"), "bi": _part(81.0 + number, f"bi{number}")}
    return {"cycle": number, **parts}


@pytest.fixture
def result():
    """Two cycles, a dev set, two test sets; the best cross-encoder is of cycle 1, the bi-encoder of 2."""
    return {
        "method": "trans-encoder",
        "about": "Two encoders teach each other.",
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
            "dev": {"source": "stsb", "rows": 1500, "fingerprint": "cd" * 32, "metric": "spearman"},
            "tests": {
                name: {"source": name, "rows": 3108, "fingerprint": "ef" * 32, "metric": "spearman"} for name in STARTS
            },
        },
        "texts": _statistics([("a door", "the door")]),
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
        "intervals": {},
        "analysis": None,
        "stages": [
            {"name": "labels/cycle-1/bi", "key": "1" * 64, "seconds": 12.3, "reused": True},
            {"name": "fit/cycle-1/cross", "key": "2" * 64, "seconds": 95.0, "reused": False},
        ],
        "seconds": 366.0,
        "notes": ["The pairs file had 3 rows with the same sentence twice."],
    }


@pytest.fixture
def bare_result(result):
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
def make_run(tmp_path):
    """Write a run folder below `tmp_path/runs` as a run does; without a result it is unfinished."""

    def make(name, result):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        started = {"event": "stage_started", "stage": "fit/cycle-1/cross", "folder": "/secret"}
        line = json.dumps({"time": "2026-11-21T09:00:00"} | started)
        (folder / "log.jsonl").write_text(f'{line}\n{{"time": "2026-11-', encoding="utf-8")
        if result is not None:
            write_checked_json(folder / "result.json", result)
        return folder

    return make


HOSTILE = [
    ("<script>document.title = 'owned'</script>", "</p></table><img src=x onerror=\"document.title='owned'\">"),
    ("متى يفتح المتجر؟", "المتجر مفتوح حتى الساعة التاسعة."),
    ("מתי מגיע הרופא?", "a \u202erevo denrut\u202c b \x07 & c"),
]
N_PAIRS = 48


@pytest.fixture
def kept_run(result, make_run):
    """Makes a run whose stages are there: labels and scores of two cycles, gold of two tests, a sample.

    Of its training pairs the first three are hostile or run from right to left, and disagreed on the most.
    """

    def make(name="kept", seed=0):
        record = copy.deepcopy(result)
        rng = np.random.default_rng(seed)
        texts = [*HOSTILE, *((f"the {i}th door", f"a door of number {i}") for i in range(3, N_PAIRS))]
        record["texts"] = _statistics(texts)
        files = _labels_and_scores(record, rng) | _tests(record, rng)
        scores = {model: rng.permutation(np.linspace(0, 1, N_PAIRS)) for model in ("start", "bi", "cross")}
        for i in range(len(HOSTILE)):
            scores["start"][i], scores["bi"][i], scores["cross"][i] = 2.0 + i, -1.0 - i, -1.0 - i
        sample = {"row": np.arange(N_PAIRS), "sentence1": [a for a, _ in texts], "sentence2": [b for _, b in texts]}
        files["sample"] = {"sample.parquet": pa.table(sample | scores)}
        near = {"start": {"text": texts[5][0], "cosine": 0.5}, "bi": {"text": texts[6][1], "cosine": -0.25}}
        shown = [{"text": HOSTILE[0][0]} | near, {"text": "long " * 200} | near]
        files["neighbours"] = {"neighbours.json": {"texts": 40, "changed": 30, "shown": shown}}
        keys = {cycle[form]["stage"] for cycle in record["cycles"] for form in ("bi", "cross")}
        by_student = {f"cycle-{key[-1]}/{key[:-1]}-encoder": key for key in keys}
        names = [*files, *by_student]
        record["stages"] = [
            {"name": name, "key": by_student.get(name, f"{i:064x}"), "seconds": 1.5, "reused": False}
            for i, name in enumerate(names)
        ]
        folder = make_run(name, record)
        for stage in record["stages"]:
            _write_stage(folder / "stages" / f"{stage['name'].replace('/', '-')}-{stage['key'][:12]}", files, stage)
        record["intervals"] = drawn_intervals(Evidence(folder, record))
        write_checked_json(folder / "result.json", record)
        return folder

    return make


def _labels_and_scores(record, rng):
    """Of each cycle the labels of both students, and the scores of all but the last bi-encoder."""
    files = {}
    for cycle in record["cycles"]:
        number = cycle["cycle"]
        for form in ("cross", "bi"):
            labels = rng.random(N_PAIRS, np.float32)
            files[f"cycle-{number}/labels-for-{form}"] = {"labels.parquet": pa.table({"label": labels})}
            if (number, form) != (len(record["cycles"]), "bi"):
                files[f"cycle-{number}/{form}-encoder/scores"] = {"scores.npy": labels * np.float32(0.9)}
    return files


def _tests(record, rng):
    """Gold and scores of the tests: the cross-encoder follows gold, the bi-encoder says what the start says."""
    files = {name: {} for name in ("gold", "scores/start", "scores/bi", "scores/cross")}
    for test in record["data"]["tests"]:
        gold = rng.integers(0, 6, 60).astype(np.float64)
        noisy = (gold + rng.normal(0, 3, 60)).astype(np.float32)
        files["gold"][f"{test}.npz"] = {"gold": gold}
        files["scores/start"][f"{test}.npy"] = files["scores/bi"][f"{test}.npy"] = noisy
        files["scores/cross"][f"{test}.npy"] = (gold + rng.normal(0, 0.5, 60)).astype(np.float32)
    return files


def _write_stage(folder, files, stage):
    folder.mkdir(parents=True)
    named = files.get(stage["name"], {})
    for name, content in named.items():
        if isinstance(content, pa.Table):
            pq.write_table(content, folder / name)
        elif name.endswith(".json"):
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
        elif isinstance(content, dict):
            np.savez(folder / name, **content)
        else:
            np.save(folder / name, content)
    write_checked_json(folder / "stage.json", {"format": 2, "key": stage["key"], "outputs": sync_files(folder, named)})
