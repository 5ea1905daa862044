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
    first: Float[Tensor, "all dim"],
    second: Float[Tensor, "all dim"],
    temperature: Float[Tensor, ""],
    first_row: int = 0,
    n_rows: int | None = None,
) -> Float[Tensor, ""]:
    """Mean over i of half of -log softmax_j(cos(f_i, s_j) / t)_i and half of -log softmax_j(cos(f_j, s_i) / t)_i.

    Sentence-transformers' Contrastive Tension with the batch's other sentences as negatives: `info_nce` in both
    directions, with a temperature that has a gradient. Never negative.

    Args:
        first: The first copy's embeddings, of all processes.
        second: The second copy's of the same sentences, row by row.
        temperature: Above 0.
        first_row: The first i of the mean, this process's.
        n_rows: How many; None: all.

    Returns:
        The loss, a scalar.
    """
    own = torch.arange(first_row, first_row + (n_rows or len(first)), device=first.device)
    logits = cos_sim(first.float(), second.float()) / temperature
    return (cross_entropy(logits[own], own) + cross_entropy(logits.T[own], own)) / 2


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

    `in_batch_contrastive_tension` with a temperature that is learned. Under several processes all sentences of all of
    them are candidates, and gradients flow to each.

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
        (all_first, first_row), (all_second, _) = gathered(first), gathered(second)
        temperature = (-self.log_scale).exp()
        return in_batch_contrastive_tension(all_first, all_second, temperature, first_row, len(first))

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {"temperature": math.exp(-self.log_scale.item())}
