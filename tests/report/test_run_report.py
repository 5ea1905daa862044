"""report.md and the curves of full, partial and unfinished runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from transencoder.errors import RunError
from transencoder.records import Result
from transencoder.report.plots import curve_plots
from transencoder.report.run_report import model_card, report_text, write_report
from transencoder.report.verdict import notes_of

MakeRun = Callable[[str, Result | None], Path]


def markdown(folder: Path) -> str:
    write_report(folder)
    return (folder / "report.md").read_text(encoding="utf-8")


def test_the_report_says_what_was_done_and_what_came_of_it(result: Result, make_run: MakeRun) -> None:
    folder = make_run("a", result)
    assert write_report(folder) == folder / "report.html"
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert text.startswith("# trans-encoder/minilm-sts\n")
    assert "started from `sentence-transformers/all-MiniLM-L6-v2`" in text
    assert "cycles 2, bi.learning_rate 5e-05, bi.batch_size 128, bi.epochs 3" in text and "seed 2021" in text
    assert "| sts12 | 70.00 | 71.50 | +1.50 | 69.00 | -1.00 |" in text
    assert "| cycle 1 | **83.00** | 84.00 |" in text and "| cycle 2 | 84.00 | **85.00** |" in text
    assert "| labels/cycle-1/bi | 12.3 s | reused |" in text and "| whole run | 6.1 min |  |" in text
    assert "37,077 rows of `pairs/sts-sickr`, fingerprint `abababababab`" in text
    assert "transencoder recipes run trans-encoder/minilm-sts" in text and "`0123abc`" in text
    assert "(transductive)" in text and "3 rows with the same sentence twice" in text
    assert "![Dev by cycle](plots/dev-by-cycle.png)" in text
    assert sorted(file.name for file in folder.iterdir()) == [
        "log.jsonl",
        "plots",
        "report.html",
        "report.md",
        "result.json",
    ]


def test_a_run_with_neither_dev_nor_tests_reads_well(bare_result: Result, make_run: MakeRun) -> None:
    folder = make_run("a", bare_result)
    (folder / "curves.png").write_bytes(b"of an earlier version")
    (folder / "plots").mkdir()
    text = markdown(folder)
    assert "Nothing was measured" in text and "The run had no dev set." in text
    assert "the last checkpoint of the last cycle was kept" in text
    assert "- dev: none" in text and "- test: none" in text and "`recipe.toml` has every default" in text
    assert "transductive" not in text and "None" not in text and "![" not in text
    assert not (folder / "curves.png").exists() and not (folder / "plots").exists()


def test_the_runs_own_notes_are_said_too(bare_result: Result, make_run: MakeRun) -> None:
    bare_result["notes"] = ["Targets may lie outside [0, 1]."]
    text = markdown(make_run("a", bare_result))
    assert "There was no dev set" in text and "- Targets may lie outside [0, 1]." in text


def test_an_undefined_metric_is_a_dash_and_a_note(result: Result, make_run: MakeRun) -> None:
    result["scores"]["cross"]["sts12"] = None
    text = markdown(make_run("a", result))
    assert "The cross-encoder gave every pair of a set the same score" in text
    assert "| sts12 | 70.00 | 71.50 | +1.50 | – | – |" in text


def test_an_inductive_run_says_so(result: Result, make_run: MakeRun) -> None:
    pairs = result["data"]["pairs"]
    pairs["transductive"], pairs["excluded_rows"], pairs["missing_rows"] = False, 9000, 13358
    text = markdown(make_run("a", result))
    assert "9,000 pairs that contain a sentence of a test set were left out" in text
    assert "13,358 of the paper's training pairs are missing" in text
    assert "(transductive)" not in text


def test_curves_are_as_they_were_recorded(result: Result) -> None:
    plots = {plot.name: plot for plot in curve_plots(result)}
    assert list(plots) == ["dev-by-cycle", "dev-cross", "dev-bi"]
    bi = plots["dev-by-cycle"].marks[1]
    assert bi.points == [(0.0, 81.8), (1.0, 84.0), (2.0, 85.0)]  # the start before the first cycle
    assert "bi-encoder: from 81.8 to 85, at best 85." in plots["dev-by-cycle"].about
    assert plots["dev-bi"].marks[1].points == [(200.0, 83.0), (400.0, 85.0), (600.0, 84.5)]


def test_what_chose_in_devs_stead_is_drawn(result: Result) -> None:
    for n, cycle in enumerate(result["cycles"], 1):
        found = [(200, {"self_retrieval": 10.0 * n, "uniformity": 1.0}), (400, {"self_retrieval": 20.0 * n})]
        cycle["bi"] |= {"curve": [], "dev": None, "chosen_by": "self_retrieval", "criteria": found, "step": 400}
    result["criteria"] = {"start": {"self_retrieval": 15.0}}
    plots = {plot.name: plot for plot in curve_plots(result)}
    assert list(plots) == ["dev-by-cycle", "dev-cross", "criterion-bi"]
    assert plots["criterion-bi"].title == "Bi-encoder, self retrieval on held-out pairs by step"
    *lines, start = plots["criterion-bi"].marks
    assert start.value == 15.0
    assert [line.points for line in lines] == [
        [(200.0, 10.0), (400.0, 20.0)],
        [(200.0, 20.0), (400.0, 40.0)],
    ]


def test_what_held_out_pairs_say_is_set_beside_the_start(result: Result) -> None:
    found = {"self_retrieval": 90.0, "alignment": -0.5}
    result["criteria"] = {"start": found, "bi": found | {"self_retrieval": 91.5}, "cross": {"start_agreement": None}}
    result["data"]["pairs"]["held_out_rows"] = 1000
    result["selection"] = {
        "criteria": {"bi": "self_retrieval", "cross": "last"},
        "left_out_regrets": {"bi": 1.0, "cross": 2.0},
        "last_regrets": {"bi": 3.0, "cross": 4.0},
        "runs": 8,
        "starts": 4,
    }
    section = report_text(result).partition("## Without labels")[2].partition("## ")[0]
    assert "On 1,000 held-out pairs." in section
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert lines[0] == "|  | base model | bi-encoder | cross-encoder | what it says |"
    assert lines[2].startswith("| self retrieval | 90.00 | 91.50 | – |")
    assert lines[2].endswith("find it among all; chose the bi-encoders |")
    assert lines[3].startswith("| alignment | -0.50 | -0.50 | – |") and len(lines) == 4
    assert "Without labels" not in report_text(result | {"criteria": {"start": found}})  # dev chose: nothing to compare


def test_test_curves_are_drawn_when_they_were_recorded(result: Result) -> None:
    result["analysis"] = {
        "bi": [
            (1, 200, {"sts12": 70.0, "stsb": 80.0}),
            (1, 400, {"sts12": 71.0, "stsb": 81.0}),
            (2, 200, {"sts12": 71.5, "stsb": 82.0}),
        ]
    }
    plots = [plot for plot in curve_plots(result) if plot.name.startswith("tests-")]
    assert [plot.name for plot in plots] == ["tests-bi"]
    assert plots[0].marks[0].points == [(200, 70.0), (400, 71.0), (600, 71.5)]


def test_undefined_points_are_left_out_of_the_plot(result: Result) -> None:
    for cycle in result["cycles"]:
        for part in (cycle["bi"], cycle["cross"]):
            part["curve"] = [(200, None), (400, float("nan"))]
    assert [plot.name for plot in curve_plots(result)] == ["dev-by-cycle"]


def test_an_unfinished_run_has_no_report(make_run: MakeRun) -> None:
    folder = make_run("a", None)
    with pytest.raises(RunError, match="not finished"):
        write_report(folder)
    assert not (folder / "report.md").exists()


def test_notes_tell_of_skipped_rows_and_of_scores_in_both_orders(result):
    assert not any("bad rows" in note or "both orders" in note for note in notes_of(result))
    result["data"]["pairs"]["bad_rows"] = 1200
    result["config"] |= {"label_both_orders": True, "is_symmetric": True}
    text = report_text(result)
    assert "1,200 bad rows of the training pairs were skipped; bad-rows.tsv in" in text
    assert "mean of its scores for both orders" in text and "mean of its scores for both orders" in model_card(
        result, "cross"
    )
    result["config"]["is_symmetric"] = False
    assert not any("both orders" in note for note in notes_of(result))


@pytest.mark.parametrize(
    ("own", "files"),
    [
        ({}, "bad-rows.tsv in"),
        ({"extra": {}}, "bad-rows.tsv or bad-extra-rows.tsv in"),
        ({"documents": {}}, "bad-rows.tsv or bad-documents.tsv in"),
    ],
)
def test_bad_rows_lie_in_the_files_that_were_read(own, files, result):
    """DeCLUTR's own text is a setting of the name documents, and no second file."""
    result["config"]["documents"] = "documents.txt"
    result["data"]["pairs"] |= {"bad_rows": 3} | own
    assert f"3 bad rows of the training pairs were skipped; {files}" in " ".join(notes_of(result))


def test_notes_say_which_model_is_worse_than_its_start(result):
    """On the tests where there are some, else on dev."""
    result["scores"]["bi"] = {name: value - 1.5 for name, value in result["scores"]["start"].items()}
    (note,) = [note for note in notes_of(result) if "worse" in note]
    found = "The bi-encoder is worse than the base model on the tests (73.50 against 75.00)"
    assert note == f"{found}: keep the base model in its place."
    result["scores"] = {}
    result["dev"] = {"start": 80.0, "bi": 81.0, "cross": 79.0}
    (note,) = [note for note in notes_of(result) if "worse" in note]
    assert note.startswith("The cross-encoder is worse than the base model on dev (79.00 against 80.00)")


def test_a_start_whose_embeddings_lie_close_together_looks_weak(result):
    result["criteria"] = {"start": {"uniformity": 1.5, "view_preference": 50.0}}
    (note,) = [note for note in notes_of(result) if "looks weak" in note]
    assert "uniformity -1.50" in note and "train simcse" in note
    for criteria in ({"start": {"uniformity": 2.5}}, {"start": {"uniformity": None}}):
        assert not any("looks weak" in note for note in notes_of(result | {"criteria": criteria}))


@pytest.mark.parametrize(
    ("before", "after", "is_said"),
    [(-1.04, -0.16, True), (-1.04, -0.6, False), (-0.5, -0.3, False), (None, -0.1, False)],
)
def test_an_encoder_whose_embeddings_became_all_alike_seems_to_have_collapsed(before, after, is_said, result):
    result["uniformity"] = {"start": before, "bi": after}
    found = [note for note in notes_of(result) if "collapsed" in note]
    assert bool(found) == is_said
    assert not is_said or "(uniformity -0.16, before -1.04; even would be -4)" in found[0]
