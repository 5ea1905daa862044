"""Mean squared error of the logit: the cross-encoder's loss that the paper's Table 8 warns of."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import mse_loss

from transencoder.losses.logits import LogitLoss


def logit_regression(logits: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """Mean over pairs of (x - y)^2, x being the raw logit (Trans-Encoder, equation 4 and Table 8: MSE for bi -> cross).

    Its gradient is 2 (x - y) / N. The logit itself learns the target: it is the score, clipped to [0, 1] where it
    labels. The paper finds that the student then copies its teacher; `soft_cross_entropy` forgives more.

    Args:
        logits: The cross-encoder's raw outputs, any real number.
        targets: Pseudo-labels, in [0, 1].

    Returns:
        The loss, a scalar.
    """
    return mse_loss(logits.float(), targets.float())


class LogitRegressionLoss(LogitLoss):
    """`logit_regression` as a module; see `LogitLoss`."""

    equation = staticmethod(logit_regression)
