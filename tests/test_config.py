"""Settings that contradict themselves are refused by the name the user typed."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from transencoder.configs import FitConfig, Member, nearest
from transencoder.errors import InputError
from transencoder.methods.trans_encoder import TransEncoder


@pytest.mark.parametrize(
    ("name", "bad"),
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
        ("warmup_ratio", 1.0),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("warmup_ratio", -0.1),
        ("warmup_ratio", float("nan")),
    ],
)
def test_values_that_cannot_be_trained_with_are_refused(name, bad):
    with pytest.raises(InputError, match=rf"^{name} is {bad}; it "):
        FitConfig(**{name: bad})


def test_the_edges_are_allowed():
    FitConfig(warmup_ratio=0.0, max_grad_norm=0.0, weight_decay=0.0, batch_size=1, epochs=1, max_length=1)
    FitConfig(warmup_ratio=0.99, dropout=0.0, eval_steps=1, checkpoint_steps=1, bucket_batches=1)


def test_settings_are_frozen_and_named():
    with pytest.raises(dataclasses.FrozenInstanceError):
        FitConfig().epochs = 3
    with pytest.raises(TypeError):
        Member("minilm")
    assert Member(start="minilm").cross_start is None


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("learning-rat", "learning_rate"), ("epoch", "epochs"), ("batchsize", "batch_size"), ("zzz", None)],
)
def test_nearest_name(typed, meant):
    names = [field.name for field in dataclasses.fields(FitConfig)]
    found = nearest(typed, names)
    assert found == meant if meant else found in names


def test_importing_it_loads_nothing_heavy():
    code = (
        "import sys, transencoder.configs; print([m for m in ('torch', 'numpy', 'transformers') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_initials_are_taken_for_the_name_that_they_shorten():
    names = ("bi", "bi.learning_rate", "bi.dropout", "cross.learning_rate")
    assert nearest("bi.lr", names) == "bi.learning_rate"
    assert nearest("bi.dropuot", names) == "bi.dropout"
    assert nearest("--bi.lr", ["--bi.dropout", "--bi.learning-rate"]) == "--bi.learning-rate"


def test_one_column_may_be_given_as_a_text_and_numbers_as_numpy_has_them():
    config = TransEncoder(sentences="a.csv", columns="body", seed=np.int64(7))
    assert config.columns == ("body",)
    assert type(config.seed) is int


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("20m", 1200), ("1.5h", 5400), ("2 min", 120)])
def test_a_budget_is_a_time(text, seconds):
    assert TransEncoder(sentences="a.csv", budget=text).budget_seconds == seconds


@pytest.mark.parametrize("text", ["20", "m", "-5m", "0s", "1h30m", "a day", "1e3s"])
def test_a_budget_that_is_no_time_is_refused(text):
    with pytest.raises(InputError, match="give a time such as 90s, 20m or 1.5h"):
        TransEncoder(sentences="a.csv", budget=text)
