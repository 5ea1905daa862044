"""SIGKILL at every rename and at random lines of the package: the next run ends as if nothing happened."""

import hashlib
import json
import random
import signal
import time
from pathlib import Path

import pytest

from transencoder.runs import list_runs, read_log
from transencoder.runs.records import read_record

CHILD = """
import os, signal, sys, time
folder, mode, at, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
import transencoder.runs as runs

count = 0
def reached():
    global count
    count += 1
    return count == at

def die():
    os.kill(os.getpid(), signal.SIGKILL)

replace = os.replace
def replacing(*names):
    last = reached()
    if last and mode == "before-replace":
        die()
    replace(*names)
    if last and mode == "after-replace":
        die()

package = os.path.dirname(runs.__file__)
def trace(frame, event, argument):
    if not frame.f_code.co_filename.startswith(package):
        return None
    if event == "line" and reached():
        die()
    return trace

def compute(folder):
    # Three steps, each with a checkpoint that counts only when whole, as a trainer has them.
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    steps = [int(path.read_bytes()) for path in checkpoints.glob("step-*")]
    for step in range(max(steps, default=0) + 1, 4):
        time.sleep(pause)
        runs.files.atomic_write_bytes(checkpoints / f"step-{step}", str(step).encode())
        (folder / "best.bin").write_bytes(bytes([step]) * 100_000)
    (folder / "best.bin").write_bytes(bytes([3]) * 100_000)
    runs.files.atomic_json(folder / "model.json", {"steps": 3})
    return {"steps": 3}

if mode.endswith("replace"):
    os.replace = replacing
elif mode == "line":
    sys.settrace(trace)
with runs.Run.open(folder, "seed = 1", "test") as run:
    first = run.stage("cycle-1/cross", config={"seed": 1}, inputs=["data"], compute=compute)
    second = run.stage("cycle-1/bi", config={"seed": 2}, inputs=[first.key], compute=compute)
    run.finish({"dev": second.result["steps"]})
sys.settrace(None)
print(count)
"""


@pytest.fixture
def run_child(start_child):
    """Runs the child and returns its exit status and how many replaces or lines it counted."""

    def run(folder: Path, mode: str = "none", at: int = 0) -> tuple[int, int]:
        child = start_child(CHILD, folder, mode, at, 0)
        out, err = child.communicate(timeout=60)
        assert child.returncode in (0, -signal.SIGKILL), err
        return child.returncode, int(out or 0)

    return run


def contents(folder: Path) -> dict[str, str]:
    """The hash of every stage's outputs, and what the result says without its times."""
    result = json.loads((folder / "result.json").read_text())
    files = [path for path in (folder / "stages").rglob("*") if path.is_file() and path.name != "stage.json"]
    hashes = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return hashes | {"dev": result["dev"], "stages": [stage["key"] for stage in result["stages"]]}


def check_what_is_left(folder: Path) -> None:
    """Whatever claims to be done after a kill is whole."""
    for path in folder.glob("stages/*/stage.json"):
        assert read_record(path.parent, json.loads(path.read_text())["key"]) is not None
    if (folder / "result.json").exists():
        assert json.loads((folder / "result.json").read_text())["dev"] == 3
    read_log(folder)
    if folder.exists():
        list_runs(folder)


@pytest.fixture
def uninterrupted(tmp_path, run_child) -> dict[str, str]:
    assert run_child(tmp_path / "uninterrupted")[0] == 0
    return contents(tmp_path / "uninterrupted")


@pytest.mark.parametrize("mode", ["before-replace", "after-replace"])
def test_killed_at_each_replace(tmp_path, run_child, uninterrupted, mode):
    n_replaces = run_child(tmp_path / "count", mode, -1)[1]
    assert n_replaces >= 10
    for at in range(1, n_replaces + 1):
        folder = tmp_path / str(at)
        assert run_child(folder, mode, at)[0] == -signal.SIGKILL
        check_what_is_left(folder)
        assert run_child(folder)[0] == 0
        assert contents(folder) == uninterrupted


def test_killed_at_random_lines_again_and_again(tmp_path, run_child, uninterrupted):
    n_lines = run_child(tmp_path / "count", "line", -1)[1]
    chance = random.Random(0)
    for number in range(8):
        folder = tmp_path / str(number)
        for _ in range(3):
            run_child(folder, "line", chance.randint(1, n_lines))
            check_what_is_left(folder)
        assert run_child(folder)[0] == 0
        assert contents(folder) == uninterrupted


def test_killed_at_random_moments_from_outside(tmp_path, start_child, run_child, uninterrupted):
    folder, chance = tmp_path / "run", random.Random(1)
    for _ in range(8):
        child = start_child(CHILD, folder, "none", 0, 0.02)
        while not (folder / ".lock").exists():
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.15))
        child.kill()
        child.communicate()
        check_what_is_left(folder)
    assert run_child(folder)[0] == 0
    assert contents(folder) == uninterrupted
