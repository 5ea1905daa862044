"""What losses of a bi-encoder's cosines have in common: both sides in one forward pass, targets checked."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from transencoder.losses.annealing import Annealing
from transencoder.losses.features import embed_pairs
from transencoder.losses.targets import check_targets


class CosineLoss(Annealing, nn.Module, ABC):
    """A loss of cosines and targets for `SentenceTransformerTrainer`, ours and the plain one.

    Args:
        model: The bi-encoder to train.
        allow_outside: Accept targets outside [0, 1] (the label policy `raw`).
        soft_share: Of labels that are gold and teachers': weight of the teachers' losses, in [0, 1], instead of
            annealing (DvBERT, section 3.6); None: annealing.
    """

    def __init__(
        self, model: SentenceTransformer, allow_outside: bool = False, *, soft_share: float | None = None
    ) -> None:
        super().__init__()
        self.soft_share = self.checked_share(soft_share)
        self.model = model
        self.allow_outside = allow_outside

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            sentence_features: Token features of the two sides.
            labels: (pairs,) targets, in [0, 1]; or (pairs, 1 + teachers), gold ones, NaN where there are none, and
                each teacher's: see `Annealing`.
        """
        first, second = embed_pairs(self.model, list(sentence_features))
        cosines = cosine_similarity(first, second)

        def loss(targets: Tensor) -> Float[Tensor, ""]:
            if not self.allow_outside:
                check_targets(targets)
            return self.equation(cosines, targets)

        gold, *taught = labels.view(len(labels), -1).unbind(1)
        return self.taught_loss(loss, gold, taught)

    @staticmethod
    @abstractmethod
    def equation(cosines: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
        """The loss of cosines, in [-1, 1], and targets."""

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {"allow_outside": self.allow_outside, "soft_share": self.soft_share}
