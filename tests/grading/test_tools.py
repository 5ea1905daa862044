"""Files of other tools: what is written is read back, with the grades that people gave there."""

import csv
import io
import json

import pytest

from transencoder.errors import InputError
from transencoder.grading import SCALES, grades_from, interface_for, tasks_for

PAIRS = [("plain", "text"), ('a "quoted", text', "two\r\nlines"), ("=1+1", "ünï\u202ecode")]
GRADED, BINARY = SCALES["graded"], SCALES["binary"]


def test_a_spreadsheet_is_filled_in(tmp_path):
    text = tasks_for("csv", PAIRS)
    rows = list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
    assert rows[0] == ["sentence1", "sentence2", "score"]
    assert text.startswith("\ufeff") and rows[3][0] == "'=1+1", "spreadsheets read UTF-8 and compute nothing"
    rows[1][2], rows[3][2] = "4", " 2.5 "
    path = tmp_path / "graded.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows(rows)
    assert grades_from(path, GRADED) == {PAIRS[0]: 4.0, PAIRS[2]: 2.5}, "what has no grade is left out"


@pytest.mark.parametrize("value", [{"choices": ["4"]}, {"rating": 4}])
def test_label_studios_annotations_are_averaged(value, tmp_path):
    tasks = json.loads(tasks_for("label-studio", PAIRS))
    answer = {"from_name": "score", "to_name": "sentence1", "type": "choices", "value": value}
    other = answer | {"value": {"choices": ["1"]}}
    tasks[0]["annotations"] = [{"result": [answer]}, {"result": [other]}]
    tasks[1]["annotations"] = [{"result": [answer], "was_cancelled": True}]
    comment = {"from_name": "remark", "to_name": "sentence1", "type": "textarea", "value": {"text": ["hm"]}}
    tasks[2]["annotations"] = [{"result": [comment]}]
    path = tmp_path / "export.json"
    path.write_text(json.dumps(tasks))
    assert grades_from(path, GRADED) == {PAIRS[0]: 2.5}


def test_label_studios_short_form_has_a_row_for_each_annotation(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "score": score} for score in ("3", {"rating": 4})]
    path = tmp_path / "min.JSON"
    path.write_text(json.dumps([*rows, {"sentence1": "c", "sentence2": "d"}]))
    assert grades_from(path, GRADED) == {("a", "b"): 3.5}


def test_of_yes_and_no_the_more_frequent_counts(tmp_path, caplog):
    path = tmp_path / "min.json"
    given = {"a": [1, 0, 1], "b": [0, 1], "c": [0]}
    path.write_text(
        json.dumps([{"sentence1": text, "sentence2": "x", "score": each} for text in given for each in given[text]])
    )
    assert grades_from(path, BINARY) == {("a", "x"): 1.0, ("c", "x"): 0.0}
    assert "1 pair with as many of one grade as of the other" in caplog.text
    path.write_text(json.dumps([{"sentence1": "a", "sentence2": "x", "score": 0.5}]))
    with pytest.raises(InputError, match="the grade is 0.5; it must be 0 or 1"):
        grades_from(path, BINARY)


def test_semicolons_and_decimal_commas_of_a_spreadsheet(tmp_path):
    path = tmp_path / "graded.csv"
    path.write_text("sentence1;sentence2;score\na, b;c;3,5\nd;e;\n")
    assert grades_from(path, GRADED) == {("a, b", "c"): 3.5}


def test_a_long_text_is_read(tmp_path):
    path = tmp_path / "graded.csv"
    path.write_text(f"sentence1,sentence2,score\n{'x' * 200_000},b,1\n")
    assert list(grades_from(path, GRADED).values()) == [1.0]


def test_argillas_submitted_responses_are_averaged(tmp_path):
    records = json.loads(tasks_for("argilla", PAIRS))
    assert records[0]["fields"] == {"sentence1": "plain", "sentence2": "text"}
    records[0]["responses"] = {"score": [{"value": 5, "user_id": "x"}, {"value": 2, "user_id": "y"}]}
    records[1]["responses"] = {"score": [{"value": 5, "user_id": "x", "status": "discarded"}]}
    flat = {"sentence1": "c", "sentence2": "d", "score.responses": [1, 3], "score.responses.status": ["submitted"] * 2}
    path = tmp_path / "records.json"
    path.write_text(json.dumps([*records, flat]))
    assert grades_from(path, GRADED) == {PAIRS[0]: 3.5, ("c", "d"): 2.0}


def test_what_tools_are_told_names_every_grade():
    assert interface_for("label-studio", GRADED).count("<Choice value=") == 6
    assert "values=[0, 1])" in interface_for("argilla", BINARY)
    assert interface_for("csv", GRADED) == ""


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "sentence1,sentence2,score\na,b,6\n", r"a\.csv:2: the grade is '6'; it must be a number from 0 to 5"),
        ("a.csv", "sentence1,sentence2,score\na,b,good\n", r"a\.csv:2: the grade is 'good'"),
        ("a.csv", "sentence1,sentence2,score\na,b,nan\n", r"a\.csv:2: the grade is 'nan'"),
        ("a.csv", "first,second\na,b\n", r"a\.csv:1: no column score; give a \.csv"),
        ("a.tsv", "text\tscore\na\t1\n", r"a\.tsv:2: no sentence1 and sentence2"),
        ("a.json", "[{", r"a\.json cannot be read \(.*\); give a \.csv"),
        ("a.json", "[3]", r"a\.json, entry 1: no sentence1"),
        ("a.json", '[{"sentence1": 1, "sentence2": 2}]', r"entry 1: no sentence1"),
        ("a.json", '[{"fields": {"sentence1": "a", "sentence2": "b"}, "responses": 3}]', None),
        ("a.json", '[{"data": {"sentence1": "a", "sentence2": "b"}, "annotations": [[], {"result": "x"}]}]', None),
        ("a.json", '[{"sentence1": "a", "sentence2": "b", "score": {"choices": []}}]', r"entry 1: the grade is \[\]"),
        ("a.json", '[{"sentence1": "a", "sentence2": "b", "score": 1' + 400 * "0" + "}]", r"entry 1: the grade is 100"),
        ("a.json", '[{"sentence1": "a", "sentence2": "b", "score": 1' + 5000 * "0" + "}]", r"cannot be read"),
        ("a.json", 100_000 * "[", r"cannot be read"),
        ("a.json", '[{"sentence1": "a", "sentence2": "b", "score.responses": 3, "score.responses.status": 4}]', None),
    ],
)
def test_damaged_files_are_refused_with_the_place(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    if message is None:
        assert grades_from(tmp_path / name, GRADED) == {}
        return
    with pytest.raises(InputError, match=message):
        grades_from(tmp_path / name, GRADED)


def test_an_absent_or_binary_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        grades_from(tmp_path / "absent.csv", GRADED)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(InputError, match="cannot be read"):
        grades_from(tmp_path / "binary.csv", GRADED)
