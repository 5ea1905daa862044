"""A paper's tables beside runs: every state, and the real file's rows."""

import importlib
import statistics
from pathlib import Path

import pytest

from transencoder.errors import InputError
from transencoder.recipes import list_recipes, load_recipe
from transencoder.runs.files import write_checked_json
from transencoder.tasks import SUITES

RESULTS = Path(__file__).parents[2] / "results"
SIMPLE = """
[suites]
both = ["a", "b"]

[[table]]
number = "1"
title = "both"
tests = ["a", "b"]
tolerance = 0.5
rows = [
    { row = "start", recipe = "m/x", form = "start", scores = [50.0, 60.0], average = 55.0 },
    { row = "near", recipe = "m/x", form = "bi", scores = [60.0, 70.0], average = 65.0 },
    { row = "off", recipe = "m/x", form = "cross", scores = [60.0, 70.0], average = 65.0 },
    { row = "second", recipe = "m/x", form = "bi", whose = 2, scores = [61.0, 71.0], average = 66.0 },
    { row = "all", recipe = "m/x", form = "bi", whose = "ensemble", scores = [62.0, 72.0], average = 67.0 },
    { row = "absent", recipe = "m/none", form = "bi", scores = [62.0, 72.0], average = 67.0 },
]

[[table]]
number = "2"
title = "columns of several recipes"
tests = ["both", "c"]
tolerance = 0.5
rows = [{ row = "several", recipe = "m/on-{test}", form = "bi", scores = [62.0, 72.0], average = 67.0 }]

[[table]]
number = "3"
title = "seeds"
tests = ["both"]
tolerance = 0.5
rows = [{ row = "seeds", recipe = "m/seeds", form = "bi", scores = [62.0], deviation = 0.2 }]

[[hours]]
recipe = "m/x"
hours = 1.25
gpus = 2

[[claim]]
where = "Table 8"
row = "MSE"
recipe = "m/none"
says = "copies"
"""


@pytest.fixture(scope="module")
def paper_tables():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(RESULTS.parent / "benchmarks")
        yield importlib.import_module("paper_tables")


@pytest.fixture
def page(tmp_path, result, paper_tables):
    """Write the expected file and runs, and give the page's lines by their first cell."""

    def write(expected, *runs):
        (tmp_path / "expected.toml").write_text(expected)
        for number, changes in enumerate(runs):
            folder = tmp_path / f"run-{number}"
            folder.mkdir()
            write_checked_json(folder / "result.json", result | changes)
        folders = [*(tmp_path / f"run-{number}" for number in range(len(runs))), tmp_path / "no-run"]
        page = paper_tables.paper_page(tmp_path / "expected.toml", folders, tmp_path / "page.md")
        lines, name = {}, ""
        for line in page.read_text().splitlines():
            name = "header" if line.startswith(("## ", "<details")) else name
            if line.startswith("| "):
                cells = [cell.strip() for cell in line.strip("|").split("|")]
                name = cells[0] or name
                lines.setdefault(name, []).append(cells[1:])
        return lines

    return write


def scores(a, b):
    return {"a": a, "b": b}


def test_each_row_has_its_state_and_its_runs(page):
    member = {"cycles": [], "best": {}, "dev": None, "analysis": None}
    run = {
        "recipe": "m/x",
        "seconds": 7200.0,
        "scores": {"start": scores(50.2, 60.2), "bi": scores(60.8, 70.8), "cross": scores(62.0, 72.0)},
        "members": [
            member | {"scores": {"bi": scores(1.0, 2.0)}},
            member | {"scores": {"bi": scores(61.0, 71.1)}},
        ],
        "ensemble": {"dev": None, "scores": {"bi": scores(62.0, 71.0)}},
    }
    lines = page(SIMPLE, run)
    assert lines["start"][1][:5] == ["ours", "50.20", "60.20", "55.20", "+0.20"]
    states = {"start": "OK", "near": "near", "off": "off", "second": "OK", "all": "OK"}
    assert {name: lines[name][-1][-2] for name in states} == states
    assert lines["near"][1][-1].endswith("run-0`")
    assert lines["absent"] == [["62.00", "72.00", "67.00", "`m/none`"]]
    assert lines["1: both"] == [["3", "1", "1", "0", "1"]]
    assert lines["seeds"] == [["62.00 ± 0.20", "`m/seeds`"]]
    assert lines["`m/x`"][0][:2] == ["1.25 on 2 GPUs", "2.00"]
    assert lines["Table 8: MSE"][0] == ["copies", "`m/none`"]


def test_columns_of_several_recipes_are_partly_run(page):
    lines = page(SIMPLE, {"recipe": "m/on-both", "scores": {"bi": scores(60.0, 64.0)}})
    assert lines["several"][1][1:-1] == ["62.00", "–", "–", "–", "partly"]


def test_several_runs_of_a_recipe_are_their_mean(page):
    runs = [{"recipe": "m/seeds", "scores": {"bi": scores(value, value)}} for value in (61.8, 62.0, 62.5)]
    ours = page(SIMPLE, *runs)["seeds"][1]
    assert ours[0] == f"ours ± {statistics.stdev([61.8, 62.0, 62.5]):.2f}"
    assert ours[1:4] == ["62.10", "+0.10", "OK"]


@pytest.mark.parametrize(("missing", "mark"), [({}, ""), ({"missing_rows": 1}, " ¹")])
def test_a_mean_over_runs_that_lack_a_score_is_not_given_and_has_no_mark(page, result, missing, mark):
    """A model that collapsed has no rank correlation; the mean of the others would hide it."""
    data = result["data"] | {"pairs": result["data"]["pairs"] | missing}
    found = (61.8, None, 62.5)
    runs = [{"recipe": "m/seeds", "data": data, "scores": {"bi": scores(value, value)}} for value in found]
    assert page(SIMPLE, *runs)["seeds"][1][1:4] == ["–", "–", f"partly{mark}"]


def test_a_run_as_the_released_code_stands_beside_the_honest_one(page):
    as_released = {"recipe": "m/x --parity --vary seed=1", "scores": {"bi": scores(60.0, 70.2)}}
    paper, released = page(SIMPLE, as_released)["near"]
    assert (paper[0], released[:6]) == ("paper", ["as released", "60.00", "70.20", "65.10", "+0.10", "OK"])


def test_both_ways_are_two_lines(page):
    runs = [{"recipe": name, "scores": {"bi": scores(60.0, 70.0)}} for name in ("m/x", "m/x --parity")]
    lines = page(SIMPLE, *runs)["near"]
    assert [line[0] for line in lines] == ["paper", "ours", "as released"]
    assert [line[-1][-6:-1] for line in lines[1:]] == ["run-0", "run-1"]


def test_where_a_runs_data_are_not_the_papers_its_numbers_are_marked(page, result, tmp_path):
    pairs = result["data"]["pairs"] | {"missing_rows": 13358}
    drawn = {
        "source": "glue/qqp (validation[1000:], 10000 rows drawn with seed 0)",
        "rows": 9,
        "fingerprint": "f",
        "metric": "spearman",
    }
    own = {"source": "glue/qqp (test)", "rows": 9, "fingerprint": "f", "metric": "spearman"}
    data = {"pairs": pairs, "dev": None, "tests": {"a": drawn, "b": own}}
    claim = '[[claim]]\nwhere = "Figure 5"\nrow = "few"\nrecipe = "m/x"\nsays = "worse"\ntest = "b"\n'
    found = {"start": scores(50.2, 60.2), "bi": scores(60.0, 70.0), "cross": scores(60.0, 70.0)}
    lines = page(SIMPLE + claim, {"recipe": "m/x", "seconds": 7200.0, "scores": found, "data": data})
    assert lines["near"][1][1:-1] == ["60.00 ¹ ²", "70.00 ²", "65.00 ¹ ²", "+0.00", "OK ¹ ²"]
    assert lines["start"][1][1:-1] == ["50.20 ¹", "60.20", "55.20 ¹", "+0.20", "OK ¹"], "a start learned no pairs"
    assert lines["near"][0][1:4] == ["60.00", "70.00", "65.00"], "the paper's"
    assert lines["`m/x`"][0][1] == "2.00 ¹"
    assert lines["Figure 5: few"][0][1:3] == ["70.00 ¹", "70.00 ¹"]
    of_pairs = "13,358 of the paper's training pairs are missing: they are not on the hub."
    of_rows = "a: not the paper's test rows, but glue/qqp (validation[1000:], 10000 rows drawn with seed 0)."
    notes = [line for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith("- ")]
    assert notes == [f"- ¹ {of_rows}", f"- ² {of_pairs}", f"- ¹ {of_pairs}", f"- ¹ {of_pairs}"]


def test_runs_of_no_recipe_stand_for_nothing(page, result):
    result.pop("recipe", None)
    assert page(SIMPLE, {})["near"] == [["60.00", "70.00", "65.00", "`m/x`"]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[50.0, 60.0]", "[50.0]", "table 1, start: 1 scores for 2 tests"),
        ('form = "start", ', "", "form"),
        ("[[table]]", "[[table]", "not TOML"),
        ("[50.0, 60.0]", "50.0", "expected.toml: .*take results/expected.toml as an example"),
        ("[50.0, 60.0]", "['a', 60.0]", "scores are .*; they must be numbers"),
        ("m/on-{test}", "m/on-{tset}", "nothing but {test} may stand in braces"),
    ],
)
def test_what_is_not_to_be_read_is_refused(page, old, new, message):
    with pytest.raises(InputError, match=message):
        page(SIMPLE.replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "n_rows", "numbers"),
    [
        ("expected.toml", 156, "1 4 5 6 7 9 11 12 13 14"),
        ("expected-sct.toml", 120, "2 3 4 6 7"),
        ("expected-dvbert.toml", 30, "1 2"),
        ("expected-simcse.toml", 10, "1 2 3"),
    ],
)
def test_the_papers_rows_name_recipes_and_their_averages_are_of_their_columns(name, n_rows, numbers, paper_tables):
    expected, recipes = paper_tables.read_expected(RESULTS / name), list_recipes()
    misprinted = {"3+4 SimCSE-large ensemble", "Base, DCLR", "Base, DiffCSE", "Base, SCT"}
    for table in expected.table:
        for row in table.rows:
            assert all(row.recipe.replace("{test}", test) in recipes for test in table.tests), row
            if row.average is not None and row.row not in misprinted:
                assert statistics.mean(row.scores) == pytest.approx(row.average, abs=0.0151), row
    assert all(each.recipe in recipes for each in (*expected.hours, *expected.claim))
    for claim in expected.claim:
        assert set(expected.suites.get(claim.test, [claim.test])) & {*_tests(recipes[claim.recipe])}, claim
    assert sum(len(table.rows) for table in expected.table) == n_rows
    assert {table.number for table in expected.table} == set(numbers.split())


@pytest.mark.parametrize(
    ("expected", "published"),
    [("expected", "paper"), ("expected-sct", "sct"), ("expected-dvbert", "dvbert"), ("expected-simcse", "simcse")],
)
def test_the_published_page_is_what_the_script_writes(expected, published, paper_tables, tmp_path):
    """No run of a recipe at the paper's size is published yet."""
    page = paper_tables.paper_page(RESULTS / f"{expected}.toml", [], tmp_path / "paper.md")
    assert page.read_bytes() == (RESULTS / f"{published}.md").read_bytes()


def _tests(recipe):
    return [name for test in load_recipe(recipe).tests for name in SUITES.get(test, [test])]
