"""What a config refuses, named as the user typed it."""

from pathlib import Path

import pytest

from transencoder import FitConfig, Member, TransEncoder, train
from transencoder.errors import InputError

TWO = (Member(start="x"), Member(start="y"))
LAST = FitConfig(selection="last")
FIELDS = {"pairs": "a.tsv", "members": (Member(start="x"),), "output": "run"}


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
        ("learning_rate", float("inf")),
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
