"""The score table: rows, average, gains over the start, and what stands where nothing was measured."""

import io

import pytest
import yaml
from rich.console import Console

from transencoder.report.card import model_card
from transencoder.report.comparison import results_page
from transencoder.report.plots import curve_plots
from transencoder.report.scores import footnotes_of, score_cells, score_header, score_rows, summary_table
from transencoder.report.verdict import notes_of, verdict_of


def shown(result):
    console = Console(file=io.StringIO(), width=100)
    console.print(summary_table(result))
    return console.file.getvalue()


def table(result):
    return [score_cells(row) for row in score_rows(result)]


def test_one_row_per_test_set_and_the_average(result):
    assert score_header(result) == ("", "base model", "bi", "gain", "cross", "gain")
    assert table(result) == [
        ("sts12", "70.00", "71.50", "+1.50", "69.00", "-1.00"),
        ("stsb", "80.00", "80.25", "+0.25", "82.00", "+2.00"),
        ("average", "75.00", "75.88", "+0.88", "75.50", "+0.50"),
    ]
    text = shown(result)
    assert all(part in text for part in ("Spearman", "sts12", "71.50", "+1.50", "-1.00", "average", "75.88"))


def test_a_gain_is_of_unrounded_numbers_and_one_test_set_has_no_average(result):
    result["scores"] = {"start": {"stsb": 80.004}, "bi": {"stsb": 80.016}}
    assert table(result) == [("stsb", "80.00", "80.02", "+0.01", "–", "–")]


def test_an_average_over_fewer_sets_is_not_given(result):
    del result["scores"]["bi"]["stsb"]
    average = score_rows(result)[-1]
    assert average.trained["bi"] is None and average.start == 75.0


@pytest.mark.parametrize("scores", [{}, {"start": {}, "bi": {}, "cross": {}}])
def test_without_test_sets_the_dev_set_is_shown(scores, result):
    result["scores"] = scores
    (row,) = score_rows(result)
    assert (row.name, row.start, row.trained) == ("dev", 81.8, {"bi": 85.0, "cross": 83.0})


def test_the_terminal_says_when_nothing_was_measured(bare_result):
    assert "nothing was measured" in shown(bare_result)


def test_an_undefined_metric_is_shown_as_nan(result):
    result["scores"]["cross"] = {"sts12": float("nan"), "stsb": 82.0}
    assert table(result)[0][4:] == ("nan", "nan")
    assert "nan" in shown(result)


def test_gains_are_counted_from_the_better_start(result):
    result["scores"]["start_as_is"] = {"sts12": 69.0, "stsb": 82.0}
    assert [row.start for row in score_rows(result)] == [69.0, 82.0, 75.5]
    result["scores"]["start_as_is"] = {"sts12": 71.0, "stsb": 78.0}
    assert [row.start for row in score_rows(result)] == [70.0, 80.0, 75.0]


@pytest.fixture
def of_two_metrics(result):
    """The same run with two re-ranking tests more, on which the start as it is is better."""
    for number, name in enumerate(("askubuntu", "scidocs")):
        result["data"]["tests"][name] = {"source": name, "rows": 60, "fingerprint": "ef" * 32, "metric": "map"}
        for form, value in {"start": 50.0, "bi": 54.0, "cross": 49.0}.items():
            result["scores"][form][name] = value + 10 * number
    result["scores"]["start_as_is"] = {"sts12": 69.0, "stsb": 79.0, "askubuntu": 51.0, "scidocs": 61.0}
    return result


def test_an_average_is_over_tests_of_one_metric(of_two_metrics):
    assert [cells[:3] for cells in table(of_two_metrics)] == [
        ("sts12 (spearman)", "70.00", "71.50"),
        ("stsb (spearman)", "80.00", "80.25"),
        ("average (spearman)", "75.00", "75.88"),
        ("askubuntu (map)", "51.00", "54.00"),
        ("scidocs (map)", "61.00", "64.00"),
        ("average (map)", "56.00", "59.00"),
    ]
    text = shown(of_two_metrics)
    assert "mean average precision x 100 (map)" in " ".join(text.split()) and "average (map)" in text


def test_accuracy_measures_no_cross_encoder(result):
    test = {"source": "sicke", "rows": 9, "fingerprint": "f", "metric": "accuracy"}
    result["data"]["tests"] = {"sicke": test}
    result["scores"] = {"start": {"sicke": 75.0}, "bi": {"sicke": 77.0}, "cross": {"sicke": None}}
    result["intervals"] = {}
    assert verdict_of(result).startswith("Use it: on the tests the base model has 75.00; gains over it: the bi-encoder")
    notes = "\n".join(notes_of(result))
    assert "the tests by accuracy do not measure it" in notes and "the same score" not in notes
    result["scores"]["bi"]["sicke"] = None
    assert "The bi-encoder gave every pair of a set the same score" in "\n".join(notes_of(result))


def test_notes_speak_of_each_metric(of_two_metrics):
    notes = "\n".join([*footnotes_of(of_two_metrics), *notes_of(of_two_metrics)])
    assert "The base model scores 75.00 (spearman) in the run's precision and length, 74.00 as it is" in notes
    assert "The base model scores 55.00 (map) in the run's precision and length, 56.00 as it is" in notes
    assert "The cross-encoder is worse than the base model on the tests (map) (54.00 against 56.00)" in notes
    assert "on the tests (spearman)" not in notes


def test_the_card_the_page_and_the_curves_mark_metrics_too(of_two_metrics, make_run, tmp_path):
    card = model_card(of_two_metrics, "bi")
    assert "Spearman's rank correlation x 100 (spearman) / mean average precision x 100 (map)." in card
    listed = yaml.safe_load(card.split("---")[1])["model-index"][0]["results"]
    assert [each["dataset"]["name"] for each in listed] == ["sts12", "stsb", "askubuntu", "scidocs"]
    assert "| average (map) | 56.00 | 59.00 | +3.00 |" in card and "| dev (spearman) | 81.80 |" in card
    page = results_page([make_run("a", of_two_metrics)], tmp_path / "results" / "README.md").read_text("utf-8")
    assert (
        "| run | form | dev (spearman) | sts12 (spearman) | stsb (spearman) | average (spearman) | askubuntu (map) "
        "| scidocs (map) | average (map) | seed |"
    ) in page
    assert "| `runs/a` | bi-encoder | 85.00 | 71.50 | 80.25 | 75.88 | 54.00 | 64.00 | 59.00 | 2021 |" in page
    of_two_metrics["analysis"] = {"bi": [(1, 200, {"sts12": 70.0, "askubuntu": 50.0})]}
    assert list(curve_plots(of_two_metrics))[-1].y.label == "Spearman × 100 / MAP × 100"


def test_a_dev_set_of_another_metric_than_the_tests_is_marked(result):
    result["metric"] = "map"
    for record in result["data"]["tests"].values():
        record["metric"] = "spearman"
    assert table(result)[0][0] == "sts12" and "Spearman" in shown(result)
    card = model_card(result, "bi")
    assert "| sts12 (spearman) | 70.00 |" in card and "| dev (map) | 81.80 |" in card
