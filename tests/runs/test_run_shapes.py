"""Records of another shape, whatever took their place: listed, cleaned and resumed, or refused in one line."""

import json
import shutil

import pytest

from transencoder.errors import RunError
from transencoder.runs import clean_run, list_runs, read_log
from transencoder.runs.files import DamagedError, check_shape, system_error, write_checked_json

SHAPES = {
    "nothing": b"",
    "null": b"null",
    "a number": b"3",
    "a list": b"[[]]",
    "an empty object": b"{}",
    "objects of other types": b'{"method": [], "stages": {}, "key": 1, "outputs": 3, "time": 0, "event": null}',
    "another record": b'{"format": 2, "sha256": "0"}',
    "deep nesting": b"[" * 100_000,
    "no UTF-8": b"\xff\xfe",
    "a folder": None,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["stage.json", "environment.json", "result.json", "recipe.toml", "log.jsonl"])
def test_a_record_of_another_shape_stops_nobody_with_a_traceback_and_loses_no_stage(
    name, shape, open_run, write_number
):
    compute = write_number(1)

    def work():
        with open_run() as run:
            record = run.stage("a", config={}, compute=compute)
            run.finish({})
            return record

    folder = work().folder.parents[1]
    (path,) = folder.rglob(name)
    path.unlink()
    if SHAPES[shape] is None:
        path.mkdir()
    else:
        path.write_bytes(SHAPES[shape])
    list_runs(folder.parent)
    try:
        assert clean_run(folder, dry_run=True).names == ()
    except RunError as error:
        assert "which of its stages are used is not known" in str(error)
    try:
        work()
    except IsADirectoryError as error:
        assert "a folder stands where a file belongs: move it away" in str(system_error(error))
        shutil.rmtree(path)
        work()
    assert compute.calls == (2 if name == "stage.json" else 1)
    assert [run.state for run in list_runs(folder)] == ["finished"]


def test_a_damaged_environment_names_no_method(open_run):
    """Was: with a changed letter the list showed another method, without a word."""
    with open_run() as run:
        run.finish({})
    (method,) = {each.method for each in list_runs(run.folder)}
    path = run.folder / "environment.json"
    path.write_text(path.read_text().replace(f'"{method}"', f'"{method[:-1]}!"'))
    assert [each.method for each in list_runs(run.folder)] == [None]


@pytest.mark.parametrize("name", ["environment.json", "recipe.toml", "log.jsonl"])
def test_stages_are_not_cleaned_away_because_a_record_is_lost(name, open_run, write_number):
    with open_run() as run:
        done = run.stage("a", config={}, compute=write_number(1))
    (run.folder / name).write_bytes(b"\xff")
    with pytest.raises(RunError, match=r"run its command again, or remove all \(--everything\)"):
        clean_run(run.folder)
    assert done.folder.exists()
    assert len(clean_run(run.folder, everything=True).names) == 1


def test_lines_of_a_log_that_are_no_events_are_left_out(open_run, run_stage):
    open_run().close()
    odd = [
        *SHAPES.values(),
        b'{"time": "yesterday", "event": "x"}',
        b'{"time": "0001-01-01", "event": "x", "key": [1]}',
    ]
    with open(run_folder := open_run().folder / "log.jsonl", "ab") as log:
        log.write(b"\n".join(filter(None, odd)) + b"\n")
    assert [entry["event"] for entry in read_log(run_folder.parent)] == ["run_opened", "run_opened"]


def test_a_stage_is_done_again_where_its_record_has_no_hash_or_another_shape(run_stage, write_number, caplog):
    compute = write_number(1)
    path = run_stage(compute).folder / "stage.json"
    record = json.loads(path.read_text())
    del record["sha256"]
    path.write_text(json.dumps(record))
    run_stage(compute)
    assert compute.calls == 2 and "stage.json is damaged: it has no sha256 of its content" in caplog.text
    for n_calls, changes in (
        (3, {"result": None}),
        (4, {"outputs": {"weights.bin": {}}}),
        (5, {"seconds": ""}),
    ):
        write_checked_json(path, record | changes)
        run_stage(compute)
        assert compute.calls == n_calls


def test_a_shape_says_where_it_is_not_kept():
    with pytest.raises(DamagedError, match="^a: x: 2 is 'b', and should be int$"):
        check_shape({"x": [1, "b"]}, dict[str, list[int]], "a")
    check_shape({"x": [1, 2]}, dict[str, list[int]], "a")
