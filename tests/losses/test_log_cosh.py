"""Log-Cosh: its values and gradient from a slow statement of it."""

import math

import numpy as np
import pytest
import torch

from transencoder.losses import cosine_regression, log_cosh


def slow_log_cosh(cosines: np.ndarray, targets: np.ndarray) -> float:
    differences = [x - y for x, y in zip(cosines.tolist(), targets.tolist(), strict=True)]
    return sum(math.log(math.cosh(difference)) for difference in differences) / len(differences)


def draw(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.uniform(-1, 1, n)).float(), torch.from_numpy(rng.random(n)).float()


@pytest.mark.parametrize("n", [1, 2, 7, 64])
@pytest.mark.parametrize("seed", [0, 1])
def test_is_the_mean_of_log_cosh(n, seed):
    cosines, targets = draw(n, seed)
    loss = log_cosh(cosines, targets)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(
        slow_log_cosh(cosines.double().numpy(), targets.double().numpy()), rel=1e-5, abs=1e-7
    )


@pytest.mark.parametrize("n", [1, 5, 33])
def test_gradient_is_the_tangent_of_the_difference_over_n(n):
    cosines, targets = draw(n, seed=n)
    cosines.requires_grad_()
    log_cosh(cosines, targets).backward()
    torch.testing.assert_close(cosines.grad, torch.tanh(cosines.detach() - targets) / n)


def test_small_differences_count_half_of_their_square():
    targets = torch.linspace(0, 1, 11)
    cosines = targets + 0.01
    assert log_cosh(cosines, targets).item() == pytest.approx(cosine_regression(cosines, targets).item() / 2, rel=1e-3)
    assert log_cosh(targets, targets) == 0


def test_differences_that_cosh_cannot_hold_are_taken():
    assert log_cosh(torch.tensor([1000.0]), torch.tensor([0.0])).item() == pytest.approx(1000 - math.log(2))
