"""Mean squared error of the cosine: how a bi-encoder learns a cross-encoder's scores (paper, equation 3)."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import mse_loss

from transencoder.losses.cosines import CosineLoss


def cosine_regression(cosines: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """Mean over pairs of (x - y)^2 (Trans-Encoder, equation 3, printed there with a minus sign).

    Never negative; its gradient is 2 (x - y) / N. Its siblings: `log_cosh`, nearly the same for differences this
    small; `cosine_cross_entropy` and `clipped_cosine_cross_entropy`, which the paper's Table 8 finds not to converge;
    `soft_cross_entropy` works on logits instead.

    Args:
        cosines: Cosine similarities of the pairs' embeddings, in [-1, 1].
        targets: Pseudo-labels, in [0, 1].

    Returns:
        The loss, a scalar.
    """
    return mse_loss(cosines.float(), targets.float())


class CosineRegressionLoss(CosineLoss):
    """`cosine_regression` as a module; see `CosineLoss`."""

    equation = staticmethod(cosine_regression)
