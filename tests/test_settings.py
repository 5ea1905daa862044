"""A config's fields with their texts, as TOML, and with its texts filled in."""

import tomllib
from dataclasses import dataclass, field, replace

import pytest
from datasets import Dataset

from transencoder.configs import FitConfig, Member
from transencoder.errors import InputError
from transencoder.methods import METHODS, TransEncoder
from transencoder.pairs import fingerprint
from transencoder.recipes import load_recipe
from transencoder.settings import (
    ROWS_MARK,
    dotted_names,
    expanded,
    method_name,
    nested_settings,
    recipe_toml,
    settings_of,
)

MINIMAL = TransEncoder(pairs="a", members=(Member(start="x"),), output="run")
FULL = TransEncoder(
    pairs='odd "name"\t\\ é 🙂 \x7f.tsv',
    members=(Member(start="x", cross_start="y", pooling="cls", revision="v1"),),
    output="~/runs/$NAME",
    dev="stsb",
    tests=("sts", "mine.tsv"),
    task_kind="binary",
    is_symmetric=False,
    cycles=2,
    patience_cycles=1,
    initialisation="sequential",
    label_policy="raw",
    start_weight=0.25,
    label_both_orders=True,
    head="linear",
    bi=FitConfig(learning_rate=1e-7, epochs=3, max_grad_norm=float("inf")),
    cross=FitConfig(learning_rate=1e16, warmup_ratio=0, gradient_checkpointing=True),
    precision="fp32",
    device="cpu",
    seed=-1,
    test_every_eval=True,
    skip_bad_rows=True,
    columns=("a", "b"),
    exclude_test_sentences=True,
    data_dir="d",
    cache_dir="c",
    report_to=("wandb",),
)


@pytest.fixture
def written(tmp_path):
    """Write a config as a recipe; returns its path."""

    def write(config):
        (tmp_path / "r.toml").write_text(recipe_toml(config), encoding="utf-8")
        return tmp_path / "r.toml"

    return write


@pytest.mark.parametrize("config", [FULL, MINIMAL])
def test_a_written_recipe_loads_back_to_an_equal_config(config, written):
    assert load_recipe(written(config)) == config


def test_every_field_is_written_out_and_the_absent_ones_as_comments():
    text = recipe_toml(MINIMAL)
    keys = tomllib.loads(text)
    for name, setting in settings_of(TransEncoder).items():
        assert name in keys or f"# {name}: " in text, name
        assert setting.help, name
    assert "# dev: not set" in text and "# learning_rate: not set" in text
    assert keys["bi"]["eval_steps"] == 200


def test_the_token_is_never_written():
    text = recipe_toml(replace(FULL, token="hf_secret"))
    assert "hf_secret" not in text and "# token: never written" in text


def test_rows_given_in_python_are_written_as_their_fingerprint_and_cannot_be_loaded(written):
    rows = Dataset.from_dict({"sentence1": ["a", "b"], "sentence2": ["c", "d"]})
    other = Dataset.from_dict({"sentence1": ["a", "b"], "sentence2": ["c", "e"]})
    text = recipe_toml(replace(FULL, pairs=rows))
    assert "# pairs: 2 rows given in Python" in text
    assert tomllib.loads(text)["pairs"] == ROWS_MARK + fingerprint(rows)
    assert tomllib.loads(text) != tomllib.loads(recipe_toml(replace(FULL, pairs=other)))
    path = written(replace(FULL, pairs=rows))
    with pytest.raises(InputError, match=r"r\.toml: pairs was rows given in Python .*file"):
        load_recipe(path)
    assert load_recipe(path, ["pairs=a.tsv"]).pairs == "a.tsv"


def test_home_and_environment_are_filled_in_when_used(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("NAME", "n")
    rows = Dataset.from_dict({"sentence1": ["~"], "sentence2": ["$X"]})
    config = replace(FULL, pairs=rows, tests=("${NAME}.tsv",), members=(Member(start="~/x$NAME"),), token="~$NAME")
    filled = expanded(config)
    assert (filled.output, filled.tests) == ("/home/me/runs/n", ("n.tsv",))
    assert filled.members[0].start == "/home/me/xn"
    assert (filled.token, filled.bi) == ("~$NAME", config.bi)
    assert filled.pairs is rows
    assert "$NAME" in recipe_toml(config)
    monkeypatch.delenv("NAME")
    with pytest.raises(InputError, match=r"output is '~/runs/\$NAME', but the environment has no NAME"):
        expanded(FULL)


def test_methods_are_named_after_their_modules():
    assert all(method_name(config_class) == name for name, config_class in METHODS.items())


def test_settings_know_types_defaults_and_docstrings():
    @dataclass(frozen=True, kw_only=True)
    class Inner:
        size: int = 2
        """How many."""

    @dataclass(frozen=True, kw_only=True)
    class Outer:
        name: str
        """A name
        on two lines."""
        inner: Inner = field(default_factory=Inner)
        rate: float | None = None
        """A rate."""

    assert settings_of(Inner)["size"].default == 2
    assert dotted_names(Outer) == ("name", "inner", "inner.size", "rate")
    assert nested_settings(Outer)["name"].help == "A name on two lines."
    assert nested_settings(Outer)["name"].is_required
    assert nested_settings(Outer)["rate"].is_optional
    assert nested_settings(Outer)["rate"].kind is float
