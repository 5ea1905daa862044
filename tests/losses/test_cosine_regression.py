"""Equation 3: its values and gradient from a slow statement of it."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from transencoder.losses import CosineRegressionLoss, cosine_regression

SHORT = ["balo", "bama dalo", "gelo"]
LONG = ["balo bama dalo dama felo", "kama", "lelo memo " * 6]


def slow_cosine_regression(cosines: np.ndarray, targets: np.ndarray) -> float:
    return sum((x - y) ** 2 for x, y in zip(cosines.tolist(), targets.tolist(), strict=True)) / len(cosines)


def draw(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, n), rng.random(n)


def read(model: SentenceTransformer, *sides: list[str]) -> list[dict[str, object]]:
    return [dict(model.preprocess(side)) for side in sides]


@pytest.mark.parametrize("n", [1, 2, 7, 64])
@pytest.mark.parametrize("seed", [0, 1])
def test_is_equation_3(n, seed):
    cosines, targets = draw(n, seed)
    loss = cosine_regression(torch.from_numpy(cosines).float(), torch.from_numpy(targets).float())
    assert loss.shape == ()
    assert loss.item() == pytest.approx(slow_cosine_regression(cosines, targets), rel=1e-5)
    assert loss >= 0


def test_is_zero_only_at_the_targets():
    targets = torch.tensor([0.0, 0.4, 1.0])
    assert cosine_regression(targets, targets) == 0
    assert cosine_regression(targets - 0.01, targets) > 0


@pytest.mark.parametrize("n", [1, 5, 33])
def test_gradient_is_twice_the_difference_over_n(n):
    cosines, targets = (torch.from_numpy(values).float() for values in draw(n, seed=n))
    cosines.requires_grad_()
    cosine_regression(cosines, targets).backward()
    torch.testing.assert_close(cosines.grad, 2 * (cosines.detach() - targets) / n)


def test_bf16_cosines_are_compared_in_fp32():
    cosines, targets = (torch.from_numpy(values) for values in draw(1000, seed=0))
    loss = cosine_regression(cosines.bfloat16(), targets.float())
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(
        slow_cosine_regression(cosines.bfloat16().double().numpy(), targets.numpy()), rel=1e-5
    )


def test_wrong_shapes_are_refused():
    with pytest.raises(Exception, match="cosine_regression|shape|type"):
        cosine_regression(torch.zeros(2, 1), torch.zeros(2))


def test_module_is_the_equation_on_the_models_cosines(bi):
    targets = np.array([0.1, 0.5, 0.9])
    first, second = bi.encode(SHORT).astype(np.float64), bi.encode(LONG).astype(np.float64)
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    loss = CosineRegressionLoss(bi)(read(bi, SHORT, LONG), torch.from_numpy(targets).float())
    assert loss.item() == pytest.approx(slow_cosine_regression(cosines, targets), rel=1e-5)


@pytest.mark.parametrize("bad", [[0.5, 0.5, 1.01], [-0.01, 0.5, 0.5], [0.5, float("nan"), 0.5]])
def test_targets_outside_the_range_are_refused(bi, bad):
    with pytest.raises(ValueError, match=r"allowed is \[0, 1\].*allow_outside"):
        CosineRegressionLoss(bi)(read(bi, SHORT, LONG), torch.tensor(bad))


def test_targets_outside_the_range_are_taken_when_allowed(bi):
    loss = CosineRegressionLoss(bi, allow_outside=True)
    assert loss(read(bi, SHORT, SHORT), torch.tensor([-1.0, 3.0, 1.0])).item() == pytest.approx(8 / 3, rel=1e-5)
    assert loss.get_config_dict() == {"allow_outside": True, "soft_share": None}
