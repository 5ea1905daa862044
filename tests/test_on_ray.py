"""Parts made by Ray: as by one process, also when a node is lost; what is refused is refused in words."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from transencoder import on_ray
from transencoder.errors import InputError, RunError
from transencoder.shards import Parts, Shard

ray = pytest.importorskip("ray")


def parts_in(folder, n_rows=12):
    return Parts(folder=folder, n_rows=n_rows, maker={"models": ["a"]}, shard_rows=1)


def refusing_maker():
    raise InputError("there is no such model")


@pytest.mark.slow
def test_with_a_cluster(tmp_path):
    """The driver lives in a process of its own: Ray's native code may end it."""
    file = Path(__file__).with_name("ray_cluster.py")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path / 'own'}",
        str(file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert " 4 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("named", "address"), [({}, "local"), ({"RAY_ADDRESS": "host:6379"}, "host:6379")])
def test_a_cluster_is_the_one_that_is_named_or_a_new_one(monkeypatch, tmp_path, named, address):
    """Was: the last one of this machine, which may have been killed."""
    asked = []

    def init(address, **options):
        asked.append(address)
        raise KeyboardInterrupt

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(KeyboardInterrupt):
        on_ray.make_all(parts_in(tmp_path), refusing_maker)
    assert asked == [address]


def test_a_cluster_that_does_not_answer_is_named(monkeypatch, tmp_path, caplog):
    def init(address, **options):
        raise ConnectionError("timed out")

    monkeypatch.setenv("RAY_ADDRESS", "host:6379")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with (
        caplog.at_level("INFO"),
        pytest.raises(RunError, match=r"no Ray cluster answers at host:6379 \(timed out\).*unset RAY_ADDRESS"),
    ):
        on_ray.make_all(parts_in(tmp_path), refusing_maker)
    assert "connecting to host:6379" in caplog.text


@pytest.mark.parametrize(
    ("nodes", "units"),
    [
        ([{"CPU": 8.0}, {"CPU": 4.0, "memory": 1e9}], (12, {"num_cpus": 1})),
        ([{"CPU": 64.0}, {"GPU": 8.0, "CPU": 16.0}], (8, {"num_gpus": 1, "num_cpus": 2})),
        ([{"GPU": 1.0, "CPU": 16.0}, {"GPU": 4.0, "CPU": 3.0}], (5, {"num_gpus": 1, "num_cpus": 0})),
    ],
)
def test_each_node_with_units_can_give_one(nodes, units):
    """Was: where most processors were on nodes without a GPU, Ray waited for ever."""
    assert on_ray._units(nodes) == units


def test_without_ray_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(InputError, match=r"Ray is not installed; pip install 'transencoder\[ray\]'"):
        on_ray.make_all(parts_in(tmp_path), refusing_maker)


def test_the_shard_of_a_lost_actor_goes_to_an_idle_one(monkeypatch):
    """Was: it waited for a new actor, while the idle one held the CPU that this one needed."""
    from ray.exceptions import RayActorError

    lost, shards = RayActorError(), [Shard(1, 1)]
    results = iter([None, None, lost, None])

    def get(_):
        result = next(results)
        if result is not None:
            raise result

    monkeypatch.setattr(ray, "wait", lambda busy, num_returns: (busy[:num_returns], []))
    monkeypatch.setattr(ray, "get", get)
    started = []

    def start():
        started.append(
            SimpleNamespace(load=SimpleNamespace(remote=object), make=SimpleNamespace(remote=lambda *_: object()))
        )
        return started[-1]

    actors = on_ray._Actors(start, shards)
    actors.add()
    actors.add()
    made = [actors.wait_for_one() for _ in range(4)]
    assert made == [None, None, None, Shard(1, 1)] and len(started) == 2
