"""Table 8's squared error of the logit: its values and gradient from a slow statement of it."""

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder

from transencoder.losses import LogitRegressionLoss, logit_regression


def slow_logit_regression(logits: list[float], targets: list[float]) -> float:
    return sum((x - y) ** 2 for x, y in zip(logits, targets, strict=True)) / len(logits)


@pytest.mark.parametrize("n", [1, 2, 7, 64])
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_is_equation_4s_loss_with_its_gradient(n, scale):
    rng = np.random.default_rng(n)
    logits, targets = torch.from_numpy(rng.normal(0, scale, n)).float(), torch.from_numpy(rng.random(n)).float()
    logits.requires_grad_()
    loss = logit_regression(logits, targets)
    loss.backward()
    assert loss.item() == pytest.approx(slow_logit_regression(logits.tolist(), targets.tolist()), rel=1e-5)
    torch.testing.assert_close(logits.grad, 2 * (logits.detach() - targets) / n)


def test_module_is_the_equation_on_the_models_logits(tiny_bi_encoder):
    cross = CrossEncoder(tiny_bi_encoder, num_labels=1, device="cpu").eval()
    sides, targets = [["balo", "bama dalo"], ["balo bama", "kama"]], torch.tensor([0.1, 0.9])
    logits = cross.predict(list(zip(*sides, strict=True)), activation_fn=torch.nn.Identity()).tolist()
    found = LogitRegressionLoss(cross)(sides, targets).item()
    assert found == pytest.approx(slow_logit_regression(logits, targets.tolist()), rel=1e-4)
    with pytest.raises(ValueError, match=r"allowed is \[0, 1\]"):
        LogitRegressionLoss(cross)(sides, targets + 1)
