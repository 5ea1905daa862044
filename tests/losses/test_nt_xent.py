"""Mirror-BERT's equation 1: values and gradient from a slow statement of it, symmetry, and the module."""

import math

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from transencoder.losses import NTXentLoss, info_nce, nt_xent

TEXTS = ["balo", "bama dalo", "gelo kama", "felo"]


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


def draw(n: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n + 100 * dim)
    return rng.normal(size=(n, dim)), rng.normal(size=(n, dim))


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("dim", [2, 16])
@pytest.mark.parametrize("temperature", [0.04, 0.2, 1.0])
def test_is_equation_1(n, dim, temperature):
    first, second = draw(n, dim)
    loss = nt_xent(torch.from_numpy(first).float(), torch.from_numpy(second).float(), temperature)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(slow_nt_xent(first, second, temperature), rel=1e-4, abs=1e-6)


def test_gradient_is_that_of_finite_differences():
    first, second = draw(3, 3)
    tensor = torch.from_numpy(first).float().requires_grad_()
    nt_xent(tensor, torch.from_numpy(second).float(), 0.5).backward()
    for i in range(3):
        for j in range(3):
            moved = [first.copy(), first.copy()]
            moved[0][i, j] += 1e-4
            moved[1][i, j] -= 1e-4
            up, down = (slow_nt_xent(each, second, 0.5) for each in moved)
            assert tensor.grad[i, j].item() == pytest.approx((up - down) / 2e-4, rel=1e-2, abs=1e-5)


def test_swapping_the_views_changes_nothing_and_more_negatives_cost_more():
    first, second = (torch.from_numpy(side).float() for side in draw(6, 8))
    torch.testing.assert_close(nt_xent(first, second, 0.1), nt_xent(second, first, 0.1))
    both = (info_nce(first, second, 0.1) + info_nce(second, first, 0.1)) / 2
    assert nt_xent(first, second, 0.1) > both


def test_module_is_the_equation_on_the_models_embeddings(tiny_bi_encoder):
    bi = SentenceTransformer(tiny_bi_encoder, device="cpu").eval()
    loss = NTXentLoss(bi, temperature=0.2)
    found = loss([dict(bi.preprocess(TEXTS)), dict(bi.preprocess(TEXTS[::-1]))]).item()
    first, second = bi.encode(TEXTS).astype(np.float64), bi.encode(TEXTS[::-1]).astype(np.float64)
    assert found == pytest.approx(slow_nt_xent(first, second, 0.2), rel=1e-4)
    assert loss.get_config_dict() == {"temperature": 0.2}
    with pytest.raises(ValueError, match="must be above 0"):
        NTXentLoss(bi, 0.0)
