"""What a run says is to be done with its models."""

import pytest

from transencoder.report.run_report import report_text
from transencoder.report.verdict import notes_of, verdict_of


def shifted(result, **by):
    """The start's scores and so much more for each form."""
    start = result["scores"]["start"]
    for form, points in by.items():
        result["scores"][form] = {name: value + points for name, value in start.items()}
    return result


@pytest.mark.parametrize(
    ("bi", "cross", "advice", "sentence"),
    [
        (
            1.5,
            0.5,
            "use it",
            "Use them: on the tests the base model has 75.00, the bi-encoder +1.50 and the cross-encoder +0.50.",
        ),
        (1.5, -0.5, "use only the bi-encoder", "Use only the bi-encoder; do not use the cross-encoder: on the tests"),
        (
            -1.5,
            0.5,
            "use only the cross-encoder",
            "Use only the cross-encoder and keep the base model for embeddings: ",
        ),
        (
            -1.5,
            -0.5,
            "keep the base model",
            "Keep the base model: on the tests the base model has 75.00, the bi-encoder -1.50 and",
        ),
        (
            0.0,
            -0.001,
            "unknown",
            "No significant difference between the bi-encoder and the cross-encoder and the base model on these tests: ",
        ),
    ],
)
def test_the_tests_decide(result, bi, cross, advice, sentence):
    verdict = verdict_of(shifted(result, bi=bi, cross=cross))
    assert verdict.advice == advice
    assert verdict.sentence.startswith(sentence)
    assert f"**{verdict.sentence}**" in report_text(result).split("## ")[0]


@pytest.mark.parametrize(
    ("bi", "cross", "advice", "sentence"),
    [
        ((0.2, 2.8), (0.1, 0.9), "use it", "Use them: "),
        (
            (-0.2, 3.2),
            (0.1, 0.9),
            "use only the cross-encoder",
            "Use only the cross-encoder; no significant difference between the bi-encoder and the base",
        ),
        (
            (0.2, 2.8),
            (-0.1, 1.1),
            "use only the bi-encoder",
            "Use only the bi-encoder; no significant difference between the cross-encoder and ",
        ),
        (
            (-0.2, 3.2),
            (-0.1, 1.1),
            "unknown",
            "No significant difference between the bi-encoder and the cross-encoder and the ",
        ),
        (
            (-0.2, 3.2),
            (-1.1, -0.1),
            "unknown",
            "Do not use the cross-encoder; no significant difference between the bi-encoder",
        ),
        (
            (-3.2, -0.2),
            (-0.1, 1.1),
            "unknown",
            "Keep the base model for embeddings; no significant difference between the cross",
        ),
        ((-3.2, -0.2), (-1.1, -0.1), "keep the base model", "Keep the base model: "),
        (
            (0.0, 0.0),
            (0.1, 0.9),
            "use only the cross-encoder",
            "Use only the cross-encoder; no significant difference between the bi-encoder and the base",
        ),
    ],
)
def test_what_may_be_chance_is_no_gain(result, bi, cross, advice, sentence):
    shifted(result, bi=sum(bi) / 2, cross=sum(cross) / 2)
    result["intervals"] = {"average": {"scores": {}, "gains": {"bi": bi, "cross": list(cross)}}}
    verdict = verdict_of(result)
    assert verdict.advice == advice
    assert verdict.sentence.startswith(sentence)
    said = f"the bi-encoder {sum(bi) / 2:+.2f}"
    assert said in verdict.sentence
    open_one = f"{said} (95 % of resamples between {bi[0]:+.2f} and {bi[1]:+.2f})"
    assert (open_one in verdict.sentence) == (bi[0] <= 0 <= bi[1])


def test_without_tests_dev_decides(result):
    result["scores"] = {}
    result["dev"] = {"start": 80.0, "bi": 79.0, "cross": 81.0}
    verdict = verdict_of(result)
    assert verdict.advice == "use only the cross-encoder"
    assert "the base model has 80.00, the bi-encoder -1.00 and the cross-encoder +1.00" in verdict.sentence


def test_a_gain_on_dev_is_said_to_be_of_what_chose_and_may_be_chance(result):
    result["scores"] = {}
    result["dev"] = {"start": 86.61, "bi": 86.62, "cross": 88.0}
    result["intervals"] = {"dev": {"scores": {}, "gains": {"bi": [-0.3, 0.4], "cross": [0.5, 2.3]}}}
    verdict = verdict_of(result)
    assert verdict.advice == "use only the cross-encoder"
    assert verdict.sentence == (
        "Use only the cross-encoder; no significant difference between the bi-encoder and the base model on this dev "
        "set: on dev, which chose the checkpoints, the base model has 86.61, the bi-encoder +0.01 (95 % of resamples between "
        "-0.30 and +0.40) and the cross-encoder +1.39."
    )


def test_a_model_of_one_form_is_used_or_not(result):
    for each in (result["best"], result["scores"]):
        del each["cross"]
    assert verdict_of(shifted(result, bi=1.0)).sentence.startswith("Use it: ")
    assert verdict_of(shifted(result, bi=-1.0)).advice == "keep the base model"


def test_a_metric_that_is_undefined_does_not_speak_for_a_model(result):
    result["scores"]["bi"] = dict.fromkeys(result["scores"]["start"])  # it collapsed: no metric
    verdict = verdict_of(shifted(result, cross=1.0))
    assert verdict.advice == "use only the cross-encoder"
    assert "the bi-encoder – and the cross-encoder +1.00" in verdict.sentence


def test_nothing_measured_is_said(bare_result):
    verdict = verdict_of(bare_result)
    assert verdict.advice == "unknown"
    assert "is unknown without labels" in verdict.sentence and "transencoder evaluate" in verdict.sentence


def test_without_labels_a_run_is_seen_to_have_failed_and_never_to_have_succeeded(bare_result):
    start, cross = {"self_retrieval": 91.0}, {"teacher_agreement": 95.0}
    bare_result["criteria"] = {"start": start, "bi": {"self_retrieval": 87.0}, "cross": cross}
    verdict = verdict_of(bare_result)
    assert verdict.advice == "keep the base model" and "rank 87.00 against 91.00" in verdict.sentence
    bare_result["criteria"]["bi"] = {"self_retrieval": 92.0}
    verdict = verdict_of(bare_result)
    assert verdict.advice == "unknown" and verdict.sentence.startswith(
        "Whether these models are better than the base model is unknown"
    )


@pytest.mark.parametrize("agreement", [23.0, None])
def test_a_cross_encoder_that_did_not_even_learn_its_own_pairs_is_left(bare_result, agreement):
    """Of few pairs none are held out."""
    bare_result["sample_agreement"] = {"bi": 90.0, "cross": agreement}
    assert verdict_of(bare_result).sentence.startswith("Do not use the cross-encoder, which did not learn")
    (note,) = [note for note in notes_of(bare_result) if "looks weak: even on pairs that it learned from" in note]
    assert ("23.00" if agreement else "–") in note
    bare_result["sample_agreement"]["cross"] = 75.0
    assert verdict_of(bare_result).sentence.startswith("Whether these models are better than the base model is unknown")
    assert not any("looks weak" in note for note in notes_of(bare_result))


@pytest.mark.parametrize("agreement", [23.0, None])
def test_a_cross_encoder_that_did_not_learn_its_teachers_ranking_is_left(bare_result, agreement):
    """None: it says the same of all pairs."""
    bare_result["criteria"] = {"start": {}, "bi": {}, "cross": {"teacher_agreement": agreement}}
    verdict = verdict_of(bare_result)
    assert verdict.advice == "unknown" and verdict.sentence.startswith("Do not use the cross-encoder")
    (note,) = [note for note in notes_of(bare_result) if "looks weak" in note]
    assert ("23.00" if agreement else "–") in note
    bare_result["criteria"]["cross"]["teacher_agreement"] = 95.0
    assert not any("looks weak" in note for note in notes_of(bare_result))
