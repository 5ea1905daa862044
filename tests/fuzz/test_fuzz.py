"""Some hundred fuzzed cases, always the same; `benchmarks/fuzz.py` runs thousands."""

import shutil

import fuzz_cases
import fuzz_models
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from transencoder import encoders
from transencoder.errors import InputError

STRATEGIES = {
    "files": (fuzz_cases.input_files(), fuzz_cases.read),
    "recipes": (fuzz_cases.recipe_files(), fuzz_cases.load_recipe),
    "overrides": (fuzz_cases.overrides(), fuzz_cases.load_override),
    "command lines": (fuzz_cases.arguments(), lambda case, _: fuzz_cases.parse(case)),
}


@pytest.mark.parametrize("kind", STRATEGIES)
def test_what_is_drawn_works_or_is_one_readable_error(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    strategy, run = STRATEGIES[kind]
    found = {"accepted": 0, "refused": 0}

    @settings(
        max_examples=100,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def check(case):
        how, wrong = run(case, tmp_path)
        assert not wrong, (wrong, case)
        found[how] += 1

    check()
    assert min(found.values()) >= 5, found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("100,000 layers", "num_hidden_layers is 100000, and at most 256 are made"),
        ("10**10 positions", "max_position_embeddings is 10000000000"),
        ("architectures 5", "architectures is no list"),
        ("library config null", r"config_sentence_transformers\.json is .*an object is expected, found None"),
        ("library config a pipe", r"any_config\.json is no regular file"),
        ("a template that is a pipe", r"chat_template\.jinja is no regular file"),
        ("a text file that is a loop of links", r"notes\.txt is no regular file"),
        ("weights are an endless device", r"model\.safetensors is no regular file"),
        ("weights cut in half", "is cut short"),
        ("an index of pickles and a decoy", "pickled weights are not loaded"),
        ("a header of deep JSON", "is no safetensors file"),
        ("no tokenizer", "tokenizer"),
    ],
)
def test_a_hostile_model_is_refused(name, message, tiny_bi_encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model"
    shutil.copytree(tiny_bi_encoder, folder)
    fuzz_models.MODELS[name](folder)
    assert fuzz_models.load(folder) == ("refused", "")
    with pytest.raises(InputError, match=message), fuzz_cases.alarm():
        encoders.fetch(str(folder))
