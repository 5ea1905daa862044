"""How much of a training preset `standard` keeps, by what its base model looks like."""

import pytest
import torch
from sentence_transformers import SentenceTransformer

from transencoder import FitConfig, plan, train

FIT = FitConfig(learning_rate=1e-3, batch_size=16, epochs=1)


@pytest.fixture
def looking(monkeypatch):
    """Return a function that makes base models look as if labels trained them, or as if none did."""

    def look(labelled=True):
        uniformity = {"uniformity": 3.5 if labelled else 2.0}  # criteria are higher for what is better
        monkeypatch.setattr("transencoder.cycles.members.LEAST_PAIRS", 90)
        monkeypatch.setattr("transencoder.selection.HeldOut.criteria", lambda *_: uniformity)

    return look


def chosen_share(trained):
    found = [each["value"] for each in trained.result["choices"] if each["setting"] == "bi.trained_share"]
    assert trained.result["config"]["bi"]["trained_share"] == (found[0] if found else None)
    return found[0] if found else None


def weights(trained):
    return trained.bi_encoder.state_dict()


def test_half_is_kept_where_labels_seem_to_have_trained_the_base_model(tiny_method, tiny_bi_encoder, looking):
    looking()
    half = train(tiny_method(preset="standard", same_form=True, bi=FIT))
    assert chosen_share(half) == 0.5
    whole = train(tiny_method(preset="standard", same_form=True, bi=FitConfig(**(vars(FIT) | {"trained_share": 1.0}))))
    assert not [each for each in whole.result["choices"] if each["setting"] == "bi.trained_share"]
    start = SentenceTransformer(tiny_bi_encoder, device="cpu").state_dict()
    between = {name: torch.lerp(tensor, weights(whole)[name], 0.5) for name, tensor in start.items()}
    assert all(torch.allclose(between[name], tensor, atol=1e-6) for name, tensor in weights(half).items())
    assert any(not torch.equal(start[name], tensor) for name, tensor in weights(half).items())


def test_the_whole_training_is_kept_where_no_labels_did(tiny_method, looking):
    looking(labelled=False)
    assert chosen_share(train(tiny_method(preset="standard", same_form=True, bi=FIT))) is None


@pytest.mark.parametrize(
    "given",
    [
        {"preset": "paper"},
        {"teachers": ("column",)},
        {"members": ("start", "start")},
        {"labelled": "gold.tsv"},
        {"same_form": False},
        {"bi": FitConfig(**(vars(FIT) | {"save_steps": 4}))},
        {"bi": FitConfig(**(vars(FIT) | {"lora_rank": 4}))},
    ],
    ids=["paper", "teacher", "members", "labels", "cross-encoder", "saved steps", "adapters"],
)
def test_the_user_or_another_teacher_decides_otherwise(tiny_method, given):
    standard = {"preset": "standard", "same_form": True, "bi": FIT}
    assert tiny_method(**standard).prepared(1).may_keep_half
    assert not tiny_method(**standard | given).prepared(1).may_keep_half


def test_a_plan_says_that_the_run_decides(tiny_method):
    lines = str(plan(tiny_method(preset="standard", same_form=True, bi=FIT)))
    assert "half of the training is kept if the base model seems to have been trained with labels" in lines
    assert "bi.trained_share = 0.5" not in lines
