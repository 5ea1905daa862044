"""Grades -> metrics, intervals and a verdict."""

import dataclasses

import numpy as np
import pytest

from transencoder.errors import InputError
from transencoder.grading import SCALES, choose, judge
from transencoder.metrics import spearman
from transencoder.results import Evidence, read_result


@pytest.fixture(scope="module")
def sample(finished_run):
    return Evidence(finished_run, read_result(finished_run)).sample()


def test_models_are_measured_on_the_graded_pairs(finished_run, sample):
    pairs = choose(finished_run, 40)
    grades = {pair: float(i % 6) for i, pair in enumerate(pairs)}
    judged = judge(finished_run, grades, SCALES["graded"])
    rows = [sample.texts.index(pair) for pair in pairs]
    for model, score in judged.scores.items():
        assert score == pytest.approx(spearman(list(grades.values()), sample.scores[model][rows]))
    assert list(judged.scores) == ["start", "bi", "cross"]
    assert judged.draws.shape == (3, 1000)
    assert "on your grades the base model has" in judged.verdict.lower()


@pytest.mark.parametrize(("model", "verdict"), [("bi", "use only the bi-encoder"), ("start", "keep the base model")])
def test_the_model_that_a_person_agrees_with_is_advised(model, verdict, finished_run, sample, monkeypatch):
    """Planted: the base model's scores say nothing of the others'."""
    rng = np.random.default_rng(0)
    planted = {other: rng.permutation(len(sample.rows)).astype(float) for other in ("start", "bi", "cross")}
    sample = dataclasses.replace(sample, scores=planted)
    monkeypatch.setattr("transencoder.results.Evidence.sample", lambda _: sample)
    grades = {sample.texts[i]: float(sample.scores[model][i]) for i in range(len(sample.rows))}
    top = max(grades.values())
    judged = judge(finished_run, {pair: round(5 * grade / top) for pair, grade in grades.items()}, SCALES["graded"])
    assert judged.verdict.lower().startswith(verdict)
    assert judged.scores[model] > 95


def test_yes_and_no_are_measured_by_the_area_under_the_curve(finished_run):
    pairs = choose(finished_run, 20)
    judged = judge(finished_run, {pair: float(i % 2) for i, pair in enumerate(pairs)}, SCALES["binary"])
    assert judged.result["data"]["tests"]["your grades"]["metric"] == "roc_auc"
    assert all(0 <= score <= 100 for score in judged.scores.values())


def test_grades_that_say_nothing_are_refused(finished_run):
    pairs = choose(finished_run, 20)
    with pytest.raises(InputError, match="20 grades with 1 different value cannot be compared"):
        judge(finished_run, dict.fromkeys(pairs, 3.0), SCALES["graded"])
    with pytest.raises(
        InputError, match=r"1 graded pair of 2 are not among those of .*'strange'.*transencoder evaluate"
    ):
        judge(finished_run, {pairs[0]: 1.0, ("strange", "pair"): 2.0}, SCALES["graded"])
