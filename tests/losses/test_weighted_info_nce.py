"""DCLR's loss in its two forms, its noise, and its weights, against slow statements of them."""

import math

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from transencoder.losses import WeightedInfoNCELoss, elementwise_info_nce, info_nce, weighted_info_nce
from transencoder.losses.contrastive import refine_noise

TEXTS = ["balo", "bama dalo", "gelo kama", "felo"]


def slow_cosines(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    return np.array([[q @ k / math.sqrt((q @ q) * (k @ k)) for k in keys] for q in queries])


def slow_weighted(
    queries: np.ndarray, keys: np.ndarray, weights: np.ndarray, temperature: float, first_key: int = 0
) -> float:
    total = 0.0
    for i, row in enumerate(slow_cosines(queries, keys), first_key):
        of_keys = weights[i - first_key]
        exponentials = [(1.0 if i == j else of_keys[j]) * math.exp(c / temperature) for j, c in enumerate(row)]
        total -= math.log(exponentials[i] / sum(exponentials))
    return total / len(queries)


def slow_elementwise(
    queries: np.ndarray, keys: np.ndarray, weights: np.ndarray, temperature: float, first_key: int = 0
) -> float:
    total = 0.0
    for i, row in enumerate(slow_cosines(queries, keys), first_key):
        of_keys = weights[i - first_key]
        exponentials = [math.exp((1.0 if i == j else of_keys[j]) * c / temperature) for j, c in enumerate(row)]
        for j, exponential in enumerate(exponentials):
            p = exponential / sum(exponentials)
            total -= math.log(p) if i == j else math.log(1 - p)
    return total / len(queries) / len(keys)


FORMS = [(weighted_info_nce, slow_weighted), (elementwise_info_nce, slow_elementwise)]


def draw(n: int, n_keys: int, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n + 10 * n_keys + 100 * dim)
    return rng.normal(size=(n, dim)), rng.normal(size=(n_keys, dim)), rng.integers(2, size=(n, n_keys)).astype(float)


def tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(array).float() for array in arrays]


@pytest.mark.parametrize(("n", "n_keys", "first_key"), [(2, 2, 0), (5, 5, 0), (3, 8, 0), (3, 8, 4)])
@pytest.mark.parametrize("dim", [2, 16])
@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_both_forms_are_their_equations(n, n_keys, first_key, dim, temperature):
    arrays = draw(n, n_keys, dim)
    for form, slow in FORMS:
        found = form(*tensors(*arrays), temperature, first_key).item()
        assert found == pytest.approx(slow(*arrays, temperature, first_key), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(("form", "slow"), FORMS)
def test_gradients_are_those_of_finite_differences(form, slow, check_gradient):
    queries, keys, weights = draw(3, 5, 4)
    on = torch.from_numpy(weights).float()
    check_gradient(lambda q, k: form(q, k, on, 0.5, 1), lambda q, k: slow(q, k, weights, 0.5, 1), queries, keys)


def test_the_form_that_is_asked_for_is_the_loss(bi, tiny_bi_encoder):
    embeddings = bi.encode(TEXTS).astype(np.float64)
    cosines = slow_cosines(embeddings, embeddings)
    threshold = float(np.median(cosines[cosines < 0.999]))
    weights = (cosines <= threshold).astype(float)
    for form, (_, slow) in zip(("weighted", "elementwise"), FORMS, strict=True):
        complement = SentenceTransformer(tiny_bi_encoder, device="cpu")
        loss = WeightedInfoNCELoss(bi, complement, 1.0, threshold=threshold, noise_ratio=0.0, form=form)
        found = loss([dict(bi.preprocess(TEXTS)), dict(bi.preprocess(TEXTS))]).item()
        assert found == pytest.approx(slow(embeddings, embeddings, weights, 1.0), rel=1e-3)


def test_weights_of_one_make_it_info_nce_and_weights_of_zero_take_negatives_out():
    queries, keys, _ = tensors(*draw(4, 4, 8))
    ones = torch.ones(4, 4)
    torch.testing.assert_close(weighted_info_nce(queries, keys, ones, 0.1), info_nce(queries, keys, 0.1))
    assert weighted_info_nce(queries, keys, torch.zeros(4, 4), 0.1).item() == pytest.approx(0, abs=1e-6)


def test_refined_noise_is_harder_and_each_step_has_its_length():
    queries, keys, noise = tensors(*draw(6, 6, 8)[:2], np.random.default_rng(0).normal(size=(5, 8)))
    queries.requires_grad_()

    def loss(vectors):
        everything = torch.cat([keys, vectors])
        return weighted_info_nce(queries, everything, torch.ones(6, 11), 0.05).item()

    once = refine_noise(noise, queries, keys, 0.05, 1, 0.1)
    torch.testing.assert_close((once - noise).norm(dim=1), torch.full((5,), 0.1))
    assert loss(noise) < loss(once) < loss(refine_noise(noise, queries, keys, 0.05, 10, 0.1))
    assert torch.equal(refine_noise(noise, queries, keys, 0.05, 0, 0.1), noise)
    assert not once.requires_grad and queries.grad is None


def test_too_alike_sentences_are_no_negatives(bi, tiny_bi_encoder):
    texts = [*TEXTS, TEXTS[0]]
    loss = WeightedInfoNCELoss(bi, SentenceTransformer(tiny_bi_encoder, device="cpu"), noise_ratio=0.0)
    embeddings = bi.encode(texts).astype(np.float64)
    weights = (slow_cosines(embeddings, embeddings) <= 0.9).astype(float)
    assert weights[0, 4] == weights[4, 0] == 0
    assert weights.sum() > 0
    features = [dict(bi.preprocess(texts)), dict(bi.preprocess(texts))]
    assert loss(features).item() == pytest.approx(slow_weighted(embeddings, embeddings, weights, 0.05), rel=1e-3)


def test_the_complement_is_frozen_and_read_without_dropout(bi, tiny_bi_encoder):
    complement = SentenceTransformer(tiny_bi_encoder, device="cpu").train()
    loss = WeightedInfoNCELoss(bi, complement, noise_ratio=1.5).train()
    features = [dict(bi.preprocess(TEXTS)), dict(bi.preprocess(TEXTS))]
    loss(features).backward()
    assert not complement.training
    assert not any(parameter.requires_grad or parameter.grad is not None for parameter in complement.parameters())
    assert all(parameter.requires_grad for parameter in bi.parameters())


def test_noise_costs(bi, tiny_bi_encoder):
    features = [dict(bi.preprocess(TEXTS)), dict(bi.preprocess(TEXTS))]
    costs = []
    for ratio in (0.0, 1.0, 4.0):
        torch.manual_seed(0)
        complement = SentenceTransformer(tiny_bi_encoder, device="cpu")
        loss = WeightedInfoNCELoss(bi.eval(), complement, temperature=1.0, noise_ratio=ratio)
        loss.eval()
        costs.append(loss(features).item())
    assert costs[0] < costs[1] < costs[2]
