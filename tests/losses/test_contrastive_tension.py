"""Contrastive Tension's equation 1 and sentence-transformers' in-batch form: slow statements, two copies, learning."""

import math

import numpy as np
import pytest
import torch

from transencoder.losses import (
    ContrastiveTensionLoss,
    InBatchContrastiveTensionLoss,
    contrastive_tension,
    in_batch_contrastive_tension,
)

TEXTS = ["balo", "bama dalo", "gelo kama", "felo"]
OTHERS = ["balo", "kama", "gelo kama", "lelo"]
SAME = [1.0, 0.0, 1.0, 0.0]


def slow_contrastive_tension(first: np.ndarray, second: np.ndarray, targets: list[float]) -> float:
    total = 0.0
    for a, b, target in zip(first, second, targets, strict=True):
        p = 1 / (1 + math.exp(-float(a @ b)))
        total -= math.log(p) if target else math.log(1 - p)
    return total / len(targets)


def slow_in_batch(first: np.ndarray, second: np.ndarray, temperature: float) -> float:
    first = first / np.linalg.norm(first, axis=1, keepdims=True)
    second = second / np.linalg.norm(second, axis=1, keepdims=True)
    total = 0.0
    for here, there in ((first, second), (second, first)):
        for i, vector in enumerate(here):
            exponentials = [math.exp(float(vector @ other) / temperature) for other in there]
            total -= math.log(exponentials[i] / sum(exponentials))
    return total / (2 * len(first))


def sides(bi):
    return [dict(bi.preprocess(TEXTS)), dict(bi.preprocess(OTHERS))]


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("dim", [1, 16])
def test_is_equation_1(n, dim):
    rng = np.random.default_rng(n + 100 * dim)
    first, second, targets = rng.normal(size=(n, dim)), rng.normal(size=(n, dim)), rng.integers(2, size=n)
    tensors = [torch.from_numpy(each).float() for each in (first, second, targets)]
    loss = contrastive_tension(*tensors)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(slow_contrastive_tension(first, second, targets.tolist()), rel=1e-4)


def test_gradient_pulls_the_same_together_and_others_apart():
    first = torch.tensor([[1.0, 2.0], [0.5, -1.0]], requires_grad=True)
    second = torch.tensor([[0.3, 0.1], [1.0, 1.0]])
    contrastive_tension(first, second, torch.tensor([1.0, 0.0])).backward()
    p = torch.sigmoid((first.detach() * second).sum(1))
    expected = (p - torch.tensor([1.0, 0.0]))[:, None] * second / 2
    torch.testing.assert_close(first.grad, expected)


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("dim", [2, 16])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_the_in_batch_form_is_its_equation(n, dim, temperature):
    rng = np.random.default_rng(n + 100 * dim)
    first, second = rng.normal(size=(n, dim)), rng.normal(size=(n, dim))
    tensors = [torch.from_numpy(each).float() for each in (first, second)]
    loss = in_batch_contrastive_tension(*tensors, torch.tensor(temperature))
    of_rows = [in_batch_contrastive_tension(*tensors, torch.tensor(temperature), row, 1).item() for row in range(n)]
    assert np.mean(of_rows) == pytest.approx(loss.item(), rel=1e-4, abs=1e-6)
    assert loss.item() == pytest.approx(slow_in_batch(first, second, temperature), rel=1e-4, abs=1e-6)


def test_the_in_batch_gradient_is_that_of_finite_differences(check_gradient):
    rng = np.random.default_rng(0)
    first, second, temperature = rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), np.array(0.7)
    check_gradient(in_batch_contrastive_tension, slow_in_batch, first, second, temperature)


def test_the_modules_are_their_equations_on_two_copies(bi):
    first, second = bi.encode(TEXTS).astype(np.float64), bi.encode(OTHERS).astype(np.float64)
    loss = ContrastiveTensionLoss(bi)(sides(bi), torch.tensor(SAME)).item()
    assert loss == pytest.approx(slow_contrastive_tension(first, second, SAME), rel=1e-4)
    in_batch = InBatchContrastiveTensionLoss(bi)
    assert in_batch(sides(bi)).item() == pytest.approx(slow_in_batch(first, second, 0.05), rel=1e-4)
    assert in_batch.get_config_dict()["temperature"] == pytest.approx(0.05)
    with pytest.raises(ValueError, match="above 0"):
        InBatchContrastiveTensionLoss(bi, 0.0)


@pytest.mark.parametrize("loss_class", [ContrastiveTensionLoss, InBatchContrastiveTensionLoss])
def test_both_copies_learn_and_part(bi, loss_class):
    loss = loss_class(bi)
    assert all(torch.equal(a, b) for a, b in zip(loss.model.parameters(), loss.twin.parameters(), strict=True))
    optimiser = torch.optim.SGD(loss.parameters(), lr=0.002)
    values = []
    for _ in range(8):
        optimiser.zero_grad()
        value = loss(sides(bi), torch.tensor(SAME))
        value.backward()
        optimiser.step()
        values.append(value.item())
    assert values[-1] < values[0]
    copies = [copy.state_dict() for copy in (loss.model, loss.twin)]
    name = next(each for each in copies[0] if each.endswith("word_embeddings.weight"))
    assert not torch.equal(copies[0][name], copies[1][name])
