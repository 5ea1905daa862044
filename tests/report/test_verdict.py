"""What a run says is to be done with its models, and what to know before."""

import pytest

from transencoder.report.card import model_card
from transencoder.report.run_report import report_text
from transencoder.report.verdict import notes_of, use_of, verdict_of


def shifted(result, **by):
    """The start's scores and so much more for each form."""
    start = result["scores"]["start"]
    for form, points in by.items():
        result["scores"][form] = {name: value + points for name, value in start.items()}
    return result


OPEN = "no significant difference between the"


@pytest.mark.parametrize(
    ("bi", "cross", "sentence"),
    [
        (
            1.5,
            0.5,
            "Use them: on the tests the base model has 75.00; gains over it: the bi-encoder +1.50 and the cross-encoder "
            "+0.50.",
        ),
        (1.5, -0.5, "Use only the bi-encoder; do not use the cross-encoder: on the tests"),
        (-1.5, 0.5, "Use only the cross-encoder and keep the base model for embeddings: "),
        (-1.5, -0.5, "Keep the base model: on the tests the base model has 75.00; gains over it: the bi-encoder -1.50"),
        (0.0, -0.001, f"N{OPEN[1:]} bi-encoder or the cross-encoder and the base model on these tests: "),
    ],
)
def test_the_tests_decide(result, bi, cross, sentence):
    verdict = verdict_of(shifted(result, bi=bi, cross=cross))
    assert verdict.startswith(sentence)
    assert f"**{verdict}**" in report_text(result).split("## ")[0]


@pytest.mark.parametrize(
    ("bi", "cross", "sentence"),
    [
        ((0.2, 2.8), (0.1, 0.9), "Use them: "),
        ((-0.2, 3.2), (0.1, 0.9), f"Use only the cross-encoder; {OPEN} bi-encoder and the base"),
        ((0.2, 2.8), (-0.1, 1.1), f"Use only the bi-encoder; {OPEN} cross-encoder and "),
        ((-0.2, 3.2), (-0.1, 1.1), f"N{OPEN[1:]} bi-encoder or the cross-encoder and the "),
        ((-0.2, 3.2), (-1.1, -0.1), f"Do not use the cross-encoder; {OPEN} bi-encoder"),
        ((-3.2, -0.2), (-0.1, 1.1), f"Keep the base model for embeddings; {OPEN} cross"),
        ((-3.2, -0.2), (-1.1, -0.1), "Keep the base model: "),
        ((0.0, 0.0), (0.1, 0.9), f"Use only the cross-encoder; {OPEN} bi-encoder and the base"),
    ],
)
def test_what_may_be_chance_is_no_gain(result, bi, cross, sentence):
    shifted(result, bi=sum(bi) / 2, cross=sum(cross) / 2)
    result["intervals"] = {"average": {"scores": {}, "gains": {"bi": bi, "cross": list(cross)}}}
    verdict = verdict_of(result)
    said = f"the bi-encoder {sum(bi) / 2:+.2f}"
    assert verdict.startswith(sentence) and said in verdict
    open_one = f"{said} (95 % of resamples between {bi[0]:+.2f} and {bi[1]:+.2f})"
    assert (open_one in verdict) == (bi[0] <= 0 <= bi[1])


def test_a_gain_on_dev_is_said_to_be_of_what_chose_and_may_be_chance(result):
    result["scores"] = {}
    result["dev"] = {"start": 86.61, "bi": 86.62, "cross": 88.0}
    result["intervals"] = {"dev": {"scores": {}, "gains": {"bi": [-0.3, 0.4], "cross": [0.5, 2.3]}}}
    assert verdict_of(result) == (
        "Use only the cross-encoder; no significant difference between the bi-encoder and the base model on this dev "
        "set: on dev, which chose the checkpoints, the base model has 86.61; gains over it: the bi-encoder "
        "+0.01 (95 % of resamples between -0.30 and +0.40) and the cross-encoder +1.39."
    )


def test_a_model_of_one_form_is_used_or_not(result):
    for each in (result["best"], result["scores"]):
        del each["cross"]
    assert verdict_of(shifted(result, bi=1.0)).startswith("Use it: ")
    assert verdict_of(shifted(result, bi=-1.0)).startswith("Keep the base model: ")


def test_a_metric_that_is_undefined_does_not_speak_for_a_model(result):
    result["scores"]["bi"] = dict.fromkeys(result["scores"]["start"])  # it collapsed: no metric
    verdict = verdict_of(shifted(result, cross=1.0))
    assert verdict.startswith("Use only the cross-encoder and keep the base model for embeddings: ")
    assert "the bi-encoder – and the cross-encoder +1.00" in verdict


def test_without_labels_a_run_is_seen_to_have_failed_and_never_to_have_succeeded(bare_result):
    unknown = "Whether these models are better than the base model is unknown without labels: label a hundred pairs or "
    assert verdict_of(bare_result).startswith(unknown) and "transencoder evaluate" in verdict_of(bare_result)
    sampled = {**bare_result, "stages": [{"name": "sample", "key": "a", "seconds": 1.0, "reused": False}]}
    assert verdict_of(sampled).endswith("unknown without labels: grade a hundred pairs with `transencoder grade`.")
    start, cross = {"self_retrieval": 91.0}, {"teacher_agreement": 95.0}
    bare_result["criteria"] = {"start": start, "bi": {"self_retrieval": 87.0}, "cross": cross}
    verdict = verdict_of(bare_result)
    assert verdict.startswith("Keep the base model: nothing was measured") and "rank 87.00 against 91.00" in verdict
    bare_result["criteria"]["bi"] = {"self_retrieval": 92.0}
    assert verdict_of(bare_result).startswith(unknown)
    del bare_result["best"]["cross"]
    alone = unknown.replace("these models are", "the bi-encoder is")
    assert verdict_of(bare_result).startswith(alone)


@pytest.mark.parametrize("agreement", [23.0, None])
@pytest.mark.parametrize(
    ("record", "note"),
    [
        (lambda found: {"sample_agreement": {"bi": 90.0, "cross": found}}, "looks weak: even on pairs that it learned"),
        (lambda found: {"criteria": {"start": {}, "bi": {}, "cross": {"teacher_agreement": found}}}, "looks weak"),
    ],
    ids=["few pairs, none held out", "held-out pairs"],
)
def test_a_cross_encoder_that_did_not_learn_its_teachers_ranking_is_left(bare_result, record, note, agreement):
    """None: it says the same of all pairs."""
    bare_result |= record(agreement)
    assert verdict_of(bare_result).startswith("Do not use the cross-encoder, which did not learn")
    (found,) = [each for each in notes_of(bare_result) if note in each]
    assert ("23.00" if agreement else "–") in found
    bare_result |= record(95.0)
    assert verdict_of(bare_result).startswith("Whether these models are better than the base model is unknown")
    assert not any("looks weak" in each for each in notes_of(bare_result))


def test_a_note_says_which_servers_leave_the_weights_of_tokens_out(result):
    assert not any("weights its tokens" in note for note in notes_of(result))
    result["config"]["weight_tokens"] = True
    assert any("plain mean pooling alone leave the weights out" in note for note in notes_of(result))


def test_notes_tell_of_skipped_rows_and_of_scores_in_both_orders(result):
    assert not any("bad rows" in note or "both orders" in note for note in notes_of(result))
    result["data"]["pairs"]["bad_rows"] = 1200
    result["config"] |= {"label_both_orders": True, "is_symmetric": True}
    text = report_text(result)
    assert "1,200 bad rows of the training pairs were skipped; bad-rows.tsv in" in text
    assert all("mean of its scores for both orders" in each for each in (text, model_card(result, "cross")))
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


def test_bad_labelled_rows_are_told_too(result):
    result["data"]["pairs"]["labelled"] = result["data"]["pairs"] | {"bad_rows": 1200}
    assert "1,200 bad labelled rows were skipped; bad-labelled-rows.tsv in" in " ".join(notes_of(result))


def test_notes_say_that_a_model_without_a_verdict_is_worse(result):
    """Of the others the verdict says it, and the notes no second time."""
    result["scores"]["bi"] = {name: value - 1.5 for name, value in result["scores"]["start"].items()}
    assert not any("worse" in note for note in notes_of(result))
    result["best"], result["scores"]["mlm"] = {"mlm": result["best"]["bi"]}, result["scores"].pop("bi")
    found = "The masked language model is worse than the base model on the tests (73.50 against 75.00)"
    assert f"{found}: keep the base model in its place." in notes_of(result)


@pytest.mark.parametrize(
    ("bi", "cross", "use"),
    [
        (1.5, 0.5, ("bi", "search")),
        (-1.5, 0.5, ("cross", "score")),
        (0.0, 0.5, ("cross", "score")),
        (0.0, -0.5, None),
        (-1.5, -0.5, None),
    ],
)
def test_what_comes_next_follows_from_the_verdict(result, bi, cross, use):
    assert use_of(shifted(result, bi=bi, cross=cross)) == use


@pytest.mark.parametrize(("retrieval", "use"), [(92.0, ("bi", "label")), (87.0, None)])
def test_without_labels_labels_come_next_or_the_base_model_is_kept(bare_result, retrieval, use):
    found = {"self_retrieval": retrieval}
    bare_result["criteria"] = {"start": {"self_retrieval": 91.0}, "bi": found, "cross": {"teacher_agreement": 95.0}}
    assert use_of(bare_result) == use


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
