"""Who computes which stage, and how many processes there are."""

import errno
import os
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe, get_context
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from transencoder import Member, TransEncoder, distributed
from transencoder.errors import InputError, RunError
from transencoder.training import executors, worker
from transencoder.training.executors import Part, Workers, _started, n_workers, owner, spent

THREE = tuple(Member(start=name) for name in "xyz")


@pytest.mark.parametrize(
    ("stage", "owners"),
    [
        ("member-1/cycle-2/bi-encoder", (0, 0)),
        ("member-2/start/scores", (1, 1)),
        ("member-3/cross-start/pretraining", (0, 2)),
        ("scores/dev/member-3/start", (0, 2)),
        ("cycle-1/labels-for-bi", (None, None)),
        ("scores/start", (None, None)),
    ],
)
def test_a_members_stages_are_its_workers_and_all_others_nobodys(stage, owners):
    assert (owner(stage, 2), owner(stage, 3)) == owners


def config(**changes):
    return TransEncoder(**{"pairs": "a.tsv", "members": THREE, "output": "run"} | changes)


@pytest.mark.parametrize(
    ("changes", "n_gpus", "expected"),
    [
        ({}, 0, 1),
        ({}, 2, 2),
        ({}, 8, 3),
        ({"workers": 2}, 0, 2),
        ({"workers": 9}, 0, 3),
        ({"device": "cuda:0"}, 4, 1),
        ({"members": THREE[:1], "workers": 2}, 4, 1),
        ({"alternate_members": True, "workers": 2}, 4, 1),
    ],
)
def test_as_many_workers_as_are_of_use(changes, n_gpus, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    assert n_workers(config(**changes)) == expected


def test_workers_that_cannot_be_are_refused(monkeypatch):
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    assert n_workers(config()) == 1
    with pytest.raises(InputError, match="workers is 2, under torchrun"):
        n_workers(config(workers=2))


def test_time_side_by_side_counts_once():
    stages = [("member-1/a", 5.0), ("member-2/a", 7.0), ("labels", 1.0), ("member-1/b", 4.0)]
    listed = [{"name": name, "seconds": seconds} for name, seconds in stages]
    assert spent(listed, 2) == 10.0
    assert spent(listed, 1) == 17.0


class Ended(Workers):
    """Two workers that run a program and have closed their connections before their stage was done."""

    def __init__(self, program):
        super().__init__(local=None, parts=[None, None])
        self.program = program

    def __enter__(self):
        for _ in range(2):
            connection, theirs = Pipe()
            theirs.close()
            self._connections.append(connection)
            self._processes.append(subprocess.Popen([sys.executable, "-c", self.program]))
        return self


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        ("exit(0)", RunError, r"worker 2 of 2 ended with exit code 0 .* while member-2/x was waited for"),
        ("exit(2)", InputError, "worker 2 of 2 cannot go on: see above"),
    ],
)
def test_a_worker_that_ended_before_its_stage_is_reported(program, error, message):
    with Ended(program) as ended, pytest.raises(error, match=message):
        ended.make([SimpleNamespace(name="member-2/x", key="0")])


def test_a_worker_that_neither_answers_nor_ends_is_killed(monkeypatch):
    monkeypatch.setattr(executors, "_ENDED_SECONDS", 0.1)
    with (
        Ended("import time; time.sleep(600)") as ended,
        pytest.raises(RunError, match="worker 2 of 2 was killed by signal 9 while member-2/x"),
    ):
        ended.make([SimpleNamespace(name="member-2/x", key="0")])


@pytest.mark.parametrize(
    ("device", "has_gpu", "expected"),
    [
        (None, True, {"CUDA_VISIBLE_DEVICES": "7"}),
        ("cuda:0", True, {}),
        ("cpu", True, {"OMP_NUM_THREADS": "2"}),
        (None, False, {"OMP_NUM_THREADS": "2"}),
    ],
)
def test_each_worker_has_its_gpu_or_its_share_of_the_threads(device, has_gpu, expected, monkeypatch):
    """But for a device that is named, which all share."""
    seen = {}

    def popen(command, *, env, **_):
        seen.update({name: env[name] for name in env if env[name] != os.environ.get(name)})

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(subprocess, "Popen", popen)
    part = Part("run", "trans-encoder", device, None, (), (), log_level=20, number=1, n_workers=2, parent=0)
    _started(part)  # nobody reads, as where a worker ends at once: that is found when it is listened to
    assert seen == expected


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), RunError("Too many open files")])
def test_a_worker_says_in_one_line_what_the_system_refused(error, monkeypatch, caplog):
    def refuse(*_):
        raise error

    ours, theirs = Pipe()
    ours.send(Part("run", "trans-encoder", "cpu", None, (), (), log_level=0, number=0, n_workers=1, parent=0))
    monkeypatch.setattr(sys, "argv", ["worker", str(os.dup(theirs.fileno()))])
    monkeypatch.setattr(distributed, "end_with", lambda parent: None)
    monkeypatch.setattr(worker, "_work", refuse)
    assert worker.main() == 1
    assert "Too many open files" in caplog.messages[-1] and "\n" not in caplog.messages[-1]


def test_a_worker_whose_parent_ends_before_it_reads_the_last_answer_ends_in_silence(tmp_path):
    ours, theirs = Pipe()
    theirs.send(True)  # an answer that nobody reads
    ours.close()
    worker._work(Part(str(tmp_path), "trans-encoder", "cpu", None, (), (), 20, number=0, n_workers=1, parent=0), theirs)
    with pytest.raises(EOFError):  # the reset was met, and only the closed end is left
        theirs.recv()


def parent_of(program, connection):
    """Start a worker whose interpreter is another program, and tell its process."""
    sys.executable = str(program)
    process, _ = _started(Part("run", "trans-encoder", "cpu", None, (), (), 20, number=0, n_workers=1, parent=0))
    connection.send(process.pid)
    time.sleep(600)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a worker looks for its parent itself, now and then")
def test_a_worker_that_looks_for_nobody_ends_with_its_killed_parent(tmp_path):
    """As one does that is still importing, or in a call that holds the interpreter."""
    busy = tmp_path / "busy"
    busy.write_text("#!/bin/sh\nexec sleep 600\n")
    busy.chmod(0o755)
    ours, theirs = Pipe()
    parent = get_context("fork").Process(target=parent_of, args=(busy, theirs))
    parent.start()
    theirs.close()  # so that an end without an answer is met here
    pid = ours.recv()
    assert Path(f"/proc/{pid}").exists()
    parent.kill()
    parent.join()
    for _ in range(100):
        state = Path(f"/proc/{pid}/stat").read_text().split()[2] if Path(f"/proc/{pid}").exists() else "Z"
        if state == "Z":
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the worker lives on")
