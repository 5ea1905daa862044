"""Grades -> metrics, intervals and a verdict."""

import dataclasses
import shutil

import numpy as np
import pytest

from transencoder.errors import InputError
from transencoder.grading import SCALES, ScoredPairs, choose, judge, with_grades
from transencoder.metrics import spearman
from transencoder.report.run_report import write_report
from transencoder.report.verdict import verdict_of


@pytest.fixture(scope="module")
def scored(finished_run):
    return ScoredPairs.of_run(finished_run)


def test_models_are_measured_on_the_graded_pairs(scored):
    pairs = choose(scored)[:40]
    grades = {pair: float(i % 6) for i, pair in enumerate(pairs)}
    judged = judge(scored, grades, SCALES["graded"])
    rows = [scored.sample.texts.index(pair) for pair in pairs]
    for model, score in judged.scores.items():
        assert score == pytest.approx(spearman(list(grades.values()), scored.sample.scores[model][rows]))
    assert list(judged.scores) == ["start", "bi", "cross"]
    assert judged.draws.shape == (3, 1000)
    assert "on your grades the base model has" in verdict_of(judged.result).lower()


@pytest.mark.parametrize(("model", "verdict"), [("bi", "use only the bi-encoder"), ("start", "keep the base model")])
def test_the_model_that_a_person_agrees_with_is_advised(model, verdict, scored):
    """Planted: what one model says has nothing to do with what another says."""
    rng, n = np.random.default_rng(0), len(scored.sample.rows)
    planted = {other: rng.permutation(n).astype(float) for other in ("start", "bi", "cross")}
    planted_pairs = dataclasses.replace(scored, sample=dataclasses.replace(scored.sample, scores=planted))
    grades = {text: round(5 * planted[model][row] / n) for row, text in enumerate(scored.sample.texts)}
    judged = judge(planted_pairs, grades, SCALES["graded"])
    assert verdict_of(judged.result).lower().startswith(verdict)
    assert judged.scores[model] > 95


def test_yes_and_no_are_measured_by_the_area_under_the_curve(scored):
    pairs = choose(scored)[:20]
    judged = judge(scored, {pair: float(i % 2) for i, pair in enumerate(pairs)}, SCALES["binary"])
    assert judged.result["data"]["tests"]["your grades"]["metric"] == "roc_auc"
    assert all(0 <= score <= 100 for score in judged.scores.values())


def test_grades_that_say_nothing_are_refused(scored):
    pairs = choose(scored)[:20]
    with pytest.raises(InputError, match="20 grades with 1 different value cannot be compared"):
        judge(scored, dict.fromkeys(pairs, 3.0), SCALES["graded"])
    with pytest.raises(InputError, match=r"1 graded pair, such as .*'strange'.*transencoder evaluate"):
        judge(scored, {pairs[0]: 1.0, ("strange", "pair"): 2.0}, SCALES["graded"])


@pytest.fixture
def graded_run(scored, tmp_path):
    """The run with forty of its pairs graded, and with one pair of an earlier training."""
    folder = shutil.copytree(scored.folder, tmp_path / "run")
    lines = [f"{first}\t{second}\t{i % 6}" for i, (first, second) in enumerate(choose(scored)[:40])]
    rows = ["sentence1\tsentence2\tscore", *lines, "old\tpair\t3"]
    (folder / "dev.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def test_the_report_of_a_run_without_labels_says_what_the_grades_say(graded_run):
    page = write_report(graded_run).read_text(encoding="utf-8")
    assert "on your grades the base model has" in page and "is unknown without labels" not in page
    assert "drawn where the models disagree" in page and "40 rows of <code><bdi>your grades" in page
    (graded_run / "dev.tsv").unlink()
    page = write_report(graded_run).read_text(encoding="utf-8")
    assert "your grades" not in page


def test_a_report_leaves_out_grades_that_cannot_be_used(graded_run, caplog):
    (graded_run / "dev.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t7\n")
    page = write_report(graded_run).read_text(encoding="utf-8")
    assert "your grades" not in page
    assert "leaves out the grades" in caplog.text and "dev.tsv:2: the grade is '7'" in caplog.text


def test_grades_do_not_take_the_place_of_a_dev_set(graded_run, scored):
    measured = {**scored.result, "dev": {"start": 50.0, "bi": 60.0, "cross": 40.0}}
    assert with_grades(graded_run, measured) is measured
