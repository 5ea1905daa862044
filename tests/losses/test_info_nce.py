"""SimCSE's equation 4: values and gradient from a slow statement of it, and the train-only projector."""

import math

import numpy as np
import pytest
import torch

from transencoder.losses import InfoNCELoss, info_nce, tanh_projector

TEXTS = ["balo", "bama dalo", "gelo kama", "felo"]


def slow_info_nce(queries: np.ndarray, keys: np.ndarray, temperature: float, first_key: int = 0) -> float:
    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / math.sqrt(a @ a) / math.sqrt(b @ b))

    total = 0.0
    for i, query in enumerate(queries):
        exponentials = [math.exp(cosine(query, key) / temperature) for key in keys]
        total -= math.log(exponentials[first_key + i] / sum(exponentials))
    return total / len(queries)


def draw(n_queries: int, n_keys: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n_queries + 10 * n_keys + 100 * dim)
    return rng.normal(size=(n_queries, dim)), rng.normal(size=(n_keys, dim))


@pytest.mark.parametrize(("n_queries", "n_keys", "first_key"), [(1, 1, 0), (2, 2, 0), (7, 7, 0), (4, 12, 8), (3, 9, 3)])
@pytest.mark.parametrize("dim", [2, 16])
@pytest.mark.parametrize("temperature", [0.04, 0.05, 1.0])
def test_is_equation_4(n_queries, n_keys, first_key, dim, temperature):
    queries, keys = draw(n_queries, n_keys, dim)
    loss = info_nce(torch.from_numpy(queries).float(), torch.from_numpy(keys).float(), temperature, first_key)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(slow_info_nce(queries, keys, temperature, first_key), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("n", [2, 5])
def test_gradient_is_that_of_finite_differences(n):
    queries, keys = (torch.from_numpy(side) for side in draw(n, n, 3))
    tensor = queries.float().requires_grad_()
    info_nce(tensor, keys.float(), 0.5).backward()
    for i in range(n):
        for j in range(3):
            moved = [queries.numpy().copy() for _ in range(2)]
            moved[0][i, j] += 1e-4
            moved[1][i, j] -= 1e-4
            up, down = (slow_info_nce(each, keys.numpy(), 0.5) for each in moved)
            assert tensor.grad[i, j].item() == pytest.approx((up - down) / 2e-4, rel=1e-2, abs=1e-5)


def test_the_length_of_embeddings_does_not_matter():
    queries, keys = (torch.from_numpy(side).float() for side in draw(5, 5, 8))
    torch.testing.assert_close(info_nce(3 * queries, 0.1 * keys, 0.05), info_nce(queries, keys, 0.05))


def test_equal_embeddings_cost_the_logarithm_of_their_number():
    assert info_nce(torch.ones(8, 3), torch.ones(8, 3), 0.05).item() == pytest.approx(math.log(8), rel=1e-5)


def test_module_is_the_equation_on_the_models_embeddings(bi):
    loss = InfoNCELoss(bi, temperature=0.1)
    sides = [dict(bi.preprocess(TEXTS)), dict(bi.preprocess(TEXTS[::-1]))]
    first, second = bi.encode(TEXTS).astype(np.float64), bi.encode(TEXTS[::-1]).astype(np.float64)
    assert loss(sides).item() == pytest.approx(slow_info_nce(first, second, 0.1), rel=1e-4)
    assert loss.get_config_dict() == {"temperature": 0.1, "projector": "Identity"}


def test_the_projector_stands_between_embeddings_and_loss(bi):
    torch.manual_seed(1)
    projector = tanh_projector(32)
    linear = projector[0]
    assert linear.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not linear.bias.any()
    with torch.no_grad():
        linear.weight.mul_(50)
    embeddings = bi.encode(TEXTS).astype(np.float64)
    projected = np.tanh(embeddings @ linear.weight.detach().numpy().T)
    found = InfoNCELoss(bi, 0.05, projector)([dict(bi.preprocess(TEXTS)), dict(bi.preprocess(TEXTS))]).item()
    assert found == pytest.approx(slow_info_nce(projected, projected, 0.05), rel=1e-3)
    assert found != pytest.approx(slow_info_nce(embeddings, embeddings, 0.05), rel=1e-2)
    assert not [name for name in bi.state_dict() if "projector" in name]


@pytest.mark.parametrize("temperature", [0.0, -0.1, float("nan")])
def test_a_temperature_that_is_not_above_0_is_refused(bi, temperature):
    with pytest.raises(ValueError, match=r"must be above 0"):
        InfoNCELoss(bi, temperature)
