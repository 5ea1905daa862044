"""The page that sets runs beside each other, and the published results: each number beside its run."""

import copy
import re
from pathlib import Path

import pytest

from transencoder.errors import InputError, RunError
from transencoder.evidence import Evidence
from transencoder.report.comparison import results_page, score_tables, write_comparison
from transencoder.results import read_result
from transencoder.runs.files import read_checked_json, write_checked_json


def tables_of(folders):
    return {title: dict(rows) for title, rows in score_tables([Evidence(each, read_result(each)) for each in folders])}


@pytest.fixture
def runs(kept_run):
    return [kept_run("a", seed=0), kept_run("b", seed=0)]


def change(folder: Path, **changes):
    """Change a run's record; `config.bi.epochs` and so on by `config__bi__epochs`."""
    record = read_checked_json(folder / "result.json")
    for name, value in changes.items():
        *parents, last = name.split("__")
        place = record
        for parent in parents:
            place = place[parent]
        place[last] = value
    write_checked_json(folder / "result.json", record)


def differences(runs, folder: Path) -> dict[str, list[str]]:
    """What the page shows to differ, by the title of its table."""
    page = write_comparison(runs, folder / "page.html").read_text(encoding="utf-8")
    tables = re.findall(r'<table class="differing">.*?</table>', page, re.DOTALL)
    titles = [re.findall(r'<caption class="unseen">(.*?)</caption>', table)[0] for table in tables]
    rows = [re.findall(r'<tr><th scope="row"><bdi>(.*?)</bdi>', table) for table in tables]
    return dict(zip(titles, rows, strict=True))


def test_scores_are_set_against_the_first_runs(runs):
    change(runs[1], scores__bi={"sts12": 73.0, "stsb": 80.254})
    tables = tables_of(runs)
    assert list(tables) == ["Base model", "Bi-encoder", "Cross-encoder"]
    rows = tables["Bi-encoder"]
    assert list(rows) == ["sts12", "stsb", "average"] and rows["average"][1].difference == pytest.approx(0.75)
    assert [cell.is_best for cell in rows["sts12"]] == [False, True]
    assert rows["sts12"][1].difference == 1.5
    assert rows["sts12"][1].interval == (0.0, 0.0)  # the same scores are kept
    assert rows["stsb"][1].difference is None and not any(cell.is_best for cell in rows["stsb"])


def test_other_data_under_the_same_name_are_not_compared(runs, tmp_path):
    change(runs[1], data__tests__stsb__fingerprint="other", scores__cross={"sts12": 90.0, "stsb": 90.0})
    rows = tables_of(runs)["Cross-encoder"]
    assert rows["sts12"][1].difference == 21.0
    assert rows["stsb"][1].difference is None and not rows["stsb"][1].is_best
    assert rows["average"][1].difference is None
    assert differences(runs, tmp_path)["Data that differ"] == ["test stsb"]


def test_other_metrics_of_the_same_data_are_not_compared(result, make_run):
    other = copy.deepcopy(result)
    name = next(iter(other["data"]["tests"]))
    other["data"]["tests"][name]["metric"] = "roc_auc"
    runs = [Evidence(make_run(each, of), of) for each, of in (("a", result), ("b", other))]
    (_, rows), *_ = score_tables(runs)
    cells = dict(rows)[name]
    assert cells[1].difference is None and not cells[1].is_best


def test_only_settings_that_differ_are_shown(runs, tmp_path):
    change(runs[1], config__bi__epochs=5, config__output="elsewhere", config__labelled=None)
    assert differences(runs, tmp_path) == {"Settings that differ": ["bi.epochs"]}
    assert "<td><bdi>3</bdi></td><td><bdi>5</bdi></td>" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.draws
def test_the_page_names_the_runs_and_draws_them_together(runs, tmp_path):
    page = write_comparison(runs, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h1>2 runs compared</h1>" in page and "<bdi>a</bdi>" in page and "<bdi>b</bdi>" in page
    assert "Bi-encoder, dev by cycle" in page and "run 2: from" in page
    assert sorted(path.stem for path in (tmp_path / "page-plots").iterdir()) == [
        "dev-bi-by-cycle",
        "dev-bi-by-step",
        "dev-cross-by-cycle",
        "dev-cross-by-step",
    ]


def test_runs_of_equal_names_are_told_apart(make_run, result, tmp_path):
    first, second = make_run("x/run", result), make_run("y/run", result)
    page = write_comparison([first, second], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<bdi>x/run</bdi>" in page and "<bdi>y/run</bdi>" in page


def test_runs_without_tests_are_compared_on_dev(bare_result, make_run, tmp_path):
    folders = [make_run(name, bare_result) for name in ("a", "b")]
    assert "None of the runs was measured." in write_comparison(folders, tmp_path / "page.html").read_text()
    for folder, dev in zip(folders, (80.0, 82.0), strict=True):
        change(folder, dev={"start": 79.0, "bi": dev, "cross": None})
    assert [(name, cells[1].difference) for name, cells in tables_of(folders)["Bi-encoder"].items()] == [("dev", 2.0)]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("page.md", "must end in .html"),
        ("nowhere/page.html", "there is no folder"),
        ("folder.html", "is a folder"),
    ],
)
def test_a_wrong_output_is_refused_before_anything_is_read(tmp_path, output, said):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InputError, match=said):
        write_comparison(["no-run", "no-other"], tmp_path / output)


def test_runs_with_nothing_in_common_are_told_so(runs, tmp_path, caplog):
    write_comparison(runs, tmp_path / "page.html")
    assert "in common" not in caplog.text
    change(runs[1], data__tests={}, data__dev=None)
    write_comparison(runs, tmp_path / "page.html")
    assert "no test and no dev set in common: their scores cannot be compared" in caplog.text


def test_runs_that_cannot_be_compared_are_refused(runs, make_run, tmp_path):
    output = tmp_path / "page.html"
    with pytest.raises(InputError, match="one run is given"):
        write_comparison(runs[:1], output)
    with pytest.raises(InputError, match="is given twice"):
        write_comparison([runs[0], f"{runs[0]}/../a"], output)
    with pytest.raises(RunError, match="not finished"):
        write_comparison([runs[0], make_run("unfinished", None)], output)
    assert not output.exists()


@pytest.fixture
def published(tmp_path):
    """Write the page of some runs, in a project's `results`, and give its text."""
    return lambda *folders: results_page(folders, tmp_path / "results" / "README.md").read_text(encoding="utf-8")


def test_each_number_stands_beside_its_run(result, make_run, published):
    other = copy.deepcopy(result)
    other["seed"], other["environment"] = 7, {"device": "NVIDIA H100"}
    text = published(make_run("a", result), make_run("b", other))
    assert text.count("\n## ") == 1 and "## trans-encoder/minilm-sts" in text
    assert "| run | form | dev | sts12 | stsb | average | seed | commit | device | minutes |" in text
    assert "| `runs/a` | base model | 81.80 | 70.00 | 80.00 | 75.00 | 2021 | 0123abc | cpu | 6.1 |" in text
    assert "| `runs/a` | bi-encoder | 85.00 | 71.50 | 80.25 | 75.88 | 2021 | 0123abc | cpu | 6.1 |" in text
    assert "| `runs/b` | cross-encoder | 83.00 | 69.00 | 82.00 | 75.50 | 7 | unknown | NVIDIA H100 | 6.1 |" in text
    assert "- `runs/a`: The training pairs contain sentences of the test sets" in text


def test_the_start_as_it_is_has_a_row_of_its_own(result, make_run, published):
    result["scores"]["start_as_is"] = {"sts12": 70.5, "stsb": 80.5}
    result["environment"]["commit"] = f"{'a' * 40}-dirty + {'b' * 40}"
    text = published(make_run("a", result))
    origin = f"2021 | {'a' * 10}-dirty + {'b' * 10} | cpu | 6.1 |"
    assert f"| `runs/a` | base model as it is | – | 70.50 | 80.50 | 75.50 | {origin}" in text
    assert "The base model scores 75.00 in the run's precision and length, 75.50 as it is" in text


def test_a_language_model_has_a_row(result, make_run, published):
    """Was: the page of a run of `mlm` had the base model alone."""
    result["best"], result["dev"] = {"mlm": {"path": "model"}}, None
    result["scores"] = {"start": {"sts12": 60.0, "stsb": 60.0}, "mlm": {"sts12": 70.0, "stsb": 70.0}}
    assert "| `runs/a` | masked language model | – | 70.00 | 70.00 | 70.00 |" in published(make_run("a", result))


def test_recipes_have_tables_of_their_own(result, make_run, published):
    unnamed = copy.deepcopy(result)
    del unnamed["recipe"]
    unnamed["scores"], unnamed["dev"] = {}, None
    text = published(make_run("a", result), make_run("own", unnamed))
    assert "## trans-encoder/minilm-sts" in text and "## own" in text
    assert "| `runs/own` | base model | – | 2021 |" in text


def test_runs_without_a_result_are_listed_as_such_and_no_path_of_the_machine_is_published(
    result, make_run, published, tmp_path
):
    (make_run("c", result) / "result.json").write_text("{", encoding="utf-8")
    text = published(make_run("a", result), make_run("b", None), *(tmp_path / "runs" / name for name in "cd"))
    assert "`runs/b`: not finished; last event `stage_started` at 2026-11-21T09:00:00 (stage fit/cycle-1/cross)" in text
    assert "`runs/c`: its result.json cannot be read" in text and "`runs/d`: no such folder" in text
    outside = results_page([tmp_path / "runs" / "a"], tmp_path / "project" / "results" / "README.md").read_text("utf-8")
    for page in (text, outside):
        assert "/home/somebody" not in page and str(tmp_path) not in page and "/secret" not in page
        assert "`runs/a`" in page


def test_no_run_at_all_gives_a_page_that_says_what_it_is(published):
    assert published().startswith("# Results")
