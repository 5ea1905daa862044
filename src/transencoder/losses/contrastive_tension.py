"""Contrastive Tension: two copies of an encoder agree on the same sentence and disagree on others (equation 1)."""

import math
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import cos_sim
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from transencoder.losses.features import embed
from transencoder.losses.gathering import gathered


def contrastive_tension(
    first: Float[Tensor, "pairs dim"], second: Float[Tensor, "pairs dim"], targets: Float[Tensor, " pairs"]
) -> Float[Tensor, ""]:
    """Mean over pairs of -log sigmoid(f.s) where the sentences are the same, else of -log(1 - sigmoid(f.s)).

    Dot products, not cosines: embeddings may grow. Never negative. Contrastive Tension (Carlsson et al., ICLR 2021),
    equation 1; sentence-transformers' own version sums over the pairs.

    Args:
        first: The first copy's embeddings of one side.
        second: The second copy's embeddings of the other side.
        targets: 1 where both sides are the same sentence, else 0.

    Returns:
        The loss, a scalar.
    """
    return binary_cross_entropy_with_logits((first.float() * second.float()).sum(1), targets.float())


def in_batch_contrastive_tension(
    first: Float[Tensor, "batch dim"], second: Float[Tensor, "batch dim"], scale: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """`info_nce` of two copies' embeddings of the same sentences in both directions (sentence-transformers).

    Never negative. Under several processes all sentences of all of them are candidates.

    Args:
        first: The first copy's embeddings.
        second: The second copy's, row by row.
        scale: What the cosines are multiplied by, 1 / temperature; it has a gradient.

    Returns:
        The loss, a scalar.
    """
    directions = []
    for queries, own_keys in ((first, second), (second, first)):
        keys, first_key = gathered(own_keys.float())
        own = torch.arange(first_key, first_key + len(queries), device=queries.device)
        directions.append(cross_entropy(cos_sim(queries.float(), keys) * scale, own))
    return torch.stack(directions).mean()


class ContrastiveTensionLoss(nn.Module):
    """`contrastive_tension` for `SentenceTransformerTrainer`; it brings the second copy, `twin`, and trains it too.

    Args:
        model: The bi-encoder to train, the first copy.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.twin = deepcopy(model)

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            sentence_features: Token features of the two sides; the first goes through `model`, the second through
                `twin`.
            labels: (pairs,) 1 where both are the same sentence, else 0.
        """
        left, right = sentence_features
        first, second = embed(self.model, left), embed(self.twin, right)
        return contrastive_tension(first, second, labels.view(-1))

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {}


class InBatchContrastiveTensionLoss(nn.Module):
    """Contrastive Tension with the batch's other sentences as negatives, as sentence-transformers recommends it.

    `in_batch_contrastive_tension` with a temperature that is learned.

    Args:
        model: The bi-encoder to train, the first copy.
        temperature: At first; sentence-transformers: 0.05, a scale of 20.
    """

    def __init__(self, model: SentenceTransformer, temperature: float = 0.05) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}; it must be above 0, sentence-transformers' is 0.05")
        self.model = model
        self.twin = deepcopy(model)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            sentence_features: Token features of a sentence twice; the second goes through `twin`.
            labels: Not used.
        """
        left, right = sentence_features
        first, second = embed(self.model, left), embed(self.twin, right)
        return in_batch_contrastive_tension(first, second, self.log_scale.exp())

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {"temperature": math.exp(-self.log_scale.item())}
