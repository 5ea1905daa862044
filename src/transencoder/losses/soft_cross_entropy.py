"""Soft binary cross-entropy: how a cross-encoder learns a bi-encoder's scores (paper, equation 2)."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from transencoder.losses.logits import LogitLoss


def soft_cross_entropy(logits: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """Mean over pairs of -(y log sigmoid(x) + (1 - y) log(1 - sigmoid(x))) (Trans-Encoder, equation 2).

    Never negative for targets in [0, 1], where its gradient is (sigmoid(x) - y) / N; the paper's equation 4 prints the
    opposite sign. Unbounded below for targets outside [0, 1]. Its sibling `cosine_regression` punishes any difference
    of scores; this one forgives at both ends, which keeps student and teacher apart (paper, section 2.3).

    Args:
        logits: The cross-encoder's raw outputs, any real number.
        targets: Pseudo-labels, in [0, 1].

    Returns:
        The loss, a scalar.
    """
    return binary_cross_entropy_with_logits(logits.float(), targets.float())


class SoftCrossEntropyLoss(LogitLoss):
    """`soft_cross_entropy` as a module; see `LogitLoss`. Outside [0, 1] targets leave it without a lower bound."""

    equation = staticmethod(soft_cross_entropy)
