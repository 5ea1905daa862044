"""Projectors of unit vectors: they see these at the scale that pooled vectors have."""

import math
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from transformers import AutoModelForMaskedLM, AutoTokenizer

from transencoder import train
from transencoder.configs.run import Given
from transencoder.encoders import load_bi
from transencoder.errors import InputError
from transencoder.losses import DualViewLoss, mlp_projector


@pytest.fixture
def pooled(tiny_bi_encoder):
    return load_bi(Path(tiny_bi_encoder), device="cpu")


@pytest.fixture
def given(pooled, tiny_plm):
    generator = AutoModelForMaskedLM.from_pretrained(tiny_plm), AutoTokenizer.from_pretrained(tiny_plm)
    return Given(dimension=48, queue=torch.eye(48), helpers={"generator": generator, "complement": pooled})


@pytest.mark.parametrize("method", ["simcse", "dclr", "diffcse", "sct", "congen", "ckd"])
def test_unit_vectors_come_in_times_the_root_of_their_width(tiny_start, pooled, given, method):
    config = tiny_start(method).prepared(1000)
    unit = SentenceTransformer(modules=[*pooled, Normalize()], device="cpu")
    projectors = []
    for student in (pooled, unit):
        torch.manual_seed(0)
        loss = config.loss(student, given)
        projectors.append([loss.projector, *([loss.teacher_projector] if method == "sct" else [])])
    vectors = torch.nn.functional.normalize(torch.randn(16, 32))
    for plain, scaled in zip(*projectors, strict=True):
        torch.testing.assert_close(scaled(vectors), plain(vectors * math.sqrt(32)))
        alike = torch.allclose(scaled(vectors), plain(vectors), atol=1e-3)
        assert not alike or method == "diffcse"  # which has batch norm


def test_that_of_embedding_mse_is_sentence_transformers_and_sees_them_as_they_are(tiny_start, pooled, given):
    unit = SentenceTransformer(modules=[*pooled, Normalize()], device="cpu")
    loss = tiny_start("embedding-mse").prepared(1000).loss(unit, given)
    (projector,) = (each for each in loss.children() if isinstance(each, torch.nn.Linear))
    side, target = dict(unit.preprocess(["a cat", "two dogs"])), torch.randn(2, 48)
    expected = torch.nn.functional.mse_loss(projector(unit(dict(side))["sentence_embedding"]), target)
    unit.eval()
    torch.testing.assert_close(loss([side], target), expected)


def test_dclrs_projector_may_stand_on_the_pretrained_pooler(tiny_start, pooled, given):
    linear = pooled.transformers_model.pooler.dense
    vectors = torch.randn(16, 32)
    both = tiny_start("dclr", on_pooler=True, pooling="cls").loss(pooled, given)
    own = tiny_start("dclr", on_pooler=True, pooling="cls", projector=False).loss(pooled, given).projector
    torch.testing.assert_close(own(vectors), linear(vectors).tanh())
    torch.testing.assert_close(both.projector(vectors), both.projector[2:](linear(vectors).tanh()))
    assert own[0].weight.data_ptr() != linear.weight.data_ptr(), "it is a copy, which training moves"
    pooled.requires_grad_(False)  # as adapters leave it
    assert all(
        each.requires_grad
        for each in tiny_start("dclr", on_pooler=True, pooling="cls").loss(pooled, given).projector.parameters()
    )
    with pytest.raises(InputError, match="has no weights of a pooler"):
        train(tiny_start("dclr", on_pooler=True, pooling="cls"))
    with pytest.raises(InputError, match="on_pooler is of pooling cls, and pooling is mean"):
        tiny_start("dclr", on_pooler=True, pooling="mean")


def test_a_classifier_sees_them_so_too(pooled):
    unit = SentenceTransformer(modules=[*pooled, Normalize()], device="cpu")
    loss = DualViewLoss(unit, 3).eval()
    sides = [dict(unit.preprocess(texts)) for texts in (["a cat", "two dogs"], ["the cat", "no dog"])]
    first, second = (math.sqrt(32) * unit(dict(side))["sentence_embedding"] for side in sides)
    logits = loss.classifier(torch.cat([first, second, (first - second).abs()], dim=1))
    classes = torch.tensor([0, 2])
    torch.testing.assert_close(loss(sides, classes), torch.nn.functional.cross_entropy(logits, classes))


def test_behind_three_mlps_unit_vectors_are_all_alike_and_scaled_ones_are_not():
    """The reason, at all-MiniLM-L6-v2's width: biases are as large as what a unit vector gives."""
    torch.manual_seed(0)
    vectors, projector = torch.nn.functional.normalize(torch.randn(64, 384)), mlp_projector(384)

    def likeness(each):
        cosines = torch.nn.functional.cosine_similarity(each[:, None], each[None], dim=-1)
        return ((cosines.sum() - 64) / (64 * 63)).item()

    with torch.no_grad():
        assert likeness(projector(vectors)) > 0.998
        assert likeness(projector(vectors * math.sqrt(384))) < 0.85
