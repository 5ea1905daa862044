import json
import subprocess
from multiprocessing import get_context

import numpy as np

from transencoder.runs.folder import read_environment
from transencoder.runs.log import changes, describe_environment, read_log, source_commit, write_log


def test_a_line_is_readable_at_once(open_run):
    with open_run() as run:
        run.log("dev", step=3, score=0.5, changed={"torch": ("2.12", "2.13")})
        last = json.loads((run.folder / "log.jsonl").read_text().splitlines()[-1])
    assert last.pop("time").startswith("20")
    written = {"step": 3, "score": 0.5, "changed": {"torch": ["2.12", "2.13"]}}
    assert last == {"event": "dev"} | written


def test_a_line_that_a_crash_cut_off_spoils_no_other(open_run):
    with open_run() as run:
        run.log("whole")
    with open(run.folder / "log.jsonl", "a") as file:
        file.write('{"time": "2026-01-01T00:0')
    assert read_log(run.folder)[-1]["event"] == "whole"
    with open_run() as run:
        run.log("after")
    events = [entry["event"] for entry in read_log(run.folder)]
    assert events == ["run_opened", "whole", "run_opened", "after"]


def test_workers_write_a_line_each(tmp_path):
    """Was: while one was writing, its line looked cut off to the other, which ended it once more."""
    processes = [get_context("fork").Process(target=write_lines, args=(tmp_path,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["line"] * 2000


def write_lines(folder):
    for number in range(1000):
        write_log(folder, "line", {"text": "x" * 100 * (number % 9)})


def test_a_run_without_a_log_has_no_entries(tmp_path):
    assert read_log(tmp_path) == []


def test_the_environment_is_written_and_has_what_matters(open_run):
    with open_run(details={"device": "cpu"}) as run:
        written = read_environment(run.folder)
    assert written == run.environment
    assert written["method"] == "trans-encoder" and written["details"] == {"device": "cpu"}
    assert {"torch", "transformers", "transencoder", "scipy"} <= written["versions"].keys()
    assert written["versions"]["numpy"] == np.__version__
    assert {"time", "python", "platform", "cpu_count", "threads", "git"} <= written.keys()


def test_stages_of_another_environment_are_reused_with_a_warning(
    run_stage, write_number, monkeypatch, caplog, tmp_path
):
    compute = write_number(1)
    run_stage(compute)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert run_stage(compute).reused
    assert "threads.OMP_NUM_THREADS" in caplog.text and "-> 7" in caplog.text
    assert "environment_changed" in [entry["event"] for entry in read_log(tmp_path / "run")]


def test_changes_names_what_differs():
    before, after = describe_environment(), describe_environment()
    assert changes(before, after) == {}
    after["versions"] = {**after["versions"], "torch": "9"}
    assert changes(before, after) == {"versions.torch": [before["versions"]["torch"], "9"]}


def test_the_commit_of_a_checkout(tmp_path):
    assert source_commit(tmp_path) is None
    (tmp_path / "src" / "transencoder").mkdir(parents=True)
    (tmp_path / "src" / "transencoder" / "x.py").touch()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert source_commit(tmp_path) is None  # no commit yet
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "x"], check=True)
    described = source_commit(tmp_path)
    assert len(described["commit"]) == 40 and described["is_changed"] is False
    (tmp_path / "src" / "transencoder" / "x.py").write_text("x")
    assert source_commit(tmp_path)["is_changed"] is True
