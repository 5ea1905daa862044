"""Equation 2: its values and gradient from a slow statement of it, and its range."""

import math

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder

from transencoder.losses import SoftCrossEntropyLoss, soft_cross_entropy


def slow_soft_cross_entropy(logits: np.ndarray, targets: np.ndarray) -> float:
    total = 0.0
    for x, y in zip(logits.tolist(), targets.tolist(), strict=True):
        p = 1 / (1 + math.exp(-x))
        total += -(y * math.log(p) + (1 - y) * math.log(1 - p))
    return total / len(logits)


def draw(n: int, scale: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(0, scale, n), rng.random(n)


@pytest.fixture(scope="module")
def cross(tiny_bi_encoder):
    return CrossEncoder(tiny_bi_encoder, num_labels=1, device="cpu").eval()


@pytest.mark.parametrize("n", [1, 2, 7, 64])
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_is_equation_2(n, scale):
    logits, targets = draw(n, scale, seed=n)
    loss = soft_cross_entropy(torch.from_numpy(logits).float(), torch.from_numpy(targets).float())
    assert loss.shape == ()
    assert loss.item() == pytest.approx(slow_soft_cross_entropy(logits, targets), rel=1e-5)


@pytest.mark.parametrize("n", [1, 5, 33])
def test_gradient_is_sigmoid_minus_target_over_n(n):
    logits, targets = (torch.from_numpy(values).float() for values in draw(n, 2.0, seed=n))
    logits.requires_grad_()
    soft_cross_entropy(logits, targets).backward()
    torch.testing.assert_close(logits.grad, (torch.sigmoid(logits.detach()) - targets) / n)


@pytest.mark.parametrize("target", [0.0, 0.3, 1.0])
def test_is_never_negative_and_finite_at_the_extremes(target):
    for logit in (-200.0, -20.0, 0.0, 20.0, 200.0):
        loss = soft_cross_entropy(torch.tensor([logit]), torch.tensor([target])).item()
        assert loss >= 0
        assert math.isfinite(loss)


def test_is_least_where_the_sigmoid_is_the_target():
    targets = torch.tensor([0.2, 0.5, 0.9])
    best = soft_cross_entropy(torch.logit(targets), targets)
    for step in (-0.1, 0.1):
        assert soft_cross_entropy(torch.logit(targets) + step, targets) > best


def test_bf16_logits_are_summed_in_fp32():
    logits, targets = (torch.from_numpy(values) for values in draw(1000, 1.0, seed=0))
    loss = soft_cross_entropy(logits.bfloat16(), targets.float())
    assert loss.dtype == torch.float32
    rounded = logits.bfloat16().double().numpy()
    assert loss.item() == pytest.approx(slow_soft_cross_entropy(rounded, targets.numpy()), rel=1e-5)


def test_wrong_shapes_are_refused():
    with pytest.raises(Exception, match="soft_cross_entropy|shape|type"):
        soft_cross_entropy(torch.zeros(2, 1), torch.zeros(2))


@pytest.mark.parametrize("bad", [[0.5, 1.01], [-0.01, 0.5], [0.5, float("nan")]])
def test_targets_outside_the_range_are_refused(cross, bad):
    texts = [["balo", "bama"], ["balo", "dalo"]]
    with pytest.raises(ValueError, match=r"allowed is \[0, 1\].*allow_outside"):
        SoftCrossEntropyLoss(cross)(texts, torch.tensor(bad))


def test_targets_outside_the_range_are_taken_when_allowed(cross):
    loss = SoftCrossEntropyLoss(cross, allow_outside=True)
    texts, targets = [["balo", "bama"], ["balo", "dalo"]], np.array([-0.4, 0.5])
    logits = cross.predict(list(zip(*texts, strict=True)), activation_fn=torch.nn.Identity())
    found = loss(texts, torch.from_numpy(targets).float()).item()
    assert found == pytest.approx(slow_soft_cross_entropy(logits, targets), rel=1e-5)
    assert loss.get_config_dict() == {"allow_outside": True, "soft_share": None}


def test_the_range_itself_is_allowed(cross):
    assert SoftCrossEntropyLoss(cross)([["balo", "bama"], ["balo", "dalo"]], torch.tensor([0.0, 1.0])) > 0


def test_features_and_texts_give_the_same_loss(cross):
    texts = [["balo", "bama dalo"], ["balo", "dalo"]]
    targets = torch.tensor([0.2, 0.7])
    features = cross.preprocess(list(zip(*texts, strict=True)))
    loss = SoftCrossEntropyLoss(cross)
    assert loss([features], targets).item() == loss(texts, targets).item()
