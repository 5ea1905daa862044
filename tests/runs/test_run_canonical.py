import dataclasses
import json
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from transencoder.errors import InputError
from transencoder.runs.files import canonical_json
from transencoder.runs.stages import stage_key, stage_seed


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float
    kinds: tuple


@pytest.mark.parametrize(
    ("value", "same"),
    [
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}),
        ((1, 2), [1, 2]),
        (Path("a") / "b", "a/b"),
        (PurePosixPath("a/b"), "a/b"),
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (-0.0, 0.0),
        (Config(rate=np.float64(0.1), kinds=("bi",)), {"rate": 0.1, "kinds": ["bi"]}),
        ("é", "\u00e9"),
    ],
)
def test_values_that_say_the_same_have_one_form(value, same):
    text = canonical_json({"x": value})
    assert text == canonical_json({"x": same}) == json.dumps({"x": same}, sort_keys=True, separators=(",", ":"))
    assert stage_key("a", {"x": value}) == stage_key("a", {"x": same})


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), (1, "1"), (None, "None"), (0.1, np.float32(0.1))])
def test_values_that_differ_have_other_forms(one, other):
    assert canonical_json(one) != canonical_json(other)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"lr": float("nan")}, "config.lr is nan; only finite"),
        ({"fit": [{"lr": np.float32("inf")}]}, r"config.fit\[0\].lr is inf"),
        ({"a": {1: 2}}, r"config.a has the name 1 \(int\).*write '1'"),
        ({"a": {1, 2}}, r"config.a is a set \(\{1, 2\}\); only text"),
        ({"a": np.zeros(2)}, "config.a is a ndarray"),
        ({"a": len}, "config.a is a builtin"),
    ],
)
def test_what_has_no_form_is_refused_with_its_place(config, message):
    with pytest.raises(InputError, match=message):
        stage_key("a", config)


def test_a_key_depends_on_name_config_and_the_order_of_inputs():
    keys = {
        stage_key("a", {}, []),
        stage_key("b", {}, []),
        stage_key("a", {"x": 1}, []),
        stage_key("a", {}, ["p", "q"]),
        stage_key("a", {}, ["q", "p"]),
    }
    assert len(keys) == 5 and all(len(key) == 64 for key in keys)
    # Fixed for ever: a change would make every existing run compute everything again.
    assert stage_key("cycle-1/bi", {"lr": 0.1}, ["data"]) == (
        "d8d289c5434f84babf7d571863f9638a60f53c897d4fe52345e9da445de89d1e"
    )


def test_a_stage_has_a_seed_of_its_own():
    seeds = {stage_seed(seed, name) for seed in range(100) for name in ("a", "b", "1", "11")}
    assert len(seeds) == 400
    assert all(isinstance(seed, int) and 0 <= seed < 2**31 for seed in seeds)
    assert stage_seed(1, "1a") != stage_seed(11, "a")
    assert stage_seed(42, "cycle-1/bi") == 58793381
