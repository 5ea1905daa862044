"""Cross-entropy for the bi-encoder, which the paper's Table 8 warns of, in the two ways that a cosine can enter it."""

from jaxtyping import Float
from torch import Tensor, autocast
from torch.nn.functional import binary_cross_entropy

from transencoder.losses.cosines import CosineLoss
from transencoder.losses.soft_cross_entropy import soft_cross_entropy

_EPSILON = 1e-4
"""Distance of a probability from 0 and 1, where its logarithm has no bound."""


def cosine_cross_entropy(cosines: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """`soft_cross_entropy` with the cosine as the logit (Trans-Encoder, Table 8: BCE for cross -> bi).

    sigmoid(x) of a cosine stays in [0.27, 0.73]: targets outside are never reached, and pull cosines to -1 and 1. The
    paper does not say how the cosine enters; `clipped_cosine_cross_entropy` is the other way. Sibling that works:
    `cosine_regression`.

    Args:
        cosines: Cosine similarities of the pairs' embeddings, in [-1, 1].
        targets: Pseudo-labels, in [0, 1].

    Returns:
        The loss, a scalar.
    """
    return soft_cross_entropy(cosines, targets)


def clipped_cosine_cross_entropy(
    cosines: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]
) -> Float[Tensor, ""]:
    """Mean over pairs of -(y log p + (1 - y) log(1 - p)), p being the cosine clipped to [0.0001, 0.9999].

    The other reading of Trans-Encoder's Table 8. A cosine that was clipped has no gradient.

    Args:
        cosines: Cosine similarities of the pairs' embeddings, in [-1, 1].
        targets: Pseudo-labels, in [0, 1].

    Returns:
        The loss, a scalar.
    """
    with autocast(cosines.device.type, enabled=False):  # torch refuses this function under autocast
        return binary_cross_entropy(cosines.float().clamp(_EPSILON, 1.0 - _EPSILON), targets.float())


class CosineCrossEntropyLoss(CosineLoss):
    """`cosine_cross_entropy` as a module; see `CosineLoss`."""

    equation = staticmethod(cosine_cross_entropy)


class ClippedCosineCrossEntropyLoss(CosineLoss):
    """`clipped_cosine_cross_entropy` as a module; see `CosineLoss`."""

    equation = staticmethod(clipped_cosine_cross_entropy)
