"""Reading result.json and log.jsonl, whole or not."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from transencoder.errors import RunError
from transencoder.records import Result
from transencoder.results import read_result

MakeRun = Callable[[str, Result | None], Path]


def test_a_result_is_read_as_it_was_written(result: Result, make_run: MakeRun) -> None:
    read = read_result(make_run("a", result))
    assert json.dumps(read) == json.dumps(result)
    assert read["cycles"][1]["cross"]["dev"] == 84.0


def test_an_unfinished_run_is_named(make_run: MakeRun, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not finished.*run the same command again"):
        read_result(make_run("a", None))
    with pytest.raises(RunError, match="no run folder at"):
        read_result(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"method": "trans-', "is damaged"),
        ('{"method": "trans-encoder"}', "lacks analysis, best, config"),
        ("[]", "lacks"),
    ],
)
def test_a_damaged_result_is_refused(text: str, message: str, result: Result, make_run: MakeRun) -> None:
    folder = make_run("a", result)
    (folder / "result.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=message):
        read_result(folder)
