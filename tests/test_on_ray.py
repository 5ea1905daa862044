"""Parts made by Ray: as by one process, also when a node is lost; what is refused is refused in words."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from transencoder import on_ray
from transencoder.cli import main
from transencoder.errors import InputError, RunError
from transencoder.shards import Parts, Shard

ray = pytest.importorskip("ray")
cloudpickle = pytest.importorskip("ray.cloudpickle")


def parts_in(folder, n_rows=12):
    return Parts(folder=folder, n_rows=n_rows, maker={"models": ["a"]}, shard_rows=1)


def refusing_maker():
    raise InputError("there is no such model")


@pytest.mark.slow
def test_with_a_cluster(tmp_path):
    """The driver lives in a process of its own."""
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
    assert " 3 passed" in done.stdout, done.stdout + done.stderr


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


def test_endless_losses_end(monkeypatch):
    from ray.exceptions import RayActorError

    def lose(_):
        raise RayActorError

    monkeypatch.setattr(ray, "wait", lambda busy, num_returns: (busy[:num_returns], []))
    monkeypatch.setattr(ray, "get", lose)
    actor = SimpleNamespace(load=SimpleNamespace(remote=object), make=None)
    with pytest.raises(RunError, match="Ray lost 7 actors"):  # of two, each may be lost three times
        on_ray._share_out([Shard(1, 2), Shard(2, 2)], lambda: actor, 2)


def test_an_index_that_actors_build_is_that_of_one_process(monkeypatch, tmp_path, tiny_bi_encoder):
    """Each actor is made of what comes through pickle."""

    def make_all(parts, *maker_and_arguments):
        maker, *arguments = cloudpickle.loads(cloudpickle.dumps(maker_and_arguments))
        for shard in replace(parts, fewest=2).shards():
            maker(*arguments)(shard)

    monkeypatch.setattr(on_ray, "make_all", make_all)
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("".join(f"text number {number}\n" for number in range(9)))
    for engine in ("here", "ray"):
        texts = ["search", "build", "texts.txt", "--model", tiny_bi_encoder, "--device", "cpu"]
        assert main([*texts, "--quiet", "--output", engine, "--engine", engine]) == 0
    for name in ("documents.arrow", "index.json", "vectors.faiss"):
        assert (Path("here") / name).read_bytes() == (Path("ray") / name).read_bytes()
