import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from transencoder.errors import InputError, RunError
from transencoder.runs import Run, read_log
from transencoder.runs import folder as run_folder
from transencoder.runs.folder import read_result
from transencoder.runs.stages import stage_key

RECIPE = 'method = "trans-encoder"\nseed = 1\n'


def events(folder) -> list[str]:
    return [entry["event"] for entry in read_log(folder)]


def test_a_finished_stage_is_computed_once_and_its_record_is_the_same(open_run):
    def compute(folder):
        calls.append(folder)
        (folder / "model").mkdir()
        (folder / "model" / "weights.bin").write_bytes(bytes(1000))
        return {"curve": ((1, 2.5),), "path": folder.parent.parent / "x"}

    records, calls = [], []
    for _ in range(2):
        with open_run() as run:
            records.append(run.stage("cycle-1/bi", config={"lr": 0.1}, inputs=["data"], compute=compute))
    first, second = records
    assert not first.reused and second == replace(first, reused=True)
    assert first.result == {"curve": [[1, 2.5]], "path": f"{run.folder}/x"}
    assert calls == [first.folder] == [run.folder / "stages" / f"cycle-1-bi-{first.key[:12]}"]
    assert first.outputs.keys() == {"model/weights.bin"} and first.outputs["model/weights.bin"]["size"] == 1000


def test_who_goes_on_with_a_run_is_told_what_is_done(open_run, write_number, caplog):
    caplog.set_level("INFO")
    with open_run() as run:
        folder = run.folder
        for number, name in enumerate(("one", "other")):
            run.stage(name, config={}, compute=write_number(number))
    assert not caplog.messages
    with open_run():
        pass
    assert caplog.messages == [f"{folder} has 2 stages; those that have not changed are not computed again"]


def test_a_stage_that_another_run_has_finished_is_copied(tmp_path, write_number, caplog):
    compute = write_number(1)
    stage = {"config": {"lr": 0.1}, "inputs": ["data"], "compute": compute}
    with Run.open(tmp_path / "first", RECIPE, "test") as run:
        first = run.stage("cycle-1/bi", **stage)
    stage_caches = [tmp_path / "absent", tmp_path / "first"]
    with Run.open(tmp_path / "second", RECIPE, "test", stage_caches=stage_caches) as run:
        second = run.stage("cycle-1/bi", **stage)
        other = run.stage("cycle-1/bi", config={"lr": 0.2}, inputs=["data"], compute=compute)
    assert caplog.messages == [f"{tmp_path / 'absent'} is no run folder: no stage is taken from it"]
    assert compute.calls == 2, "once in the first run, and for the stage that it does not have"
    assert (second.key, second.outputs, second.reused) == (first.key, first.outputs, True)
    assert second.folder.parent == tmp_path / "second" / "stages" and not other.reused
    assert "stage_borrowed" in events(tmp_path / "second")
    shutil.rmtree(tmp_path / "first")
    with Run.open(tmp_path / "second", RECIPE, "test", stage_caches=stage_caches) as run:
        assert run.stage("cycle-1/bi", **stage).reused


def test_a_stage_that_must_not_be_copied_is_computed(tmp_path, write_number):
    compute = write_number(1)
    for folder in ("first", "second", "second"):
        with Run.open(tmp_path / folder, RECIPE, "test", stage_caches=[tmp_path / "first"]) as run:
            run.stage("timing", config={}, compute=compute, can_be_copied=False)
    assert compute.calls == 2, "once in each run; a run's own is used again"


def test_a_damaged_or_unfinished_stage_of_another_run_is_not_copied(tmp_path, write_number):
    compute = write_number(1)
    stage = {"config": {}, "compute": compute}
    with Run.open(tmp_path / "first", RECIPE, "test") as run:
        damaged, unfinished = (run.stage(name, **stage).folder for name in ("damaged", "unfinished"))
    (damaged / "model" / "weights.bin").write_bytes(b"x")
    (unfinished / "stage.json").unlink()
    with Run.open(tmp_path / "second", RECIPE, "test", stage_caches=[tmp_path / "first"]) as run:
        assert not any(run.stage(name, **stage).reused for name in ("damaged", "unfinished"))
    assert compute.calls == 4


def test_changing_a_late_stage_reuses_what_comes_before(open_run, write_number):
    def train(bi_epochs):
        with open_run(RECIPE + f"bi_epochs = {bi_epochs}\n") as run:
            label = run.stage("label", config={}, inputs=["data"], compute=labels)
            cross = run.stage("cross", config={}, inputs=[label.key], compute=crosses)
            bi = run.stage("bi", config={"epochs": bi_epochs}, inputs=[cross.key], compute=bis)
            return [label.reused, cross.reused, bi.reused]

    labels, crosses, bis = write_number(1), write_number(2), write_number(3)
    assert train(1) == [False, False, False]
    assert train(2) == [True, True, False]
    assert train(1) == [True, True, True]
    assert (labels.calls, crosses.calls, bis.calls) == (1, 1, 2)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model/weights.bin", lambda path: path.write_bytes(bytes([2]) * 1000)),
        ("model/weights.bin", lambda path: path.write_bytes(bytes([1]) * 999)),
        ("model/weights.bin", lambda path: path.unlink()),
        ("stage.json", lambda path: path.write_text("{")),
        ("stage.json", lambda path: path.write_text(path.read_text().replace('"key": "', '"key": "0'))),
    ],
    ids=["changed", "shortened", "missing", "record", "foreign record"],
)
def test_a_damaged_stage_is_done_again_with_a_warning(run_stage, write_number, name, damage, caplog, tmp_path):
    compute = write_number(1)
    record = run_stage(compute)
    damage(record.folder / name)
    (record.folder / "stray.bin").touch()
    again = run_stage(compute)
    assert compute.calls == 2 and not again.reused
    assert again.outputs == record.outputs
    assert str(record.folder / name) in caplog.text
    assert "stage_damaged" in events(tmp_path / "run")


def test_what_the_system_cannot_read_now_is_not_taken_for_damaged(run_stage, write_number, tmp_path, monkeypatch):
    """Was: one stale file handle of NFS removed a finished stage."""
    compute, read = write_number(1), Path.read_bytes
    folder = run_stage(compute).folder
    with monkeypatch.context() as patch:
        stale = OSError(errno.ESTALE, "Stale file handle")
        patch.setattr(Path, "read_bytes", lambda path: raised(stale) if path.name == "stage.json" else read(path))
        with pytest.raises(RunError, match="Stale file handle"):
            run_stage(compute)
    assert run_stage(compute).folder == folder and compute.calls == 1


def raised(error):
    raise error


def test_checkpoints_stay_if_the_whole_stage_of_another_run_cannot_be_copied(tmp_path, write_number, monkeypatch):
    def interrupted(folder):
        (folder / "checkpoints").mkdir()
        (folder / "checkpoints" / "checkpoint-5").touch()
        raise KeyboardInterrupt

    with Run.open(tmp_path / "first", RECIPE, "test") as run:
        run.stage("a", config={}, compute=write_number(1))
    with pytest.raises(KeyboardInterrupt), Run.open(tmp_path / "second", RECIPE, "test") as run:
        run.stage("a", config={}, compute=interrupted)
    monkeypatch.setattr(shutil, "copytree", lambda *_, **__: raised(OSError(errno.ENOSPC, "No space left on device")))
    with (
        pytest.raises(RunError),
        Run.open(tmp_path / "second", RECIPE, "test", stage_caches=[tmp_path / "first"]) as run,
    ):
        run.stage("a", config={}, compute=write_number(1))
    assert len([*(tmp_path / "second").glob("stages/*/checkpoints/checkpoint-5")]) == 1


def test_a_failed_stage_keeps_its_folder_and_goes_on_from_its_checkpoint(run_stage, tmp_path):
    def compute(folder):
        checkpoints = folder / "checkpoints" / "step-1"
        if not checkpoints.exists():
            checkpoints.mkdir(parents=True)
            (folder / ".tmp-weights").touch()
            (folder / "sub").mkdir()
            (folder / "sub" / "x.tmp").touch()
            raise ValueError("loss is nan")
        (folder / "weights.bin").write_bytes(b"1")
        return {}

    with pytest.raises(ValueError, match="loss is nan"):
        run_stage(compute)
    failure = next(entry for entry in read_log(tmp_path / "run") if entry["event"] == "stage_failed")
    assert failure["name"] == "a" and "loss is nan" in failure["error"]
    assert "run_failed" in events(tmp_path / "run")
    record = run_stage(compute)
    assert record.outputs.keys() == {"weights.bin"}
    left = {path.name for path in record.folder.rglob("*") if path.is_file()}
    assert left == {"weights.bin", "stage.json"}
    assert not (record.folder / "checkpoints").exists()


def test_seconds_add_up_over_attempts(open_run, run_stage, tmp_path):
    open_run().close()
    key = stage_key("a", {}, [])
    entries = [
        ("00:00:00", "stage_started", key),
        ("00:00:50", "loss", None),  # then killed
        ("02:00:00", "run_opened", None),
        ("02:00:10", "stage_started", key),
        ("02:00:40", "stage_failed", key),
    ]
    with open(tmp_path / "run" / "log.jsonl", "w") as log:
        for time, event, own in entries:
            entry = {"time": f"2026-01-01T{time}.000+00:00", "event": event, "key": own or "", "recipe_sha256": ""}
            log.write(json.dumps(entry) + "\n")
    assert 80 <= run_stage(lambda folder: {}).seconds < 90


def test_ctrl_c_passes_through_after_a_log_line(run_stage, tmp_path):
    def compute(folder):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(compute)
    assert events(tmp_path / "run")[-2:] == ["stage_interrupted", "run_interrupted"]


def test_a_nan_in_a_result_is_refused_and_names_its_place(open_run):
    with open_run() as run:
        with pytest.raises(InputError, match=r"result\.dev\[1\] is nan"):
            run.stage("a", config={}, compute=lambda folder: {"dev": [1.0, float("nan")]})
        with pytest.raises(InputError, match=r"result.json.dev is inf"):
            run.finish({"dev": float("inf")})
    assert not (run.folder / "result.json").exists()


def test_a_config_changed_by_compute_is_recorded_as_it_was(open_run):
    config = {"epochs": 1}
    with open_run() as run:
        record = run.stage("a", config=config, compute=lambda folder: config.update(epochs=2) or {})
    assert json.loads((record.folder / "stage.json").read_text())["config"] == {"epochs": 1}
    assert "reused" not in json.loads((record.folder / "stage.json").read_text())


@pytest.mark.parametrize("name", ["", "../x", "/x", "a//b", ".tmp-x", "a b", "a/"])
def test_names_that_cannot_be_folders_are_refused(open_run, name):
    with open_run() as run, pytest.raises(InputError, match="stage name"):
        run.stage(name, config={}, compute=lambda folder: {})


def test_the_result_belongs_to_its_recipe_and_has_the_sessions_stages(open_run, write_number, caplog):
    def finish(recipe):
        with open_run(recipe) as run:
            had_result = (run.folder / "result.json").exists()
            record = run.stage("a", config={}, compute=write_number(1))
            run.stage("a", config={}, compute=write_number(1))
            run.finish({"scores": {"start": 1.5}})
        stages = [{"name": "a", "key": record.key, "seconds": record.seconds, "reused": record.reused}]
        assert read_result(run.folder)["stages"] == stages
        return had_result

    assert finish(RECIPE) is False
    assert finish("# a comment\nseed = 1\nmethod = 'trans-encoder'") is True  # says the same
    assert finish(RECIPE.replace("1", "2")) is False
    assert "is another recipe's: it is moved to" in caplog.text


def test_a_result_without_a_hash_is_set_aside_and_the_recipe_written(open_run):
    with open_run() as run:
        (run.folder / "result.json").write_text("{}")
    with open_run() as run:
        assert not (run.folder / "result.json").exists()
        assert (run.folder / "previous" / "result.json").read_text() == "{}"
    assert (run.folder / "recipe.toml").read_text() == RECIPE


def test_what_has_left_the_run_is_in_previous_for_good(open_run, monkeypatch):
    synced = []
    monkeypatch.setattr("transencoder.runs.folder.sync", lambda path: synced.append(path.name))
    with open_run() as run:
        (run.folder / "result.json").write_text("{}")
    open_run().close()
    assert synced == ["previous", "run"]


def test_a_result_is_set_aside_over_what_an_interrupted_move_left(open_run, monkeypatch):
    """Was: "Directory not empty", at each further attempt."""

    def train(recipe):
        with open_run(recipe, outputs=("bi-encoder",)) as run:
            (run.folder / "bi-encoder").mkdir(exist_ok=True)
            (run.folder / "bi-encoder" / "weights").write_text(recipe)
            run.finish({})
        return run.folder

    train("seed = 1")
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, "No space left on device")
        patch.setattr(run_folder, "atomic_write_bytes", lambda *_: raised(full))
        with pytest.raises(RunError):
            train("seed = 2")
    train("seed = 1")
    folder = train("seed = 2")
    kept = [(each / "bi-encoder" / "weights").read_text() for each in (folder, folder / "previous")]
    assert kept == ["seed = 2", "seed = 1"]


def test_a_result_of_other_data_is_set_aside_and_one_of_the_same_stays(open_run, write_number, tmp_path, caplog):
    def finish(data, *more):
        with open_run(RECIPE, outputs=("model",)) as run:
            for name, number in (("a", data), *more):
                run.stage(name, config={}, inputs=[str(number)], compute=write_number(number))
            run.set_outdated_result_aside()
            (run.folder / "model").write_text(str(data))
            run.finish({"data": data})

    finish(1)
    finish(1, ("b", 1))  # a later version keeps more
    assert not (tmp_path / "run" / "previous").exists()
    finish(2, ("b", 1))
    assert (tmp_path / "run" / "previous" / "model").read_text() == "1"
    assert json.loads((tmp_path / "run" / "previous" / "result.json").read_text())["data"] == 1
    assert read_result(tmp_path / "run")["data"] == 2
    assert "is of other data or models (the stage a is another now): it is moved to" in caplog.text


def test_a_folder_that_is_not_a_run_is_refused(tmp_path, open_run):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    with pytest.raises(RunError, match="not empty and is not a run"):
        Run.open(tmp_path / "thesis", RECIPE, "trans-encoder")
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.tex"]
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be a folder"):
        Run.open(tmp_path / "file", RECIPE, "trans-encoder")
    (tmp_path / "empty").mkdir()
    Run.open(tmp_path / "empty", RECIPE, "trans-encoder").close()


def test_a_recipe_that_is_not_toml_is_refused(open_run, tmp_path):
    with pytest.raises(InputError, match="not TOML"):
        open_run("seed = ")
    assert not (tmp_path / "run").exists()


def test_a_run_can_be_copied(run_stage, write_number, tmp_path):
    compute = write_number(1)
    run_stage(compute)
    shutil.copytree(tmp_path / "run", tmp_path / "copy", ignore=shutil.ignore_patterns(".lock"))
    with Run.open(tmp_path / "copy", RECIPE, "trans-encoder") as copy:
        assert copy.stage("a", config={}, compute=compute).reused


def test_setting_aside_goes_on_after_a_kill_and_then_replaces_what_was_there(open_run, tmp_path):
    run_folder = tmp_path / "run"

    def open_with(number):
        return open_run(f"seed = {number}", outputs=("model", "report.md"))

    def finish(number):
        with open_with(number) as run:
            run.finish({"number": number})
        (run_folder / "model").mkdir()
        for name in ("model/weights", "report.md"):
            (run_folder / name).write_text(str(number))

    def aside():
        return [(run_folder / "previous" / name).read_text() for name in ("model/weights", "report.md")]

    finish(1)
    (run_folder / "previous").mkdir()
    (run_folder / "model").rename(run_folder / "previous" / "model")  # killed after this
    finish(2)
    assert aside() == ["1", "1"]
    finish(3)
    assert aside() == ["2", "2"]
    assert (run_folder / "previous" / "recipe.toml").read_text() == "seed = 2"


def test_a_record_whose_result_was_changed_is_computed_again(open_run, write_number, caplog):
    with open_run() as run:
        folder = run.stage("one", config={}, compute=write_number(1)).folder
    record = folder / "stage.json"
    record.write_text(record.read_text().replace('"seconds": ', '"seconds": 8'))
    with open_run() as run:
        assert not run.stage("one", config={}, compute=write_number(1)).reused
    assert "stage.json has changed: its sha256 is not the recorded one" in caplog.text
