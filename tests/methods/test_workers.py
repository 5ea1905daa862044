"""Who computes which stage, and how many processes there are."""

import io
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from transencoder import Member, TransEncoder, distributed
from transencoder.errors import InputError, RunError
from transencoder.methods.workers import Part, _check, _started, n_workers, owner, spent

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
        ({"pairs": "-"}, 4, 1),
        ({"members": THREE[:1], "workers": 2}, 4, 1),
        ({"alternate_members": True, "workers": 2}, 4, 1),
    ],
)
def test_as_many_workers_as_are_of_use(changes, n_gpus, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    assert n_workers(config(**changes)) == expected


def test_workers_that_cannot_be_are_refused(monkeypatch):
    with pytest.raises(InputError, match="workers is 2, with pairs from stdin.*leave it out"):
        n_workers(config(pairs="-", workers=2))
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    assert n_workers(config()) == 1
    with pytest.raises(InputError, match="workers is 2, under torchrun"):
        n_workers(config(workers=2))


def test_time_side_by_side_counts_once():
    stages = [("member-1/a", 5.0), ("member-2/a", 7.0), ("labels", 1.0), ("member-1/b", 4.0)]
    listed = [{"name": name, "seconds": seconds} for name, seconds in stages]
    assert spent(listed, 2) == 10.0
    assert spent(listed, 1) == 17.0


def test_a_worker_that_ended_before_its_stage_is_reported():
    done = [subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"]) for code in (0, 0)]
    for process in done:
        process.wait()
    _check(done, "cycle-1/labels-for-bi")  # nobody's: the other process may still come to it
    with pytest.raises(RunError, match=r"worker 2 of 2 ended with exit code 0 .* while member-2/x was waited for"):
        _check(done, "member-2/x")


def test_what_a_worker_cannot_use_is_no_reason_to_go_on():
    done = [subprocess.Popen([sys.executable, "-c", "raise SystemExit(2)"])]
    done[0].wait()
    with pytest.raises(InputError, match="worker 1 of 1 cannot go on: see above"):
        _check(done, "member-1/x")


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
        return SimpleNamespace(stdin=io.BytesIO())

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(subprocess, "Popen", popen)
    _started(Part(config(device=device), ("x",), 20, 1, 2, 0))
    assert seen == expected
