"""Reading result.json, whole or not; bootstrap intervals of a run, from what its stages keep."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from transencoder.errors import RunError
from transencoder.evidence import Evidence, drawn_intervals, draws_of
from transencoder.results import read_result
from transencoder.runs.files import read_checked_json, sync_files, write_checked_json


def test_a_result_is_read_as_it_was_written(result, make_run):
    assert json.dumps(read_result(make_run("a", result))) == json.dumps(result)


def test_an_unfinished_run_is_named(make_run, tmp_path):
    with pytest.raises(RunError, match="is not finished.*run the same command again"):
        read_result(make_run("a", None))
    with pytest.raises(RunError, match="no run folder at"):
        read_result(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"method": "trans-', "cannot be read"),
        ('{"method": "trans-encoder"}', "has no sha256 of its content.*Run the same command again"),
        ("[]", "should be dict"),
        ("[" * 100_000, "cannot be read"),
        ('{"format": 2, "sha256": "", "config": ' + '{"a": ' * 300 + "1" + "}" * 301, "has changed"),
    ],
)
def test_a_damaged_result_is_refused(text, message, make_run):
    folder = make_run("a", None)
    (folder / "result.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=message):
        read_result(folder)


def test_a_result_that_lacks_fields_is_refused(result, make_run):
    del result["config"], result["about"]
    del result["intervals"], result["data"]["tests"]["stsb"]["metric"]
    message = "lacks about, config, data.tests.stsb.metric, intervals; it was not written by this version: run the same"
    with pytest.raises(RunError, match=message):
        read_result(make_run("a", result))


@pytest.fixture
def evidence(kept_run):
    folder = kept_run()
    return Evidence(folder, read_result(folder))


def test_gains_are_of_the_same_resamples(evidence):
    """The bi-encoder says what the start says: its gain is exactly 0, however wide the scores' own intervals are."""
    found = drawn_intervals(evidence)
    assert list(found) == ["sts12", "stsb", "average"]
    assert found["sts12"]["gains"]["bi"] == (0.0, 0.0)
    low, high = found["sts12"]["scores"]["bi"]
    assert high - low > 5
    assert found["sts12"]["gains"]["cross"][0] > 0


def test_an_average_is_narrower_than_its_tests(evidence):
    found = {name: row["scores"]["start"] for name, row in drawn_intervals(evidence).items()}
    widths = {name: high - low for name, (low, high) in found.items()}
    assert widths["average"] < min(widths["sts12"], widths["stsb"])


def test_the_same_seed_gives_the_same_interval(evidence):
    assert drawn_intervals(evidence) == drawn_intervals(evidence)


def test_without_gold_there_is_no_interval(evidence):
    (gold,) = Path(evidence.folder).glob("stages/gold-*/sts12.npz")
    gold.unlink()
    assert list(drawn_intervals(evidence)) == ["stsb"]


def test_damaged_gold_counts_as_absent_and_a_stage_without_its_record_too(evidence, caplog):
    (gold,) = Path(evidence.folder).glob("stages/gold-*/sts12.npz")
    gold.write_bytes(b"PK no archive")
    assert list(drawn_intervals(evidence)) == ["stsb"]
    assert "sts12.npz has 13 bytes instead of" in caplog.text
    gold.with_name("stage.json").unlink()
    assert list(drawn_intervals(evidence)) == []
    assert "stage.json is missing" in caplog.text
    caplog.clear()
    shutil.rmtree(gold.parent)  # as `runs clean --everything` does
    assert list(drawn_intervals(evidence)) == [] and not caplog.text


def save_scores(path, scores):
    """Write scores as the stage itself would have."""
    np.save(path, scores)
    files = sync_files(path.parent, [each.name for each in path.parent.glob("*.npy")])
    record = path.with_name("stage.json")
    write_checked_json(record, read_checked_json(record) | {"outputs": files})


def test_scores_of_other_pairs_than_the_gold_are_not_taken(evidence):
    (scores,) = Path(evidence.folder).glob("stages/scores-cross-*/sts12.npy")
    save_scores(scores, np.zeros(59, np.float32))
    assert draws_of([(evidence, "cross")], "sts12", "spearman") is None


def test_a_model_that_says_the_same_of_all_pairs_has_no_interval(evidence):
    (scores,) = Path(evidence.folder).glob("stages/scores-cross-*/sts12.npy")
    save_scores(scores, np.full(60, 0.5, np.float32))
    found = drawn_intervals(evidence)
    assert "cross" not in found["sts12"]["scores"] and "cross" not in found["average"]["gains"]
    assert "bi" in found["sts12"]["scores"]


def test_another_stages_record_is_no_record(evidence, caplog):
    """Was: a report left out, without a word, what a stage's replaced record did not name."""
    (gold,) = Path(evidence.folder).glob("stages/gold-*/stage.json")
    (other,) = Path(evidence.folder).glob("stages/scores-bi-*/stage.json")
    shutil.copy(other, gold)
    assert draws_of([(evidence, "bi")], "sts12", "spearman") is None
    assert "belongs to another stage" in caplog.text
