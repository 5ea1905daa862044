"""What is done with finished runs, and which recipes there are to run."""

import json

import pytest

from transencoder.runs import Run


def compute(folder):
    (folder / "labels.bin").write_bytes(b"x" * 2000)
    return {"rows": 1}


@pytest.fixture
def folder(tmp_path):
    """A run with one stage that is done and not used by its result."""
    with Run.open(tmp_path / "runs" / "mine", 'pairs = "a.tsv"\n', "trans-encoder") as run:
        run.stage("labels", config={"policy": "clip"}, inputs=[], compute=compute)
        run.finish({"stages": []})
    return tmp_path / "runs" / "mine"


def test_runs_are_listed_with_their_state_and_disk_use(done, folder):
    out = done("runs", "list")
    assert all(word in out for word in ("runs/mine", "trans-encoder", "finished", "kB", "1 runs"))


def test_a_dry_run_of_clean_removes_nothing_and_clean_does(done, folder):
    assert "would be freed" in done("runs", "clean", folder, "--dry-run")
    assert list(folder.glob("stages/*"))
    assert "kB freed" in done("runs", "clean", folder)
    assert not list(folder.glob("stages/*"))


def test_trouble_with_a_run_folder_is_code_3(run, folder, tmp_path):
    assert run("runs", "list", tmp_path / "nowhere")[0] == 3
    assert run("runs", "clean", tmp_path)[0] == 3
    code, _, err = run("report", tmp_path / "nowhere")
    assert code == 3 and "no run folder" in err


def test_results_lists_runs_without_a_result_too(done, folder, tmp_path):
    (folder / "result.json").write_text(json.dumps({}))
    page = tmp_path / "results" / "README.md"
    assert done("results", folder, "--output", page) == f"{page}\n"
    assert "runs/mine" in page.read_text()


def test_a_report_is_written_again_or_several_runs_are_compared_on_one_page(done, refused, tmp_path, monkeypatch):
    monkeypatch.setattr("transencoder.report.run_report.write_report", lambda folder: tmp_path / folder / "report.html")
    assert done("report", "a") == f"{tmp_path}/a/report.html\n"
    monkeypatch.setattr(
        "transencoder.report.comparison.write_comparison", lambda runs, output: f"{' '.join(runs)} on {output}"
    )
    assert done("report", "a", "b", "--output", "page.html") == "a b on page.html\n"
    assert done("report", "a", "b") == "a b on comparison.html\n"
    refused("--output is for several runs", "report", "a", "--output", "page.html")


def test_recipes_are_listed_and_shown(done):
    assert "trans-encoder/minilm-sts " in done("recipes", "list")
    out = done("recipes", "show", "minilm-sts")
    assert out.startswith("# all-MiniLM-L6-v2") and 'start = "minilm"' in out
    assert "eval_steps = 200" in done("recipes", "show", "minilm-sts", "--full")


def test_a_page_that_cannot_be_written_is_refused(refused, folder, tmp_path):
    said = "cannot be written (Is a directory). Choose another --output."
    refused(said, "results", folder, "--output", tmp_path)
