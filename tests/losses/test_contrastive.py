"""Contrastive losses: values and gradients from slow statements, projector, weights, noise, and two copies."""

import math

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from tests.losses.batches import embedded, read, tensors
from transencoder import losses
from transencoder.losses import (
    ContrastiveTensionLoss,
    InBatchContrastiveTensionLoss,
    InfoNCELoss,
    NTXentLoss,
    WeightedInfoNCELoss,
    contrastive_tension,
    in_batch_contrastive_tension,
    info_nce,
    nt_xent,
    tanh_projector,
    weighted_info_nce,
)
from transencoder.losses.contrastive import refine_noise

TEXTS = ["balo", "bama dalo", "gelo kama", "felo"]
OTHERS = ["balo", "kama", "gelo kama", "lelo"]
SAME = [1.0, 0.0, 1.0, 0.0]


def slow_cosines(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    return np.array([[q @ k / math.sqrt((q @ q) * (k @ k)) for k in keys] for q in queries])


def slow_info_nce(queries: np.ndarray, keys: np.ndarray, temperature: float, first_key: int = 0) -> float:
    return slow_weighted(queries, keys, np.ones((len(queries), len(keys))), temperature, first_key)


def slow_nt_xent(first: np.ndarray, second: np.ndarray, temperature: float) -> float:
    views = [(i, side, vector) for side, rows in enumerate((first, second)) for i, vector in enumerate(rows)]
    total = 0.0
    for i, side, vector in views:
        exponentials = {
            (j, other): math.exp(vector @ found / math.sqrt((vector @ vector) * (found @ found)) / temperature)
            for j, other, found in views
            if (j, other) != (i, side)
        }
        total -= math.log(exponentials[i, 1 - side] / sum(exponentials.values()))
    return total / len(views)


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


def slow_contrastive_tension(first: np.ndarray, second: np.ndarray, targets: list[float]) -> float:
    total = 0.0
    for a, b, target in zip(first, second, targets, strict=True):
        p = 1 / (1 + math.exp(-float(a @ b)))
        total -= math.log(p) if target else math.log(1 - p)
    return total / len(targets)


def slow_in_batch(first: np.ndarray, second: np.ndarray, temperature: float) -> float:
    return (slow_info_nce(first, second, temperature) + slow_info_nce(second, first, temperature)) / 2


FORMS = {"weighted": slow_weighted, "elementwise": slow_elementwise}


def draw(n: int, n_keys: int, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys, and weights of 0 and 1."""
    rng = np.random.default_rng(n + 10 * n_keys + 100 * dim)
    return rng.normal(size=(n, dim)), rng.normal(size=(n_keys, dim)), rng.integers(2, size=(n, n_keys)).astype(float)


@pytest.fixture
def complement(tiny_bi_encoder):
    return SentenceTransformer(tiny_bi_encoder, device="cpu")


@pytest.mark.parametrize(("n", "n_keys", "first_key"), [(1, 1, 0), (2, 2, 0), (7, 7, 0), (4, 12, 8), (3, 9, 3)])
@pytest.mark.parametrize("dim", [2, 16])
@pytest.mark.parametrize("temperature", [0.05, 0.2, 1.0])
def test_one_direction_in_all_forms_is_its_equation(n, n_keys, first_key, dim, temperature):
    queries, keys, weights = draw(n, n_keys, dim)
    loss = info_nce(*tensors(queries, keys), temperature, first_key)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(slow_info_nce(queries, keys, temperature, first_key), rel=1e-4, abs=1e-6)
    if temperature < 0.1 or n_keys == 1:  # where the slow form takes the logarithm of 0
        return
    for form, slow in FORMS.items():
        found = getattr(losses, f"{form}_info_nce")(*tensors(queries, keys, weights), temperature, first_key).item()
        assert found == pytest.approx(slow(queries, keys, weights, temperature, first_key), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("dim", [2, 16])
@pytest.mark.parametrize("temperature", [0.04, 0.2, 1.0])
def test_both_directions_are_their_equations(n, dim, temperature):
    first, second, _ = draw(n, n, dim)
    loss = nt_xent(*tensors(first, second), temperature)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(slow_nt_xent(first, second, temperature), rel=1e-4, abs=1e-6)
    learned, both = torch.tensor(temperature), tensors(first, second)
    in_batch = in_batch_contrastive_tension(*both, learned)
    assert in_batch.item() == pytest.approx(slow_in_batch(first, second, temperature), rel=1e-4, abs=1e-6)
    of_rows = [in_batch_contrastive_tension(*both, learned, row, 1).item() for row in range(n)]
    assert np.mean(of_rows) == pytest.approx(in_batch.item(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("dim", [1, 16])
def test_contrastive_tension_is_equation_1(n, dim):
    first, second, _ = draw(n, n, dim)
    targets = np.random.default_rng(n).integers(2, size=n)
    loss = contrastive_tension(*tensors(first, second, targets))
    assert loss.shape == ()
    assert loss.item() == pytest.approx(slow_contrastive_tension(first, second, targets.tolist()), rel=1e-4)


def test_gradients_are_those_of_finite_differences(check_gradient):
    queries, keys, weights = draw(3, 5, 4)
    (on,) = tensors(weights)
    check_gradient(lambda q, k: info_nce(q, k, 0.5, 1), lambda q, k: slow_info_nce(q, k, 0.5, 1), queries, keys)
    for form, slow in FORMS.items():
        loss = getattr(losses, f"{form}_info_nce")
        check_gradient(
            lambda q, k, loss=loss: loss(q, k, on, 0.5, 1),
            lambda q, k, slow=slow: slow(q, k, weights, 0.5, 1),
            queries,
            keys,
        )
    first, second, _ = draw(4, 4, 3)
    check_gradient(lambda a, b: nt_xent(a, b, 0.5), lambda a, b: slow_nt_xent(a, b, 0.5), first, second)
    check_gradient(in_batch_contrastive_tension, slow_in_batch, first, second, np.array(0.7))
    (same,) = tensors(np.array(SAME))
    check_gradient(
        lambda a, b: contrastive_tension(a, b, same), lambda a, b: slow_contrastive_tension(a, b, SAME), first, second
    )


def test_the_length_of_embeddings_does_not_matter_and_equal_ones_cost_the_logarithm_of_their_number():
    queries, keys, _ = tensors(*draw(5, 5, 8))
    torch.testing.assert_close(info_nce(3 * queries, 0.1 * keys, 0.05), info_nce(queries, keys, 0.05))
    assert info_nce(torch.ones(8, 3), torch.ones(8, 3), 0.05).item() == pytest.approx(math.log(8), rel=1e-5)


def test_swapping_the_views_changes_nothing_and_more_negatives_cost_more():
    first, second, _ = tensors(*draw(6, 6, 8))
    torch.testing.assert_close(nt_xent(first, second, 0.1), nt_xent(second, first, 0.1))
    both = (info_nce(first, second, 0.1) + info_nce(second, first, 0.1)) / 2
    assert nt_xent(first, second, 0.1) > both


def test_weights_of_one_make_it_info_nce_and_weights_of_zero_take_negatives_out():
    queries, keys, _ = tensors(*draw(4, 4, 8))
    ones = torch.ones(4, 4)
    torch.testing.assert_close(weighted_info_nce(queries, keys, ones, 0.1), info_nce(queries, keys, 0.1))
    assert weighted_info_nce(queries, keys, torch.zeros(4, 4), 0.1).item() == pytest.approx(0, abs=1e-6)


def test_modules_are_the_equations_on_the_models_embeddings(bi):
    first, second = embedded(bi, TEXTS, OTHERS)
    contrast, both_ways = InfoNCELoss(bi, temperature=0.1), NTXentLoss(bi, temperature=0.2)
    assert contrast(read(bi, TEXTS, OTHERS)).item() == pytest.approx(slow_info_nce(first, second, 0.1), rel=1e-4)
    assert contrast.get_config_dict() == {"temperature": 0.1, "projector": "Identity"}
    normalised = SentenceTransformer(modules=[*bi, Normalize()], device="cpu")
    assert InfoNCELoss(normalised, projector=tanh_projector(32)).get_config_dict()["projector"] == "Sequential"
    assert both_ways(read(bi, TEXTS, OTHERS)).item() == pytest.approx(slow_nt_xent(first, second, 0.2), rel=1e-4)
    assert both_ways.get_config_dict() == {"temperature": 0.2}
    tension = ContrastiveTensionLoss(bi)(read(bi, TEXTS, OTHERS), torch.tensor(SAME)).item()
    assert tension == pytest.approx(slow_contrastive_tension(first, second, SAME), rel=1e-4)
    in_batch = InBatchContrastiveTensionLoss(bi)
    assert in_batch(read(bi, TEXTS, OTHERS)).item() == pytest.approx(slow_in_batch(first, second, 0.05), rel=1e-4)
    assert in_batch.get_config_dict()["temperature"] == pytest.approx(0.05)


@pytest.mark.parametrize("loss", [InfoNCELoss, NTXentLoss, InBatchContrastiveTensionLoss])
@pytest.mark.parametrize("temperature", [0.0, -0.1, float("nan")])
def test_a_temperature_that_is_not_above_0_is_refused(bi, loss, temperature):
    with pytest.raises(ValueError, match=r"must be above 0"):
        loss(bi, temperature)


def test_the_projector_stands_between_embeddings_and_loss(bi):
    torch.manual_seed(1)
    projector = tanh_projector(32)
    linear = projector[0]
    assert linear.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not linear.bias.any()
    with torch.no_grad():
        linear.weight.mul_(50)
    (embeddings,) = embedded(bi, TEXTS)
    projected = np.tanh(embeddings @ linear.weight.detach().numpy().T)
    found = InfoNCELoss(bi, 0.05, projector)(read(bi, TEXTS, TEXTS)).item()
    assert found == pytest.approx(slow_info_nce(projected, projected, 0.05), rel=1e-3)
    assert found != pytest.approx(slow_info_nce(embeddings, embeddings, 0.05), rel=1e-2)
    assert not [name for name in bi.state_dict() if "projector" in name]


@pytest.mark.parametrize("form", FORMS)
def test_the_form_that_is_asked_for_is_the_loss(bi, complement, form):
    (embeddings,) = embedded(bi, TEXTS)
    cosines = slow_cosines(embeddings, embeddings)
    threshold = float(np.median(cosines[cosines < 0.999]))
    weights = (cosines <= threshold).astype(float)
    loss = WeightedInfoNCELoss(bi, complement, 1.0, threshold=threshold, noise_ratio=0.0, form=form)
    found = loss(read(bi, TEXTS, TEXTS)).item()
    assert found == pytest.approx(FORMS[form](embeddings, embeddings, weights, 1.0), rel=1e-3)


def test_refined_noise_is_harder_and_each_step_has_its_length():
    queries, keys, noise = tensors(*draw(6, 6, 8)[:2], np.random.default_rng(0).normal(size=(5, 8)))
    queries.requires_grad_()

    def loss(vectors):
        return info_nce(queries, torch.cat([keys, vectors]), 0.05).item()

    once = refine_noise(noise, queries, keys, 0.05, 1, 0.1)
    torch.testing.assert_close((once - noise).norm(dim=1), torch.full((5,), 0.1))
    assert loss(noise) < loss(once) < loss(refine_noise(noise, queries, keys, 0.05, 10, 0.1))
    assert torch.equal(refine_noise(noise, queries, keys, 0.05, 0, 0.1), noise)
    assert not once.requires_grad and queries.grad is None


def test_too_alike_sentences_are_no_negatives(bi, complement):
    texts = [*TEXTS, TEXTS[0]]
    (embeddings,) = embedded(bi, texts)
    weights = (slow_cosines(embeddings, embeddings) <= 0.9).astype(float)
    assert weights[0, 4] == weights[4, 0] == 0
    assert weights.sum() > 0
    found = WeightedInfoNCELoss(bi, complement, noise_ratio=0.0)(read(bi, texts, texts)).item()
    assert found == pytest.approx(slow_weighted(embeddings, embeddings, weights, 0.05), rel=1e-3)


def test_the_complement_is_frozen_and_read_without_dropout(bi, complement):
    loss = WeightedInfoNCELoss(bi, complement.train(), noise_ratio=1.5).train()
    loss(read(bi, TEXTS, TEXTS)).backward()
    assert not complement.training
    assert not any(parameter.requires_grad or parameter.grad is not None for parameter in complement.parameters())
    assert all(parameter.requires_grad for parameter in bi.parameters())


def test_noise_costs(bi, complement):
    costs = []
    for ratio in (0.0, 1.0, 4.0):
        torch.manual_seed(0)
        loss = WeightedInfoNCELoss(bi, complement, temperature=1.0, noise_ratio=ratio).eval()
        costs.append(loss(read(bi, TEXTS, TEXTS)).item())
    assert costs[0] < costs[1] < costs[2]


@pytest.mark.parametrize("loss_class", [ContrastiveTensionLoss, InBatchContrastiveTensionLoss])
def test_both_copies_learn_and_part(bi, loss_class):
    loss = loss_class(bi)
    assert all(torch.equal(a, b) for a, b in zip(loss.model.parameters(), loss.twin.parameters(), strict=True))
    optimiser = torch.optim.SGD(loss.parameters(), lr=0.002)
    values = []
    for _ in range(8):
        optimiser.zero_grad()
        value = loss(read(bi, TEXTS, OTHERS), torch.tensor(SAME))
        value.backward()
        optimiser.step()
        values.append(value.item())
    assert values[-1] < values[0]
    copies = [copy.state_dict() for copy in (loss.model, loss.twin)]
    name = next(each for each in copies[0] if each.endswith("word_embeddings.weight"))
    assert not torch.equal(copies[0][name], copies[1][name])
