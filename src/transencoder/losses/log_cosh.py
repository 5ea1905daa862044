"""Log-Cosh of the cosine's error: a regression that the paper tried in place of equation 3 (appendix A.2)."""

import math

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from transencoder.losses.cosines import CosineLoss


def log_cosh(cosines: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """Mean over pairs of log(cosh(x - y)), the d of differences being x - y (Trans-Encoder, appendix A.2: no gain).

    Never negative; its gradient is tanh(d) / N. About d^2 / 2 for small differences, so half of `cosine_regression`,
    and |d| - log 2 for large ones. Written as |d| + log(1 + exp(-2 |d|)) - log 2, which cannot overflow.

    Args:
        cosines: Cosine similarities of the pairs' embeddings, in [-1, 1].
        targets: Pseudo-labels, in [0, 1].

    Returns:
        The loss, a scalar.
    """
    difference = (cosines.float() - targets.float()).abs()
    return (difference + softplus(-2.0 * difference) - math.log(2.0)).mean()


class LogCoshLoss(CosineLoss):
    """`log_cosh` as a module; see `CosineLoss`."""

    equation = staticmethod(log_cosh)
