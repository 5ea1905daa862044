"""Members side by side in worker processes: the same bytes as in turn, a dead worker reported, a dead parent followed."""

import json
import os
import signal
import sys
import time
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from transencoder.cli import main

SETTINGS = (
    "--cycles 1 --precision fp32 --device $DEVICE_OF_TEST --bi.learning-rate 1e-3 --bi.batch-size 8 --bi.epochs 1 "
    "--cross.learning-rate 1e-3 --cross.batch-size 8 --cross.epochs 1 --cross.checkpoint-steps 4 --bi.checkpoint-steps 4"
).split()


@pytest.fixture
def command(tmp_path, tiny_files, tiny_bi_encoder, tiny_plm, monkeypatch):
    """Words of the command that trains two members, by the output's name; a variable names the device."""
    monkeypatch.setenv("DEVICE_OF_TEST", "cpu")
    members = ["--start", tiny_bi_encoder, "--cross-start", tiny_plm, "--start", tiny_bi_encoder, "--pooling", "cls"]
    data = ["--pairs", tiny_files / "pairs.tsv", "--dev", tiny_files / "dev.tsv", "--tests", tiny_files / "test.tsv"]
    words = [str(word) for word in ("train", "trans-encoder", *data, *members, *SETTINGS)]
    return lambda name: [*words, "--output", str(tmp_path / name)]


def run(words, errors):
    """Run a command in a fork, which finds all that it imports."""
    torch.set_num_threads(1)  # a fork has no others
    sys.stdout = sys.stderr = errors.open("w")
    code = main(words)
    sys.stderr.flush()
    sys.exit(code)


@pytest.fixture
def start(command, tmp_path):
    """Begin a run in a process of its own, one thread a process; what it says goes to the file `errors`."""
    begun = []

    def begin(name, *options):
        errors = tmp_path / "errors"
        process = get_context("fork").Process(target=run, args=([*command(name), *options], errors))
        process.start()
        begun.append(process)
        return process

    yield begin
    for process in begun:
        if process.is_alive():
            process.kill()


@contextmanager
def one_thread():
    """Compute as the processes that are started do."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def ended(process, folder):
    """Wait for the end of a process; returns its exit code and what it said."""
    process.join(timeout=240)
    return process.exitcode, (folder / "errors").read_text()


def weights(folder):
    paths = sorted(Path(folder).glob("members/*/*/model.safetensors"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def wait_until(is_so, seconds=120, otherwise=lambda: ""):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.02)


def log(folder):
    try:
        return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    except (FileNotFoundError, ValueError):
        return []


def has_begun(folder, stage):
    return any(entry["event"] == "stage_started" and entry["name"] == stage for entry in log(folder))


def pid_of(folder, worker):
    """Read who holds a worker's folder; a lock that has just been opened is empty for a moment."""
    path = folder / "workers" / str(worker) / ".lock"
    wait_until(lambda: path.read_text().endswith("}"), seconds=10)
    return json.loads(path.read_text())["pid"]


def pids_of(folder):
    return [pid_of(folder, worker) for worker in (1, 2)]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_workers_give_the_same_bytes_as_turns_also_after_deaths(command, start, tmp_path):
    with one_thread():
        assert main(command("in-turn")) == 0
    expected = weights(tmp_path / "in-turn")
    assert len(expected) == 4

    folder = tmp_path / "side-by-side"
    process = start("side-by-side", "--workers", "2")
    wait_until(lambda: has_begun(folder, "member-2/cycle-1/cross-encoder"))
    os.kill(pid_of(folder, 2), signal.SIGKILL)
    code, errors = ended(process, tmp_path)
    assert code == 3, errors
    assert "worker 2 of 2 was killed by signal 9 while member-" in errors
    assert "the same command goes on from the last checkpoints" in errors and "Traceback" not in errors

    process = start("side-by-side", "--workers", "2")
    wait_until(
        lambda: has_begun(folder, "member-1/cycle-1/bi-encoder") and all(map(is_alive, pids_of(folder))),
        otherwise=lambda: f"{process}, {pids_of(folder)}, {(tmp_path / 'errors').read_text()}, {log(folder)}",
    )
    pids = pids_of(folder)
    process.terminate()
    code, errors = ended(process, tmp_path)
    assert code == 130 and "it goes on from" in errors and "Traceback" not in errors, errors
    wait_until(lambda: not any(map(is_alive, pids)), seconds=1)

    code, errors = ended(start("side-by-side", "--workers", "2"), tmp_path)
    assert code == 0, errors
    assert weights(folder) == expected
    result, in_turn = (json.loads((each / "result.json").read_text()) for each in (folder, tmp_path / "in-turn"))
    for name in ("members", "ensemble", "scores"):
        assert without_seconds(result[name]) == without_seconds(in_turn[name])
    first, second = (f"member-{member}/cycle-1/bi-encoder" for member in (1, 2))
    done = {(entry["event"], entry["name"]): entry["time"] for entry in log(folder) if "name" in entry}
    assert done["stage_started", second] < done["stage_done", first], "side by side, not in turn"
    assert done["stage_started", first] < done["stage_done", second]
    owners = {entry["name"] for entry in log(folder) if entry["event"] == "stage_started"}
    assert {"cycle-1/labels-for-bi", "member-2/cycle-1/bi-encoder", "scores/member-1/bi"} <= owners
    keys, keys_in_turn = ({each["name"]: each["key"] for each in found["stages"]} for found in (result, in_turn))
    assert keys == keys_in_turn, "how many workers there were is no setting of any stage"


def without_seconds(record):
    if isinstance(record, dict):
        return {name: without_seconds(value) for name, value in record.items() if name != "seconds"}
    return [without_seconds(item) for item in record] if isinstance(record, list) else record
