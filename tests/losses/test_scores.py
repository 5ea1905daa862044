"""Losses of scores: values and gradients from slow statements of them, their ranges, and the modules."""

import math

import numpy as np
import pytest
import torch

from tests.losses.batches import read
from transencoder import losses
from transencoder.losses import cosine_regression, log_cosh, logit_regression, soft_cross_entropy

SHORT = ["balo", "bama dalo", "gelo"]
LONG = ["balo bama dalo dama felo", "kama", "lelo memo " * 6]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def clipped(x: float) -> float:
    return min(max(x, 1e-4), 1 - 1e-4)


def cross_entropy(p: float, y: float) -> float:
    return -(y * math.log(p) + (1 - y) * math.log(1 - p))


SLOW = {
    "cosine_regression": (lambda x, y: (x - y) ** 2, lambda x, y: 2 * (x - y)),
    "logit_regression": (lambda x, y: (x - y) ** 2, lambda x, y: 2 * (x - y)),
    "log_cosh": (lambda x, y: math.log(math.cosh(x - y)), lambda x, y: math.tanh(x - y)),
    "soft_cross_entropy": (lambda x, y: cross_entropy(sigmoid(x), y), lambda x, y: sigmoid(x) - y),
    "cosine_cross_entropy": (lambda x, y: cross_entropy(sigmoid(x), y), lambda x, y: sigmoid(x) - y),
    "clipped_cosine_cross_entropy": (
        lambda x, y: cross_entropy(clipped(x), y),
        lambda x, y: (x - y) / (x * (1 - x)) if clipped(x) == x else 0.0,
    ),
}
"""Equation -> one pair's loss, and its slope."""

OF_LOGITS = ("soft_cross_entropy", "logit_regression")


def draw(name: str, n: int, scale: float = 1.0, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed + n)
    scores = rng.normal(0, scale, n) if name in OF_LOGITS else rng.uniform(-1, 1, n)
    return torch.from_numpy(scores).float(), torch.from_numpy(rng.random(n)).float()


def slow(name: str, scores: torch.Tensor, targets: torch.Tensor) -> float:
    return sum(map(SLOW[name][0], scores.tolist(), targets.tolist())) / len(scores)


@pytest.fixture
def module_and_batch(bi, cross):
    """Of an equation: its module, a batch for it, and the scores of that batch."""

    def make(name: str, **settings):
        if name in OF_LOGITS:
            cross.eval()
            pairs = list(zip(SHORT, LONG, strict=True))
            logits = torch.from_numpy(cross.predict(pairs, activation_fn=torch.nn.Identity()))
            return losses.LogitLoss(cross, getattr(losses, name), **settings), [SHORT, LONG], logits
        first, second = (torch.from_numpy(bi.encode(side)) for side in (SHORT, LONG))
        cosines = torch.nn.functional.cosine_similarity(first, second)
        return losses.CosineLoss(bi, getattr(losses, name), **settings), read(bi, SHORT, LONG), cosines

    return make


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("n", [1, 2, 7, 64])
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_is_its_equation_with_its_gradient(name, n, scale):
    scores, targets = draw(name, n, scale, seed=int(scale))
    scores.requires_grad_()
    loss = getattr(losses, name)(scores, targets)
    loss.backward()
    assert loss.shape == () and loss >= 0
    assert loss.item() == pytest.approx(slow(name, scores, targets), rel=1e-4, abs=1e-7)
    slopes = list(map(SLOW[name][1], scores.tolist(), targets.tolist()))
    np.testing.assert_allclose(scores.grad, np.array(slopes) / n, rtol=1e-3, atol=1e-6)


def test_squared_errors_are_zero_only_at_the_targets():
    targets = torch.tensor([0.0, 0.4, 1.0])
    assert cosine_regression(targets, targets) == log_cosh(targets, targets) == 0
    assert cosine_regression(targets - 0.01, targets) > 0


def test_small_differences_count_half_of_their_square_and_those_that_cosh_cannot_hold_are_taken():
    targets = torch.linspace(0, 1, 11)
    cosines = targets + 0.01
    assert log_cosh(cosines, targets).item() == pytest.approx(cosine_regression(cosines, targets).item() / 2, rel=1e-3)
    assert log_cosh(torch.tensor([1000.0]), torch.tensor([0.0])).item() == pytest.approx(1000 - math.log(2))


def test_a_clipped_cosine_has_no_gradient_and_a_finite_loss():
    cosines = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    loss = losses.clipped_cosine_cross_entropy(cosines, torch.tensor([1.0, 1.0, 0.0]))
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(1e-4), rel=1e-3)
    assert cosines.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("target", [0.0, 0.3, 1.0])
def test_the_soft_cross_entropy_is_never_negative_and_finite_at_the_extremes(target):
    for logit in (-200.0, -20.0, 0.0, 20.0, 200.0):
        loss = soft_cross_entropy(torch.tensor([logit]), torch.tensor([target])).item()
        assert loss >= 0
        assert math.isfinite(loss)


def test_the_soft_cross_entropy_is_least_where_the_sigmoid_is_the_target():
    targets = torch.tensor([0.2, 0.5, 0.9])
    best = soft_cross_entropy(torch.logit(targets), targets)
    for step in (-0.1, 0.1):
        assert soft_cross_entropy(torch.logit(targets) + step, targets) > best


@pytest.mark.parametrize("name", ["cosine_regression", "soft_cross_entropy"])
def test_bf16_scores_are_compared_in_fp32(name):
    scores, targets = draw(name, 1000)
    loss = getattr(losses, name)(scores.bfloat16(), targets)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(slow(name, scores.bfloat16(), targets), rel=1e-5)


@pytest.mark.parametrize("equation", [cosine_regression, soft_cross_entropy, logit_regression])
def test_wrong_shapes_are_refused(equation):
    with pytest.raises(Exception, match=f"{equation.__name__}|shape|type"):
        equation(torch.zeros(2, 1), torch.zeros(2))


@pytest.mark.parametrize("name", SLOW)
def test_modules_are_the_equations_on_the_models_scores_under_autocast_too(name, module_and_batch):
    targets = torch.tensor([0.1, 0.5, 0.9])
    module, batch, scores = module_and_batch(name)
    expected = slow(name, scores, targets)
    assert module(batch, targets).item() == pytest.approx(expected, rel=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert module(batch, targets).item() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("bad", [[0.5, 0.5, 1.01], [-0.01, 0.5, 0.5], [0.5, float("nan"), 0.5]])
def test_targets_outside_the_range_are_refused(name, bad, module_and_batch):
    module, batch, _ = module_and_batch(name)
    with pytest.raises(ValueError, match=r"allowed is \[0, 1\].*allow_outside"):
        module(batch, torch.tensor(bad))
    assert module(batch, torch.tensor([0.0, 1.0, 1.0])) > 0, "the range itself is allowed"


@pytest.mark.parametrize("name", ["cosine_regression", "soft_cross_entropy"])
def test_targets_outside_the_range_are_taken_when_allowed(name, module_and_batch):
    module, batch, scores = module_and_batch(name, allow_outside=True)
    targets = torch.tensor([-0.4, 3.0, 0.5])
    assert module(batch, targets).item() == pytest.approx(slow(name, scores, targets), rel=1e-4)
    assert module.get_config_dict() == {"equation": name, "allow_outside": True, "soft_share": None}


def test_the_papers_equations_are_the_defaults(bi, cross):
    assert losses.CosineLoss(bi).equation is cosine_regression
    assert losses.LogitLoss(cross).equation is soft_cross_entropy


def test_features_and_texts_give_the_same_loss(cross):
    texts, targets = [["balo", "bama dalo"], ["balo", "dalo"]], torch.tensor([0.2, 0.7])
    features = cross.preprocess(list(zip(*texts, strict=True)))
    loss = losses.LogitLoss(cross.eval())
    assert loss([features], targets).item() == loss(texts, targets).item()
