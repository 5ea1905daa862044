"""Which pairs are held out, what is asked of an encoder there, and that nothing is trained on them."""

from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset

from transencoder import Member, train
from transencoder.errors import InputError
from transencoder.evaluation import spearman
from transencoder.scorers import BiScorer
from transencoder.selection import hold_out

OF_BOTH = {"teacher_agreement", "start_agreement", "view_preference"}
OF_EMBEDDINGS = {"self_retrieval", "alignment", "uniformity", "alignment_and_uniformity", "effective_rank"}


@pytest.fixture(scope="module")
def many_pairs(tiny_pairs):
    """400 pairs, the planted ones twice."""
    return Dataset.from_dict({name: tiny_pairs[name][:] * 2 for name in ("sentence1", "sentence2")})


def test_a_tenth_is_held_out_the_same_for_the_same_number(many_pairs):
    held_out = hold_out(many_pairs)
    assert len(held_out.rows) == 40 == len(set(held_out.rows))
    assert list(held_out.rows) == sorted(held_out.rows) == list(hold_out(many_pairs).rows)
    assert held_out.texts["sentence1"][:] == many_pairs.select(held_out.rows)["sentence1"][:]
    for sentence, view in zip(held_out.texts["sentence1"], held_out.texts["sentence3"], strict=True):
        assert set(view.split()) <= set(sentence.split())
    lengths = [[len(text.split()) for text in held_out.texts[name]] for name in ("sentence1", "sentence3")]
    assert 0.4 < sum(lengths[1]) / sum(lengths[0]) < 0.65


def test_a_thousand_at_most():
    pairs = Dataset.from_dict({"sentence1": ["a b"] * 12_000, "sentence2": ["c"] * 12_000})
    held_out = hold_out(pairs)
    assert len(held_out.rows) == 1000
    assert list(held_out.distinct) == [0]  # they are all one sentence


def test_an_encoder_agrees_with_itself(many_pairs, tiny_bi_encoder):
    from sentence_transformers import SentenceTransformer

    held_out = hold_out(many_pairs)
    scorer = BiScorer(SentenceTransformer(tiny_bi_encoder, device="cpu"), precision="fp32")
    own = scorer.score(held_out.texts.select_columns(["sentence1", "sentence2"]))
    found = held_out.criteria(scorer, {"teacher": [own], "start": [-own, own, own]})
    assert found.keys() == OF_BOTH | OF_EMBEDDINGS
    assert found["teacher_agreement"] == pytest.approx(100)
    assert found["start_agreement"] == pytest.approx(100 / 3)
    assert found["self_retrieval"] > 30  # by chance about 11
    assert found["alignment_and_uniformity"] == pytest.approx(found["alignment"] + found["uniformity"])


def test_every_evaluation_records_them_and_nothing_is_chosen_by_them(tiny_method, many_pairs):
    recorded = train(tiny_method(pairs=many_pairs, record_criteria=True, tests=()))
    for form, expected in (("cross", OF_BOTH), ("bi", OF_BOTH | OF_EMBEDDINGS)):
        cycle = recorded.result["cycles"][0][form]
        steps = [step for step, _ in cycle["criteria"]]
        assert steps == [step for step, _ in cycle["curve"]]
        assert all(values.keys() == expected for _, values in cycle["criteria"])
        assert cycle["dev"] == max(value for _, value in cycle["curve"])
    assert recorded.result["criteria"].keys() == {"start", "bi", "cross"}
    assert recorded.result["criteria"]["start"].keys() == OF_EMBEDDINGS | {"view_preference"}
    last = recorded.result["cycles"][recorded.result["best"]["bi"]["cycle"] - 1]["bi"]
    assert recorded.result["criteria"]["bi"] in [values for _, values in last["criteria"]]


@pytest.mark.parametrize("share_labels", [True, False])
def test_members_are_compared_with_each_others_teachers(tiny_method, many_pairs, tiny_bi_encoder, share_labels):
    members = tuple(Member(start=tiny_bi_encoder, pooling=pooling) for pooling in ("mean", "cls", None))
    config = tiny_method(pairs=many_pairs, record_criteria=True, tests=(), members=members, share_labels=share_labels)
    trained = train(config)
    for own in range(3):
        record = trained.result["members"][own]["cycles"][0]["cross"]
        (step, values), *_ = record["criteria"]
        assert values.keys() == OF_BOTH | {"member_agreement"}
    # the starts of all teach the cross-encoders: what the last step's says is in the stage of its scores
    held_out = hold_out(many_pairs)
    said = [np.load(next(trained.folder.glob(f"stages/member-{i}-start-scores-*/scores.npy"))) for i in (1, 2, 3)]
    cross = np.load(next(trained.folder.glob("stages/member-1-cycle-1-cross-encoder-scores-*/scores.npy")))
    expected = np.mean([spearman(each[held_out.rows], cross[held_out.rows]) for each in said[1:]])
    first = trained.result["members"][0]["cycles"][0]["cross"]
    best = max(dict(first["curve"]), key=dict(first["curve"]).get)
    assert dict(first["criteria"])[best]["member_agreement"] == pytest.approx(expected, abs=0.1)


def test_another_members_settings_make_another_stage_where_criteria_compare_with_it(
    tiny_method, many_pairs, tiny_bi_encoder
):
    """Each learns from its own scores: the labels do not tell that the other one changed."""

    def keys(rate):
        members = (Member(start=tiny_bi_encoder), Member(start=tiny_bi_encoder, cross_learning_rate=rate))
        options = {"record_criteria": True, "tests": (), "members": members, "share_labels": False}
        result = train(tiny_method(pairs=many_pairs, **options)).result
        return {stage["name"]: stage["key"] for stage in result["stages"]}

    one, other = keys(1e-3), keys(2e-3)
    assert one["member-1/cycle-1/cross-encoder"] == other["member-1/cycle-1/cross-encoder"]
    assert one["member-1/cycle-1/labels-for-bi"] == other["member-1/cycle-1/labels-for-bi"]
    assert one["member-1/cycle-1/bi-encoder"] != other["member-1/cycle-1/bi-encoder"]


def test_held_out_pairs_are_not_trained_on(tiny_method, many_pairs, monkeypatch):
    seen = {}
    from transencoder.fit import student

    real = student.training_rows

    def spy(n_rows, targets, rows):
        seen[n_rows] = rows
        return real(n_rows, targets, rows)

    monkeypatch.setattr(student, "training_rows", spy)
    train(tiny_method(pairs=many_pairs, record_criteria=True, tests=(), is_symmetric=True, cycles=1))
    held_out = hold_out(many_pairs).rows
    assert len(seen[400]) == 360 and not set(seen[400]) & set(held_out)
    assert len(seen[800]) == 720 and not set(seen[800] % 400) & set(held_out)


def test_there_must_be_a_dev_set_to_compare_with(tiny_method):
    with pytest.raises(InputError, match="record_criteria needs a dev set"):
        replace(tiny_method(), dev=None, record_criteria=True)


def test_rows_of_criteria_are_finite_for_a_model_that_collapsed(many_pairs):
    class Collapsed:
        def score(self, pairs):
            return np.full(len(pairs), 0.5, np.float32)

    held_out = hold_out(many_pairs)
    found = held_out.criteria(Collapsed(), {"teacher": [np.arange(40.0)]})
    assert np.isnan(found["teacher_agreement"]) and found["view_preference"] == 50
