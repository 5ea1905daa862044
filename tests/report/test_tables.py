"""The score table: rows, average, gains over the start, and what stands where nothing was measured."""

import io

from rich.console import Console

from transencoder.report import summary_table
from transencoder.report.result import Result
from transencoder.report.tables import score_rows, score_table


def shown(result: Result) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(summary_table(result))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split("|")]


def test_one_row_per_test_set_and_the_average(result: Result) -> None:
    lines = [cells(line) for line in score_table(result)]
    assert lines[0] == ["start", "bi", "gain", "cross", "gain"]
    assert lines[2] == ["sts12", "70.00", "71.50", "+1.50", "69.00", "-1.00"]
    assert lines[3] == ["stsb", "80.00", "80.25", "+0.25", "82.00", "+2.00"]
    assert lines[4] == ["average", "75.00", "75.88", "+0.88", "75.50", "+0.50"]
    assert len(lines) == 5


def test_a_gain_is_of_unrounded_numbers(result: Result) -> None:
    result["scores"] = {"start": {"stsb": 80.004}, "bi": {"stsb": 80.016}}
    assert cells(score_table(result)[2]) == ["stsb", "80.00", "80.02", "+0.01", "–", "–"]


def test_one_test_set_has_no_average(result: Result) -> None:
    result["scores"] = {form: {"stsb": scores["stsb"]} for form, scores in result["scores"].items()}
    assert [row.name for row in score_rows(result)] == ["stsb"]


def test_an_average_over_fewer_sets_is_not_given(result: Result) -> None:
    del result["scores"]["bi"]["stsb"]
    average = score_rows(result)[-1]
    assert average.trained["bi"] is None and average.start == 75.0


def test_without_test_sets_the_dev_set_is_shown(result: Result) -> None:
    result["scores"] = {}
    assert [(row.name, row.start, row.trained) for row in score_rows(result)] == [
        ("dev", 81.8, {"bi": 85.0, "cross": 83.0})
    ]
    result["scores"] = {"start": {}, "bi": {}, "cross": {}}
    assert [row.name for row in score_rows(result)] == ["dev"]


def test_the_terminal_shows_the_same(result: Result) -> None:
    text = shown(result)
    assert "Spearman" in text
    for part in ("sts12", "71.50", "+1.50", "-1.00", "average", "75.88"):
        assert part in text


def test_the_terminal_says_when_nothing_was_measured(bare_result: Result) -> None:
    assert "nothing was measured" in shown(bare_result)


def test_an_undefined_metric_is_shown_as_nan(result: Result) -> None:
    result["scores"]["cross"] = {"sts12": float("nan"), "stsb": 82.0}
    assert cells(score_table(result)[2])[4:] == ["nan", "nan"]
    assert "nan" in shown(result)


def test_gains_are_counted_from_the_better_start(result: Result) -> None:
    result["scores"]["start_as_is"] = {"sts12": 69.0, "stsb": 82.0}
    assert [row.start for row in score_rows(result)] == [69.0, 82.0, 75.5]
    result["scores"]["start_as_is"] = {"sts12": 71.0, "stsb": 78.0}
    assert [row.start for row in score_rows(result)] == [70.0, 80.0, 75.0]
    assert score_rows(result)[-1].name == "average"
