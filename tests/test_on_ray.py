"""Parts made by Ray: as by one process, also when a node is lost; what is refused is refused in words."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from transencoder import cli, on_ray
from transencoder.errors import InputError
from transencoder.shards import Parts, Shard

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one CPU each, of which the second is added by the test that takes it away; the driver is attached."""
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    path = os.pathsep.join([str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")])
    ray.init(address=found.address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": path}})
    yield found
    ray.shutdown()
    found.shutdown()


def parts_in(folder, n_rows=12):
    return Parts(folder=folder, n_rows=n_rows, maker={"models": ["a"]}, shard_rows=1)


def slow_maker(folder):
    """Make parts of row numbers slowly, in a file beside them the process of each."""

    def make(shard):
        time.sleep(0.3)
        parts_in(folder).make(shard, lambda rows: {"row": np.arange(rows.start, rows.stop)})

    return make


def refusing_maker():
    raise InputError("there is no such model")


def broken_maker():
    return os.kill(os.getpid(), 9)


@pytest.mark.slow
def test_a_lost_node_costs_its_shard_alone(cluster, tmp_path, caplog):
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    n_made: list[Shard] = []
    parts, own = parts_in(tmp_path / "parts"), on_ray._Actors.wait_for_one

    def wait_for_one(self):
        made = own(self)
        n_made.extend([made] if made else [])
        if len(n_made) == 4 and node in cluster.worker_nodes:
            cluster.remove_node(node, allow_graceful=False)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_ray._Actors, "wait_for_one", wait_for_one)
        on_ray.make_all(parts, slow_maker, tmp_path / "parts")
    assert "Ray lost an actor" in caplog.text
    np.testing.assert_array_equal(parts.join()["row"], range(12))


@pytest.mark.slow
def test_endless_losses_end(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(on_ray, "_LOSSES", 0)
    with pytest.raises(on_ray.RunError, match="Ray lost 1 actors"):
        on_ray.make_all(parts_in(tmp_path / "parts", 1), broken_maker)


@pytest.mark.slow
def test_commands_write_what_one_process_writes(cluster, tiny_bi_encoder, tiny_files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("".join(f"text number {number}\n" for number in range(9)))
    pairs = ["--pairs", str(tiny_files / "test.tsv"), "--device", "cpu", "--precision", "fp32", "--quiet"]
    for engine in ("here", "ray"):
        command = ["score", tiny_bi_encoder, *pairs, "--output", f"{engine}.jsonl", "--engine", engine]
        assert cli.main(command) == 0
        texts = ["search", "build", "texts.txt", "--model", tiny_bi_encoder, "--device", "cpu"]
        assert cli.main([*texts, "--quiet", "--output", engine, "--engine", engine]) == 0
    assert Path("here.jsonl").read_bytes() == Path("ray.jsonl").read_bytes()
    names = ("documents.arrow", "index.json", "vectors.faiss")
    assert [(Path("here") / name).read_bytes() for name in names] == [
        (Path("ray") / name).read_bytes() for name in names
    ]


def named(name, folder):
    Path(folder, name).touch()
    return name, os.getcwd()


@pytest.mark.slow
def test_calls_start_when_they_may_and_their_results_are_in_order(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = [("a", str(tmp_path)), ("b", str(tmp_path)), ("c", str(tmp_path))]
    awaited = {0: [], 1: ["c"], 2: ["a"]}
    found = on_ray.call_all(named, calls, lambda number: all(Path(each).exists() for each in awaited[number]))
    assert found == [(name, str(tmp_path)) for name in "abc"]
    with pytest.raises(InputError, match="^there is no such model$"):
        on_ray.call_all(refusing_maker, [()], lambda number: False)  # it starts: nothing else is to be waited for


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
