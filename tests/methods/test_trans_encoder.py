"""What a config refuses, named as the user typed it."""

from pathlib import Path

import pytest

from transencoder import FitConfig, Member, PretrainingConfig, TransEncoder, train
from transencoder.errors import InputError

TWO = (Member(start="x"), Member(start="y"))
LAST = FitConfig(selection="last")
FIELDS = {"pairs": "a.tsv", "members": (Member(start="x"),), "output": "run"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": ()}, "members is empty; give at least one start"),
        ({"alternate_members": True}, "alternate_members needs at least two members"),
        (
            {"members": TWO, "alternate_members": True, "initialisation": "sequential"},
            "changes the model from cycle to cycle; take initialisation refreshing",
        ),
        (
            {"bi_loss": "bce_clipped", "label_policy": "raw"},
            "bce_clipped.*and a label policy is raw.*take label_policy",
        ),
        (
            {"same_form": True, "pretraining": PretrainingConfig(epochs=2)},
            r"is 2, and same_form makes no cross-encoder",
        ),
        ({"members": TWO, "alternate_members": True, "share_labels": False}, "learn each from the one before"),
        ({"n_pairs": 0}, "n_pairs is 0; it must be at least 1"),
        ({"start_weight": 1.0}, r"start_weight is 1\.0; it is a share of the teachers, 0 to below 1"),
        ({"start_weight": -0.1}, r"start_weight is -0\.1"),
        ({"start_weight": float("nan")}, "start_weight is nan"),
        ({"cycles": 0}, "cycles is 0; it must be at least 1"),
        ({"patience_cycles": 0, "dev": "stsb"}, "patience_cycles is 0"),
        ({"patience_cycles": 1, "bi": LAST, "cross": LAST}, "patience_cycles needs what to choose by"),
        ({"test_every_eval": True}, "test_every_eval needs tests, score_tests true, and dev"),
        ({"test_every_eval": True, "dev": "stsb"}, "test_every_eval needs tests"),
        (
            {"test_every_eval": True, "tests": ("stsb",), "bi": LAST, "cross": LAST},
            "test_every_eval needs tests, score_tests true, and dev or what stands in for it",
        ),
    ],
)
def test_contradictions_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        TransEncoder(**FIELDS | changes)


@pytest.mark.parametrize("name", ["weight", "bi_learning_rate", "cross_learning_rate"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_numbers_of_a_member_are_above_0(name, value):
    with pytest.raises(InputError, match=f"{name} is .*; it must be above 0 and finite"):
        Member(start="x", **{name: value})


@pytest.mark.parametrize(("name", "least"), [("bi_epochs", 1), ("cross_epochs", 1), ("pretraining_epochs", 0)])
def test_epochs_of_a_member_are_not_too_few(name, least):
    with pytest.raises(InputError, match=f"{name} is {least - 1}; it must be at least {least}"):
        Member(start="x", **{name: least - 1})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("batch_size", 0),
        ("epochs", 0),
        ("max_length", 0),
        ("eval_steps", 0),
        ("checkpoint_steps", -1),
        ("gradient_accumulation_steps", 0),
        ("bucket_batches", 0),
        ("learning_rate", -1e-5),
        ("learning_rate", float("nan")),
        ("weight_decay", -0.1),
        ("max_grad_norm", -1.0),
        ("warmup_ratio", 1.1),
        ("warmup_ratio", -0.1),
    ],
)
def test_a_fit_that_cannot_be_is_refused(field, value):
    with pytest.raises(InputError, match=f"^{field} is "):
        FitConfig(**{field: value})


def test_the_defaults_are_the_papers():
    config = TransEncoder(**FIELDS)
    assert (config.initialisation, config.label_policy, config.start_weight) == ("refreshing", "clip", 0.0)
    assert (config.is_symmetric, config.head, config.seed, config.tests) == (True, "pooler", 2021, ())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cross_test_length": 5000}, "cross_test_length is 5000, but .* reads at most 128 tokens"),
        ({"cross": FitConfig(max_length=5000)}, "cross.max_length is 5000, but"),
        ({"bi": FitConfig(max_length=5000)}, "bi.max_length is 5000, but"),
    ],
)
def test_a_length_that_a_model_does_not_read_is_refused_before_anything_is_done(tiny_method, changes, message):
    config = tiny_method(**changes)
    with pytest.raises(InputError, match=message):
        train(config)
    assert not Path(config.output).exists()


def test_lora_without_its_package_is_refused_before_anything_is_done(tiny_method, monkeypatch):
    monkeypatch.setattr("transencoder.fit.student.find_spec", lambda name: None)
    config = tiny_method(bi=FitConfig(lora_rank=4))
    with pytest.raises(InputError, match="lora_rank needs the package peft"):
        train(config)
    assert not Path(config.output).exists()
