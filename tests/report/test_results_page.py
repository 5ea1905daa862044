"""The published page: one table per recipe, each number beside its run, runs without a result listed."""

import copy
from collections.abc import Callable
from pathlib import Path

from transencoder.records import Result
from transencoder.report.comparison import results_page

MakeRun = Callable[[str, Result | None], Path]


def test_each_number_stands_beside_its_run(result: Result, make_run: MakeRun, tmp_path: Path) -> None:
    other = copy.deepcopy(result)
    other["seed"], other["environment"] = 7, {"device": "NVIDIA H100"}
    path = results_page([make_run("a", result), make_run("b", other)], tmp_path / "results" / "README.md")
    text = path.read_text(encoding="utf-8")
    assert text.count("\n## ") == 1 and "## trans-encoder/minilm-sts" in text
    assert "| run | form | dev | sts12 | stsb | average | seed | commit | device | minutes |" in text
    assert "| `runs/a` | base model | 81.80 | 70.00 | 80.00 | 75.00 | 2021 | 0123abc | cpu | 6.1 |" in text
    assert "| `runs/a` | bi-encoder | 85.00 | 71.50 | 80.25 | 75.88 | 2021 | 0123abc | cpu | 6.1 |" in text
    assert "| `runs/b` | cross-encoder | 83.00 | 69.00 | 82.00 | 75.50 | 7 | unknown | NVIDIA H100 | 6.1 |" in text
    assert "- `runs/a`: The training pairs contain sentences of the test sets" in text


def test_the_start_as_it_is_has_a_row_of_its_own(result: Result, make_run: MakeRun, tmp_path: Path) -> None:
    result["scores"]["start_as_is"] = {"sts12": 70.5, "stsb": 80.5}
    result["environment"]["commit"] = f"{'a' * 40}-dirty + {'b' * 40}"
    text = results_page([make_run("a", result)], tmp_path / "results" / "README.md").read_text(encoding="utf-8")
    origin = f"2021 | {'a' * 10}-dirty + {'b' * 10} | cpu | 6.1 |"
    assert f"| `runs/a` | base model as it is | – | 70.50 | 80.50 | 75.50 | {origin}" in text
    assert "The base model scores 75.00 in the run's precision and length, 75.50 as it is" in text


def test_recipes_have_tables_of_their_own(result: Result, make_run: MakeRun, tmp_path: Path) -> None:
    unnamed = copy.deepcopy(result)
    del unnamed["recipe"]
    unnamed["scores"], unnamed["dev"] = {}, None
    path = results_page([make_run("a", result), make_run("own", unnamed)], tmp_path / "results" / "README.md")
    text = path.read_text(encoding="utf-8")
    assert "## trans-encoder/minilm-sts" in text and "## own" in text
    assert "| `runs/own` | base model | – | 2021 |" in text


def test_runs_without_a_result_are_listed_as_such(result: Result, make_run: MakeRun, tmp_path: Path) -> None:
    unfinished, damaged = make_run("b", None), make_run("c", result)
    (damaged / "result.json").write_text("{", encoding="utf-8")
    folders = [make_run("a", result), unfinished, damaged, tmp_path / "runs" / "d"]
    text = results_page(folders, tmp_path / "results" / "README.md").read_text(encoding="utf-8")
    assert "`runs/b`: not finished; last event `stage_started` at 2026-11-21T09:00:00 (stage fit/cycle-1/cross)" in text
    assert "`runs/c`: its result.json cannot be read" in text and "`runs/d`: no such folder" in text


def test_no_path_of_the_machine_is_published(result: Result, make_run: MakeRun, tmp_path: Path) -> None:
    page = results_page([make_run("a", result), make_run("b", None)], tmp_path / "project" / "results" / "README.md")
    text = page.read_text(encoding="utf-8")
    assert "/home/somebody" not in text and str(tmp_path) not in text and "/secret" not in text
    assert "`runs/a`" in text


def test_no_run_at_all_gives_a_page_that_says_what_it_is(tmp_path: Path) -> None:
    assert results_page([], tmp_path / "README.md").read_text(encoding="utf-8").startswith("# Results")
