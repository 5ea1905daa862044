import json

import pytest

from transencoder.runs import Run

TOML = 'pairs = "a.tsv"\n'


def compute(folder):
    (folder / "labels.bin").write_bytes(b"x" * 2000)
    return {"rows": 1}


@pytest.fixture
def folder(tmp_path):
    """A run with one stage that is done and not used by its result."""
    with Run.open(tmp_path / "runs" / "mine", TOML, "trans-encoder") as run:
        run.stage("labels", config={"policy": "clip"}, inputs=[], compute=compute)
        run.finish({"stages": []})
    return tmp_path / "runs" / "mine"


def test_runs_are_listed_with_their_state_and_disk_use(run, folder):
    code, out, _ = run("runs", "list")
    assert code == 0
    assert all(word in out for word in ("runs/mine", "trans-encoder", "finished", "kB", "1 runs"))


def test_a_dry_run_of_clean_removes_nothing_and_clean_does(run, folder):
    code, out, _ = run("runs", "clean", folder, "--dry-run")
    assert (code, "would be freed" in out) == (0, True)
    assert list(folder.glob("stages/*"))
    code, out, _ = run("runs", "clean", folder)
    assert (code, "kB freed" in out) == (0, True)
    assert not list(folder.glob("stages/*"))


def test_trouble_with_a_run_folder_is_code_3(run, folder, tmp_path):
    assert run("runs", "list", tmp_path / "nowhere")[0] == 3
    assert run("runs", "clean", tmp_path)[0] == 3
    code, _, err = run("report", tmp_path / "nowhere")
    assert code == 3
    assert "no run folder" in err


def test_results_lists_runs_without_a_result_too(run, folder, tmp_path):
    (folder / "result.json").write_text(json.dumps({}))
    code, out, _ = run("results", folder, "--output", tmp_path / "results" / "README.md")
    assert (code, out) == (0, f"{tmp_path / 'results' / 'README.md'}\n")
    assert "runs/mine" in (tmp_path / "results" / "README.md").read_text()


def test_a_report_is_written_again(run, tmp_path, monkeypatch):
    monkeypatch.setattr("transencoder.report.run_report.write_report", lambda folder: tmp_path / folder / "report.html")
    assert run("report", "a")[:2] == (0, f"{tmp_path}/a/report.html\n")


def test_several_runs_are_compared_on_one_page(run, monkeypatch):
    monkeypatch.setattr(
        "transencoder.report.comparison.write_comparison", lambda runs, output: f"{' '.join(runs)} on {output}"
    )
    assert run("report", "a", "b", "--output", "page.html")[:2] == (0, "a b on page.html\n")
    assert run("report", "a", "b")[:2] == (0, "a b on comparison.html\n")
    code, _, err = run("report", "a", "--output", "page.html")
    assert (code, "--output is for several runs" in err) == (2, True)


def test_recipes_are_listed_and_shown(run):
    code, out, _ = run("recipes", "list")
    assert code == 0
    assert "trans-encoder/minilm-sts " in out
    code, out, _ = run("recipes", "show", "minilm-sts")
    assert out.startswith("# all-MiniLM-L6-v2")
    assert 'start = "minilm"' in out
    assert "eval_steps = 200" in run("recipes", "show", "minilm-sts", "--full")[1]


def test_a_page_that_cannot_be_written_is_refused(run, folder, tmp_path):
    code, out, err = run("results", folder, "--output", tmp_path)
    assert (code, out) == (2, "")
    assert "cannot be written (Is a directory). Choose another --output." in err
