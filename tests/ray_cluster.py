"""Parts made by a Ray cluster of two nodes; test_on_ray.py runs this file in a process of its own.

Ray's native code ends its process where it cannot go on, and once took a worker of pytest with it.
"""

import os
import time
from pathlib import Path

import numpy as np
import pytest
import ray

from transencoder import cli, on_ray
from transencoder.errors import InputError
from transencoder.shards import Parts, Shard


@pytest.fixture(scope="module")
def cluster():
    """A node of one CPU, with the driver attached.

    The last test adds a second node and takes it away; Ray would go on waiting for it in a test behind that one.
    """
    from ray.cluster_utils import Cluster

    path = os.pathsep.join([str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)  # which the nodes inherit; a runtime_env would take an agent and new workers
        found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        ray.init(address=found.address, log_to_driver=False)
        yield found
        ray.shutdown()
        found.shutdown()


def parts_in(folder, n_rows=12):
    return Parts(folder=folder, n_rows=n_rows, maker={"models": ["a"]}, shard_rows=1)


def hanging_maker(folder, node):
    """Make parts of row numbers, but on one node no second one."""
    made = []

    def make(shard):
        if made and ray.get_runtime_context().get_node_id() == node:
            time.sleep(600)
        parts_in(folder).make(shard, lambda rows: {"row": np.arange(rows.start, rows.stop)})
        made.append(shard)
        # One node alone would be done before the other has started.
        while len([*folder.glob("*-of-*.safetensors")]) < 2:
            time.sleep(0.1)

    return make


def refusing_maker():
    raise InputError("there is no such model")


def broken_maker():
    return os.kill(os.getpid(), 9)


def test_endless_losses_end(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(on_ray, "_LOSSES", 0)
    with pytest.raises(on_ray.RunError, match="Ray lost 1 actors"):
        on_ray.make_all(parts_in(tmp_path / "parts", 1), broken_maker)


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


def test_calls_start_when_they_may_and_their_results_are_in_order(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = [("a", str(tmp_path)), ("b", str(tmp_path)), ("c", str(tmp_path))]
    awaited = {0: [], 1: ["c"], 2: ["a"]}
    found = on_ray.call_all(named, calls, lambda number: all(Path(each).exists() for each in awaited[number]))
    assert found == [(name, str(tmp_path)) for name in "abc"]
    cancelled = []
    monkeypatch.setattr(ray, "cancel", cancelled.append)
    with pytest.raises(InputError, match="^there is no such model$"):
        on_ray.call_all(refusing_maker, [()], lambda number: False)  # it starts: nothing else is to be waited for
    assert not cancelled, "was: the failed task, and Ray ended this process"


def test_a_lost_node_costs_its_shard_alone(cluster, tmp_path, caplog):
    before = {each["NodeID"] for each in ray.nodes()}
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    (added,) = {each["NodeID"] for each in ray.nodes()} - before
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
        on_ray.make_all(parts, hanging_maker, tmp_path / "parts", added)
    assert "Ray lost an actor" in caplog.text
    np.testing.assert_array_equal(parts.join()["row"], range(12))
