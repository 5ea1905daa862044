"""Contrastive batches in mini-batches, and embeddings whose first numbers serve as well as all."""

from dataclasses import replace

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from transformers import BertModel

from transencoder import SimCSE, TransEncoder, train
from transencoder.configs import FitConfig
from transencoder.errors import InputError
from transencoder.losses import ContrastiveTensionLoss, InfoNCELoss, tanh_projector
from transencoder.losses.features import Loss
from transencoder.settings import check_values

BATCH = {"batch_size": 32, "epochs": 1, "warmup_ratio": 0.0, "max_grad_norm": 0.0, "bucket_batches": 1}


def test_mini_batches_give_the_same_gradients_and_hold_one_at_a_time(fit_tiny, tiny_bi_encoder, monkeypatch):
    seen, forward = [], BertModel.forward
    options = {"dropout": 0.0, "adam_epsilon": 1.0, "learning_rate": 1.0}  # steps are as long as gradients

    def watched(self, *arguments, **more):
        seen.append((torch.is_grad_enabled(), len(more["input_ids"])))
        return forward(self, *arguments, **more)

    monkeypatch.setattr(BertModel, "forward", watched)
    weights = {}
    for size in (None, 8):
        seen.clear()
        model, _ = fit_tiny("bi", folder=f"{size}", loss=InfoNCELoss, mini_batch_size=size, **BATCH | options)
        weights[size] = {name: value.double() for name, value in model.state_dict().items()}
        assert "forward" not in vars(model) or size is None
    assert max(n for is_training, n in seen if is_training) == 8
    assert sum(is_training for is_training, _ in seen) == 2 * 2 * 2 * 32 // 8, "two steps, two sides, twice each"
    start = SentenceTransformer(tiny_bi_encoder, device="cpu").state_dict()
    moved = max((value - start[name]).abs().max() for name, value in weights[None].items())
    apart = max((value - weights[8][name]).abs().max() for name, value in weights[None].items())
    assert moved > 1e-3 and apart < 1e-3 * moved


def test_dropouts_draws_are_made_again_in_the_backward_pass(fit_tiny):
    """One mini-batch of all texts draws as the whole batch does: without the same draws gradients would be others."""
    plain, one = (
        fit_tiny("bi", folder=f"{size}", loss=InfoNCELoss, mini_batch_size=size, **BATCH)[0] for size in (None, 64)
    )
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(one.state_dict()[name], value, atol=1e-6, rtol=0)


def test_tokens_of_mini_batches_are_there_too(fit_tiny, tiny_bi_encoder):
    class OfTokens(InfoNCELoss):
        def forward(self, columns, labels=None):
            first, second = (self.model(dict(side)) for side in columns)
            assert first["token_embeddings"].shape[:2] == first["input_ids"].shape
            return (first["token_embeddings"].mean() - second["sentence_embedding"].mean()).square()

    fit_tiny("bi", loss=OfTokens, mini_batch_size=8, **BATCH)


def test_first_numbers_learn_too(fit_tiny, tiny_pairs):
    pairs, targets = tiny_pairs.select(range(64)), torch.tensor(tiny_pairs["score"][:64]) / 5

    def error(model, width):
        first, second = (
            model.encode(pairs[side], convert_to_tensor=True)[:, :width] for side in pairs.column_names[:2]
        )
        return (torch.nn.functional.cosine_similarity(first, second) - targets).square().mean().item()

    plain, _ = fit_tiny("bi", folder="a", epochs=6)
    nested, _ = fit_tiny("bi", folder="b", epochs=6, matryoshka_dims=(4,))
    assert error(nested, 4) < 0.8 * error(plain, 4)
    whole, parts = (
        fit_tiny("bi", folder=f"{size}", matryoshka_dims=(4,), mini_batch_size=size, dropout=0.0, adam_epsilon=1.0)[0]
        for size in (None, 8)
    )
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[name], value, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("form", "loss", "options", "message"),
    [
        ("bi", "projector", {"matryoshka_dims": (4,)}, "the loss is not of cosines alone, or has a projector"),
        ("bi", "norms", {"matryoshka_dims": (4,)}, "the loss is not of cosines alone"),
        ("bi", "twin", {"mini_batch_size": 4}, "the loss trains another encoder too"),
        ("bi", None, {"matryoshka_dims": (4, 4096)}, "give fewer"),
    ],
)
def test_what_cannot_be_is_refused(fit_tiny, form, loss, options, message):
    losses = {
        "projector": lambda model: InfoNCELoss(model, projector=tanh_projector(model.get_embedding_dimension())),
        "norms": Loss,
        "twin": lambda model: ContrastiveTensionLoss(model),
    }

    with pytest.raises(InputError, match=message):
        fit_tiny(form, loss=losses.get(loss), **options)


@pytest.mark.parametrize(
    ("fits", "message"),
    [
        ({"bi": {"matryoshka_dims": (4, 0)}}, "each must be at least 1, and given once"),
        ({"bi": {"matryoshka_dims": (4, 4)}}, "each must be at least 1, and given once"),
        ({"cross": {"matryoshka_dims": (4,)}}, "cross-encoders have no embeddings"),
        ({"cross": {"mini_batch_size": 4}}, "give cross.gradient_accumulation_steps instead"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(fits, message):
    with pytest.raises(InputError, match=message):
        check_values(TransEncoder(pairs="pairs.tsv", **fits))


def test_a_run_takes_them_and_their_stages_are_others(tiny_bi_encoder, tmp_path):
    plain = FitConfig().key_settings
    assert not {"matryoshka_dims", "mini_batch_size"} & plain.keys(), "stages from before keep their keys"
    assert FitConfig(matryoshka_dims=(4,)).key_settings != plain != FitConfig(mini_batch_size=4).key_settings
    fit = replace(SimCSE.fit, batch_size=16, max_length=16, mini_batch_size=4, matryoshka_dims=(4,))
    texts = Dataset.from_dict({"text": [f"text number {number}" for number in range(32)]})
    config = SimCSE(
        sentences=texts, start=tiny_bi_encoder, projector=False, device="cpu", output=str(tmp_path), fit=fit
    )
    assert train(config).result["config"]["fit"]["matryoshka_dims"] == [4]
