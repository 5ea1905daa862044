"""LoRA: what it trains, what it leaves, that it is merged at the end, resumes to the same bytes, and is refused clearly."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer

from transencoder.checkpoints import KeepBest
from transencoder.configs import FitConfig, PretrainingConfig
from transencoder.encoders import load_bi, load_cross
from transencoder.errors import InputError
from transencoder.fit import Material, Session, fit
from transencoder.losses import CosineRegressionLoss, SoftCrossEntropyLoss
from transencoder.methods import MLM
from transencoder.runs import stage_key

CONFIG = FitConfig(
    learning_rate=1e-2,
    batch_size=16,
    epochs=2,
    max_length=24,
    warmup_ratio=0.0,
    eval_steps=2,
    checkpoint_steps=1,
    lora_rank=4,
)
FORMS = {"bi": (load_bi, CosineRegressionLoss), "cross": (load_cross, SoftCrossEntropyLoss)}


class Stopped(Exception):
    pass


@pytest.fixture
def fit_tiny(tiny_bi_encoder, tiny_pairs, tmp_path):
    def run(form, folder="checkpoints", config=CONFIG):
        load, loss = FORMS[form]
        model = load(Path(tiny_bi_encoder), device="cpu")
        before = {name: value.clone() for name, value in model.state_dict().items()}
        pairs = tiny_pairs.select(range(64))
        targets = np.asarray(pairs["score"][:], np.float32) / 5
        session = Session(folder=tmp_path / folder, seed=1, precision="fp32")
        fit(model, loss, Material(pairs=pairs, targets=targets), None, config, session)
        return model, before

    return run


@pytest.mark.parametrize("form", FORMS)
def test_linear_layers_move_by_a_low_rank_and_heads_freely(form, fit_tiny):
    model, before = fit_tiny(form)
    after = model.state_dict()
    assert after.keys() == before.keys(), "merged: no adapter is left"
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    heads = {name for name in moved if "pooler" in name or "classifier" in name}
    assert bool(heads) == (form == "cross")
    assert moved - heads and all(name.endswith("dense.weight") or "self." in name for name in moved - heads)
    for name in moved - heads:
        assert torch.linalg.matrix_rank(after[name] - before[name], atol=1e-5) <= 4, name
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_merged_model_is_a_plain_one(fit_tiny, tmp_path):
    texts = ["balo bama", "gelo"]
    bi, _ = fit_tiny("bi")
    bi.save_pretrained(str(tmp_path / "bi"))
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "bi"), device="cpu").encode(texts), bi.encode(texts))
    cross, _ = fit_tiny("cross", folder="cross-checkpoints")
    cross.save_pretrained(str(tmp_path / "cross"))
    again = CrossEncoder(str(tmp_path / "cross"), device="cpu")
    np.testing.assert_allclose(again.predict([texts]), cross.predict([texts]))


@pytest.mark.parametrize("form", FORMS)
def test_a_stopped_fit_ends_with_the_same_bytes(form, fit_tiny, monkeypatch):
    whole, _ = fit_tiny(form, folder="whole")

    class Stopping(KeepBest):
        def on_step_end(self, args, state, control, **more):
            super().on_step_end(args, state, control, **more)
            if state.global_step == 6:
                raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("transencoder.fit.student.KeepBest", Stopping)
        with pytest.raises(Stopped):
            fit_tiny(form)
    resumed, _ = fit_tiny(form)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_it_is_a_setting_of_the_stage_where_it_is_given():
    def key(config):
        return stage_key("x", config.outcome, [])

    plain = FitConfig(learning_rate=1e-3)
    assert "lora_rank" not in plain.outcome
    assert key(plain) != key(FitConfig(learning_rate=1e-3, lora_rank=8))
    assert PretrainingConfig(epochs=1).as_fit(CONFIG).lora_rank is None


def test_what_cannot_be_is_refused(fit_tiny, monkeypatch):
    with pytest.raises(InputError, match="lora_rank is 0; it must be at least 1"):
        FitConfig(lora_rank=0)
    with pytest.raises(InputError, match="lora_alpha is 8.*with a lora_rank"):
        FitConfig(lora_alpha=8.0)
    with pytest.raises(InputError, match="and a language model trains all its weights: leave it out"):
        MLM(sentences="a.txt", start="x", output="r", fit=replace(MLM.fit, lora_rank=4))
    find = importlib.util.find_spec
    monkeypatch.setattr("transencoder.fit.student.find_spec", lambda name: None if name == "peft" else find(name))
    with pytest.raises(InputError, match="needs the package peft: pip install"):
        fit_tiny("bi")
