"""Grades -> metrics, intervals and a verdict."""

import dataclasses

import numpy as np
import pytest

from transencoder.errors import InputError
from transencoder.grading import SCALES, ScoredPairs, choose, judge
from transencoder.metrics import spearman


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
    assert "on the graded pairs the base model has" in judged.verdict.lower()


@pytest.mark.parametrize(("model", "verdict"), [("bi", "use only the bi-encoder"), ("start", "keep the base model")])
def test_the_model_that_a_person_agrees_with_is_advised(model, verdict, scored):
    """Planted: what one model says has nothing to do with what another says."""
    rng, n = np.random.default_rng(0), len(scored.sample.rows)
    planted = {other: rng.permutation(n).astype(float) for other in ("start", "bi", "cross")}
    planted_pairs = dataclasses.replace(scored, sample=dataclasses.replace(scored.sample, scores=planted))
    grades = {text: round(5 * planted[model][row] / n) for row, text in enumerate(scored.sample.texts)}
    judged = judge(planted_pairs, grades, SCALES["graded"])
    assert judged.verdict.lower().startswith(verdict)
    assert judged.scores[model] > 95


def test_yes_and_no_are_measured_by_the_area_under_the_curve(scored):
    pairs = choose(scored)[:20]
    judged = judge(scored, {pair: float(i % 2) for i, pair in enumerate(pairs)}, SCALES["binary"])
    assert judged.result["data"]["tests"]["graded pairs"]["metric"] == "roc_auc"
    assert all(0 <= score <= 100 for score in judged.scores.values())


def test_grades_that_say_nothing_are_refused(scored):
    pairs = choose(scored)[:20]
    with pytest.raises(InputError, match="20 grades with 1 different value cannot be compared"):
        judge(scored, dict.fromkeys(pairs, 3.0), SCALES["graded"])
    with pytest.raises(InputError, match=r"1 graded pair, such as .*'strange'.*transencoder evaluate"):
        judge(scored, {pairs[0]: 1.0, ("strange", "pair"): 2.0}, SCALES["graded"])


def test_a_model_that_scores_all_pairs_the_same_is_not_advised(scored):
    same = scored.sample.scores | {"bi": np.zeros(len(scored.sample.rows))}
    collapsed = dataclasses.replace(scored, sample=dataclasses.replace(scored.sample, scores=same))
    judged = judge(collapsed, {pair: float(i % 6) for i, pair in enumerate(choose(scored)[:20])}, SCALES["graded"])
    assert np.isnan(judged.scores["bi"]) and judged.result["scores"]["bi"] == {"graded pairs": None}
    assert "nan" not in judged.verdict and not judged.verdict.lower().startswith(("use them", "use only the bi"))
