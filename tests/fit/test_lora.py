"""LoRA: what it trains, what it leaves, that it is merged at the end, resumes to the same bytes, and is refused clearly."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer

from tests.fit.fitting import CONFIG, LOAD, Stopped, same
from transencoder.checkpoints import KeepBest
from transencoder.configs import FitConfig, PretrainingConfig
from transencoder.errors import InputError
from transencoder.methods import MLM
from transencoder.runs.stages import stage_key

LORA = {"learning_rate": 1e-2, "epochs": 2, "warmup_ratio": 0.0, "checkpoint_steps": 1, "lora_rank": 4}


@pytest.fixture
def fit_lora(fit_tiny):
    return lambda form, folder="checkpoints": fit_tiny(form, folder=folder, **LORA)[0]


def test_linear_layers_move_by_a_low_rank_and_heads_freely(form, fit_lora, tiny_bi_encoder):
    before = LOAD[form](Path(tiny_bi_encoder), device="cpu").state_dict()
    model = fit_lora(form)
    after = model.state_dict()
    assert after.keys() == before.keys(), "merged: no adapter is left"
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    heads = {name for name in moved if "pooler" in name or "classifier" in name}
    assert bool(heads) == (form == "cross")
    assert moved - heads and all(name.endswith("dense.weight") or "self." in name for name in moved - heads)
    for name in moved - heads:
        assert torch.linalg.matrix_rank(after[name] - before[name], atol=1e-5) <= 4, name
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_merged_model_is_a_plain_one(fit_lora, tmp_path):
    texts = ["balo bama", "gelo"]
    bi = fit_lora("bi")
    bi.save_pretrained(str(tmp_path / "bi"))
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "bi"), device="cpu").encode(texts), bi.encode(texts))
    cross = fit_lora("cross", folder="cross-checkpoints")
    cross.save_pretrained(str(tmp_path / "cross"))
    again = CrossEncoder(str(tmp_path / "cross"), device="cpu")
    np.testing.assert_allclose(again.predict([texts]), cross.predict([texts]))


def test_a_stopped_fit_ends_with_the_same_bytes(form, fit_lora, monkeypatch):
    whole = fit_lora(form, folder="whole")

    class Stopping(KeepBest):
        def on_step_end(self, args, state, control, **more):
            super().on_step_end(args, state, control, **more)
            if state.global_step == 6:
                raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("transencoder.fit.student.KeepBest", Stopping)
        with pytest.raises(Stopped):
            fit_lora(form)
    resumed = fit_lora(form)
    assert same(whole.state_dict(), resumed.state_dict())


def test_it_is_a_setting_of_the_stage_where_it_is_given():
    def key(config):
        return stage_key("x", config.key_settings, [])

    plain = FitConfig(learning_rate=1e-3)
    assert "lora_rank" not in plain.key_settings
    assert key(plain) != key(FitConfig(learning_rate=1e-3, lora_rank=8))
    assert PretrainingConfig(epochs=1).as_fit(FitConfig(**(CONFIG | LORA))).lora_rank is None


def test_what_cannot_be_is_refused(fit_lora, monkeypatch):
    with pytest.raises(InputError, match="lora_rank is 0; it must be at least 1"):
        FitConfig(lora_rank=0)
    with pytest.raises(InputError, match="lora_alpha is 8.*with a lora_rank"):
        FitConfig(lora_alpha=8.0)
    with pytest.raises(InputError, match="and a language model trains all its weights: leave it out"):
        MLM(sentences="a.txt", start="x", output="r", fit=replace(MLM.fit, lora_rank=4))
    find = importlib.util.find_spec
    monkeypatch.setattr("transencoder.fit.student.find_spec", lambda name: None if name == "peft" else find(name))
    with pytest.raises(InputError, match="needs the package peft: pip install"):
        fit_lora("bi")
