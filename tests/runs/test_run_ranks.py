"""The rank protocol with threads for ranks."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from transencoder.errors import RunError, RunInUseError
from transencoder.runs import Ranks, Run, read_log

N_RANKS = 3


class Group:
    """What a process group offers: a barrier, and a broadcast from rank 0."""

    def __init__(self):
        self._barrier = threading.Barrier(N_RANKS, timeout=10)
        self._value = None
        self._values = [None] * N_RANKS

    def ranks(self, rank: int) -> Ranks:
        return Ranks(
            rank=rank,
            barrier=self._barrier.wait,
            broadcast=lambda value: self._broadcast(rank, value),
            gather=lambda value: self._gather(rank, value),
        )

    def _gather(self, rank, value):
        self._values[rank] = value
        self._barrier.wait()
        return list(self._values)

    def _broadcast(self, rank, value):
        if rank == 0:
            self._value = value
        self._barrier.wait()
        value = self._value
        self._barrier.wait()
        return value

    def end(self):
        """What torchrun does when a process fails."""
        self._barrier.abort()


def on_ranks(work) -> list:
    """Runs `work(rank, group)` on every rank; an exception takes the place of its value."""
    group = Group()

    def guarded(rank):
        try:
            return work(rank, group)
        except Exception as error:
            return error

    with ThreadPoolExecutor(N_RANKS) as pool:
        return list(pool.map(guarded, range(N_RANKS)))


def make_work(tmp_path, computed):
    def work(rank, group):
        def compute(folder):
            computed.append(rank)
            (folder / f"shard-{rank}").write_text(str(rank))
            return {"rank": rank}

        with Run.open(tmp_path / "run", "seed = 1", "test", ranks=group.ranks(rank)) as run:
            run.log("hello", rank=rank)
            record = run.stage("a", config={}, compute=compute)
            run.finish({"rank": rank})
            return record, run.stages, run.environment["method"]

    return work


def test_all_ranks_compute_and_take_the_record_of_rank_0(tmp_path):
    computed = []
    work = make_work(tmp_path, computed)
    first = on_ranks(work)
    assert sorted(computed) == [0, 1, 2]
    assert all(value == first[0] for value in first)
    record = first[0][0]
    assert record.result == {"rank": 0}
    assert record.outputs.keys() == {"shard-0", "shard-1", "shard-2"}
    second = on_ranks(work)
    assert sorted(computed) == [0, 1, 2]  # reused on every rank
    assert [value[0].reused for value in second] == [True] * N_RANKS
    hellos = [entry["rank"] for entry in read_log(tmp_path / "run") if entry["event"] == "hello"]
    assert hellos == [0, 0]


def test_a_refusal_on_rank_0_reaches_all(tmp_path):
    with Run.open(tmp_path / "run", "seed = 1", "test"):
        outcomes = on_ranks(make_work(tmp_path, []))
    assert all(isinstance(outcome, RunInUseError) and "in use" in str(outcome) for outcome in outcomes)


def test_ranks_that_do_not_share_the_folder_are_named_on_all(tmp_path, monkeypatch):
    monkeypatch.setattr("transencoder.runs.run._SEEN_SECONDS", 0.2)
    Run.open(tmp_path / "2", "seed = 1", "test").close()  # an earlier run there is none of this one's

    def work(rank, group):
        with Run.open(tmp_path / str(rank), "seed = 1", "test", ranks=group.ranks(rank)):
            pass

    outcomes = on_ranks(work)
    assert all(isinstance(each, RunError) and "not the same folder for rank 1, 2" in str(each) for each in outcomes)
    Run.open(tmp_path / "0", "seed = 1", "test").close()  # its lock was given back


def test_a_record_that_cannot_be_written_fails_on_all(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise OSError("broken disk")

    monkeypatch.setattr("transencoder.runs.run.write_record", fail)
    outcomes = on_ranks(make_work(tmp_path, []))
    assert [type(outcome) for outcome in outcomes] == [OSError, RunError, RunError]
    assert all("broken disk" in str(outcome) for outcome in outcomes)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failing_compute_raises_at_once_on_its_rank(tmp_path, failing):
    def work(rank, group):
        def compute(folder):
            if rank == failing:
                raise ValueError("out of memory")
            return {}

        try:
            with Run.open(tmp_path / "run", "seed = 1", "test", ranks=group.ranks(rank)) as run:
                run.stage("a", config={}, compute=compute)
        except ValueError:
            group.end()
            raise

    outcomes = on_ranks(work)
    assert isinstance(outcomes[failing], ValueError)
    assert all(outcome is not None for outcome in outcomes)
    Run.open(tmp_path / "run", "seed = 1", "test").close()
