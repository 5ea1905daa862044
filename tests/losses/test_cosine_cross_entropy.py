"""Table 8's cross-entropies for the bi-encoder: values and gradients from slow statements of them."""

import math

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from transencoder.losses import (
    ClippedCosineCrossEntropyLoss,
    CosineCrossEntropyLoss,
    clipped_cosine_cross_entropy,
    cosine_cross_entropy,
)


def slow_cross_entropy(probabilities: list[float], targets: list[float]) -> float:
    terms = [y * math.log(p) + (1 - y) * math.log(1 - p) for p, y in zip(probabilities, targets, strict=True)]
    return -sum(terms) / len(terms)


def as_logit(cosine: float) -> float:
    return 1 / (1 + math.exp(-cosine))


def clipped(cosine: float) -> float:
    return min(max(cosine, 1e-4), 1 - 1e-4)


EQUATIONS = [(cosine_cross_entropy, as_logit), (clipped_cosine_cross_entropy, clipped)]


def draw(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.uniform(-1, 1, n)).float(), torch.from_numpy(rng.random(n)).float()


@pytest.mark.parametrize(("equation", "probability"), EQUATIONS)
@pytest.mark.parametrize("n", [1, 2, 7, 64])
@pytest.mark.parametrize("seed", [0, 1])
def test_is_the_cross_entropy(equation, probability, n, seed):
    cosines, targets = draw(n, seed)
    loss = equation(cosines, targets)
    assert loss.shape == ()
    expected = slow_cross_entropy([probability(x) for x in cosines.tolist()], targets.tolist())
    assert loss.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("equation", [cosine_cross_entropy, clipped_cosine_cross_entropy])
def test_gradient_is_that_of_small_steps(equation):
    cosines, targets = torch.tensor([-0.5, 0.2, 0.8]), torch.tensor([0.3, 0.9, 0.1])
    cosines.requires_grad_()
    equation(cosines, targets).backward()
    for i, step in enumerate(torch.eye(3) * 1e-2):
        with torch.no_grad():
            slope = (equation(cosines + step, targets) - equation(cosines - step, targets)) / 2e-2
        assert cosines.grad[i].item() == pytest.approx(slope.item(), rel=2e-3, abs=1e-6)


def test_a_clipped_cosine_has_no_gradient_and_a_finite_loss():
    cosines = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    loss = clipped_cosine_cross_entropy(cosines, torch.tensor([1.0, 1.0, 0.0]))
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(1e-4), rel=1e-3)
    assert cosines.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("module", "equation"),
    [(CosineCrossEntropyLoss, cosine_cross_entropy), (ClippedCosineCrossEntropyLoss, clipped_cosine_cross_entropy)],
)
def test_modules_are_the_equations_on_the_models_cosines_under_autocast_too(module, equation, tiny_bi_encoder):
    bi = SentenceTransformer(tiny_bi_encoder, device="cpu").eval()
    sides = [["balo", "bama dalo", "gelo"], ["balo bama", "kama", "lelo"]]
    targets = torch.tensor([0.1, 0.5, 0.9])
    first, second = (torch.from_numpy(bi.encode(side)) for side in sides)
    expected = equation(torch.nn.functional.cosine_similarity(first, second), targets).item()

    def features() -> list[dict[str, object]]:
        return [dict(bi.preprocess(side)) for side in sides]

    assert module(bi)(features(), targets).item() == pytest.approx(expected, rel=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert module(bi)(features(), targets).item() == pytest.approx(expected, rel=0.05)
    with pytest.raises(ValueError, match=r"allowed is \[0, 1\]"):
        module(bi)(features(), targets + 1)
