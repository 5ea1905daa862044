import errno
from pathlib import Path

import pytest

from transencoder.errors import RunError
from transencoder.runs import Run, clean_run, list_runs
from transencoder.runs.folder import is_run, read_result

RECIPE = 'method = "trans-encoder"\nseed = 1\n'


def fail(folder):
    (folder / "checkpoints").mkdir(exist_ok=True)
    (folder / "checkpoints" / "step-1").write_bytes(bytes(500))
    raise ValueError("stop")


def test_runs_are_found_at_any_level_and_summed_up(tmp_path, write_number):
    assert list_runs(tmp_path) == []
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with Run.open(tmp_path / "a" / "b" / "done", RECIPE, "trans-encoder") as run:
        run.stage("x", config={}, compute=write_number(1))
        run.finish({})
    with Run.open(tmp_path / "half", RECIPE, "simcse") as run:
        run.stage("x", config={}, compute=write_number(1))
        with pytest.raises(ValueError, match="stop"):
            run.stage("y", config={}, compute=fail)
        running = list_runs(tmp_path)
    done, half = list_runs(tmp_path)
    assert [summary.state for summary in running] == ["finished", "running"]
    assert done.folder == tmp_path / "a" / "b" / "done"
    assert (done.method, done.state, done.n_stages) == ("trans-encoder", "finished", 1)
    assert (half.method, half.state, half.n_stages) == ("simcse", "unfinished", 1)
    assert half.started.startswith("20")
    assert half.disk_bytes == sum(path.stat().st_size for path in half.folder.rglob("*") if path.is_file())
    assert list_runs(half.folder) == [half]


def test_a_result_counts_only_with_its_recipe(open_run):
    with open_run() as run:
        run.finish({})
    assert read_result(run.folder) is not None
    (run.folder / "recipe.toml").write_text("seed = 2")
    assert read_result(run.folder) is None
    assert list_runs(run.folder)[0].state == "unfinished"


def test_a_root_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RunError, match="not a folder"):
        list_runs(tmp_path / "absent")


def test_looking_does_not_disturb_opening(open_run, tmp_path):
    open_run().close()
    for _ in range(50):
        list_runs(tmp_path)
        open_run().close()


@pytest.fixture
def used_run(open_run, write_number):
    """A finished run with a stage of an earlier recipe, a half-done one, and leftover checkpoints."""
    with open_run(RECIPE.replace("1", "0")) as run:
        run.stage("old", config={}, compute=write_number(1))
        with pytest.raises(ValueError, match="stop"):
            run.stage("half", config={}, compute=fail)
        run.finish({})
    with open_run() as run:
        run.stage("new", config={}, compute=write_number(2))
        run.finish({})
    checkpoints = next((run.folder / "stages").glob("new-*")) / "checkpoints"
    checkpoints.mkdir()
    (checkpoints / "step-1").write_bytes(bytes(300))
    return run.folder


def test_cleaning_removes_what_the_result_does_not_use(used_run, open_run, write_number):
    before = list_runs(used_run)[0].disk_bytes
    plan = clean_run(used_run, dry_run=True)
    assert list_runs(used_run)[0].disk_bytes == before
    done = clean_run(used_run)
    assert [name.split("/")[1].split("-")[0] for name in done.names] == ["half", "new", "old"]
    assert done.names[1].endswith("/checkpoints")
    assert (done.names, done.bytes_freed) == (plan.names, plan.bytes_freed)
    log_growth = 1000
    assert before - done.bytes_freed <= list_runs(used_run)[0].disk_bytes < before - done.bytes_freed + log_growth
    assert clean_run(used_run).names == ()
    assert read_result(used_run) is not None
    compute = write_number(2)
    with open_run() as run:
        assert run.stage("new", config={}, compute=compute).reused


def test_cleaning_everything_leaves_the_result(used_run, open_run, write_number):
    assert len(clean_run(used_run, everything=True).names) == 3
    assert list((used_run / "stages").iterdir()) == []
    assert read_result(used_run) is not None
    with open_run() as run:
        assert not run.stage("new", config={}, compute=write_number(2)).reused


def test_cleaning_an_unfinished_run_keeps_what_its_recipe_asked_for(open_run, write_number):
    with open_run(RECIPE.replace("1", "0")) as run:
        run.stage("old", config={}, compute=write_number(1))
        shared = run.stage("shared", config={}, compute=write_number(1))
    with open_run() as run:
        run.stage("shared", config={}, compute=write_number(1))
        new = run.stage("new", config={}, compute=write_number(1))
    clean_run(run.folder)
    assert {path.name for path in (run.folder / "stages").iterdir()} == {shared.folder.name, new.folder.name}


@pytest.mark.parametrize("lost", ["recipe.toml", "environment.json", "log.jsonl", ".lock"])
def test_a_run_that_lost_a_file_is_a_run(lost, open_run):
    """Was: without its environment a finished run `is not a run`, and could not be gone on with."""
    for _ in range(2):
        with open_run() as run:
            run.finish({})
        (run.folder / "bi-encoder").mkdir(exist_ok=True)
        (run.folder / lost).unlink()
        assert is_run(run.folder)


def test_only_runs_are_cleaned(tmp_path):
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages" / "mine").mkdir()
    assert not is_run(tmp_path)
    with pytest.raises(RunError, match="is not a run"):
        clean_run(tmp_path)
    assert (tmp_path / "stages" / "mine").exists()


def test_a_run_that_cannot_be_read_is_listed(tmp_path, open_run, monkeypatch):
    """Such as another user's."""
    with open_run() as run:
        run.finish({})
    read = Path.read_bytes

    def forbidden(path):
        if path.suffix == ".json":
            raise PermissionError(errno.EACCES, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    (found,) = list_runs(tmp_path)
    assert (found.method, found.state) == (None, "unfinished")
