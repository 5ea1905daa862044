"""A model whose attention needs no padding is given none, as by its own `preprocess`, and computes the same."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, DataCollatorWithFlattening

from tests.losses.batches import assert_same_features, read
from tests.rounding import model_rounding
from transencoder.fit.student import _in_mini_batches
from transencoder.losses.features import embed, embed_pairs, embed_sides, unpadded
from transencoder.scorers import BiScorer

SHORT = ["balo", "bama dalo", "gelo"]
LONG = ["balo bama dalo dama felo", "kama", "lelo memo " * 6]
MIXED = [f"balo {'dama ' * (i % 12)}" for i in range(70)]


def packed(module, query, key, value, attention_mask, scaling, dropout=0.0, *, cu_seq_lens_q, **more):
    """Compute what FlashAttention computes of texts one after the other."""
    assert attention_mask is None and len(query) == 1
    lengths = torch.diff(cu_seq_lens_q).long()
    text = torch.arange(len(lengths)).repeat_interleave(lengths)
    found = scaled_dot_product_attention(query, key, value, text[:, None] == text, dropout, scale=scaling)
    return found.transpose(1, 2), None


@pytest.fixture
def flat(bi):
    """A bi-encoder that stands for one with FlashAttention, which no CPU has."""
    AttentionInterface.register("packed", packed)
    AttentionMaskInterface.register("packed", lambda *_, **__: None)
    bi.transformers_model.set_attn_implementation("packed")
    first = bi[0]
    first.can_flatten_inputs, first._flatten_position_offset = True, 0
    first.data_collator = DataCollatorWithFlattening(return_seq_idx=True, return_flash_attn_kwargs=True)
    return bi


def plain(bi):
    bi[0].can_flatten_inputs = False
    bi.transformers_model.set_attn_implementation("sdpa")
    return bi


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("side", ["right", "left"])
def test_its_features_are_those_of_its_own_preprocess(flat, side, offset):
    flat[0]._flatten_position_offset = offset
    expected = flat.preprocess(LONG, prompt="balo: ")
    flat[0].can_flatten_inputs, flat.tokenizer.padding_side = False, side
    features = dict(flat.preprocess(LONG, prompt="balo: "))
    assert features["input_ids"].shape[0] == 3 and [*unpadded(flat, features)] == [*features]
    flat[0].can_flatten_inputs = True
    found = unpadded(flat, features)
    assert_same_features(found, expected)
    assert [*unpadded(flat, found)] == [*found]


def gradients(bi, columns):
    bi.zero_grad()
    first, second = embed_pairs(bi, columns)
    (first - second).square().sum().backward()
    return first.detach(), [p.grad.clone() for p in bi.parameters() if p.grad is not None]


def test_embeddings_and_gradients_are_the_same(flat):
    flat[0].can_flatten_inputs = False
    columns = read(flat, SHORT, LONG)
    flat[0].can_flatten_inputs = True
    found, own = gradients(flat, columns)
    expected, others = gradients(plain(flat), columns)
    torch.testing.assert_close(found, expected, rtol=0, atol=model_rounding(flat, expected))
    scale = max(each.abs().max().item() for each in others)
    for one, two in zip(own, others, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=model_rounding(flat, scale))


def test_sides_without_padding_are_not_joined(flat):
    """Was: sides whose longest texts are of one length were joined as if they were rows of padded texts."""
    columns = [dict(flat.preprocess(texts)) for texts in (["balo dama", "balo"], ["balo", "kama", "felo dalo"])]
    assert columns[0]["max_length_q"] == columns[1]["max_length_q"]
    with torch.no_grad():
        found = embed_sides(flat, columns)
        flat[0].can_flatten_inputs = False
        padded = dict(flat.preprocess(["balo dama", "balo", "balo", "kama", "felo dalo"]))
        expected = embed(plain(flat), padded)
    torch.testing.assert_close(found, expected, rtol=0, atol=model_rounding(flat, expected))


def test_scores_are_the_same(flat):
    pairs = Dataset.from_dict({"sentence1": MIXED, "sentence2": MIXED[1:] + SHORT[:1]})
    found = BiScorer(flat, precision="fp32").score(pairs)
    expected = BiScorer(plain(flat), precision="fp32").score(pairs)
    np.testing.assert_allclose(found, expected, rtol=0, atol=model_rounding(flat, 1.0))


def test_mini_batches_are_of_padded_rows(flat):
    with _in_mini_batches(flat, torch.nn.Module(), 2):
        assert not flat[0].can_flatten_inputs
    assert flat[0].can_flatten_inputs
