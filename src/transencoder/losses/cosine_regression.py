"""Mean squared error of the cosine: how a bi-encoder learns a cross-encoder's scores (paper, equation 3)."""

from collections.abc import Iterable
from typing import Any

from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, mse_loss

from transencoder.losses.features import embed_pairs
from transencoder.losses.targets import check_targets


def cosine_regression(cosines: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """Mean over pairs of (x - y)^2 (Trans-Encoder, equation 3, printed there with a minus sign).

    Never negative; its gradient is 2 (x - y) / N. Its sibling `soft_cross_entropy` works on logits instead.

    Args:
        cosines: Cosine similarities of the pairs' embeddings, in [-1, 1].
        targets: Pseudo-labels, in [0, 1].

    Returns:
        The loss, a scalar.
    """
    return mse_loss(cosines.float(), targets.float())


class CosineRegressionLoss(nn.Module):
    """`cosine_regression` for `SentenceTransformerTrainer`, ours and the plain one; both sides in one forward pass.

    Args:
        model: The bi-encoder to train.
        allow_outside: Accept targets outside [0, 1] (the label policy `raw`).
    """

    def __init__(self, model: SentenceTransformer, allow_outside: bool = False) -> None:
        super().__init__()
        self.model = model
        self.allow_outside = allow_outside

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            sentence_features: Token features of the two sides.
            labels: (pairs,) targets, in [0, 1].
        """
        if not self.allow_outside:
            check_targets(labels)
        first, second = embed_pairs(self.model, list(sentence_features))
        return cosine_regression(cosine_similarity(first, second), labels.view(-1))

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {"allow_outside": self.allow_outside}
