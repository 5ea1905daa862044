"""Contrastive Tension: two copies of an encoder agree on the same sentence and disagree on others (equation 1).

The modules are for `SentenceTransformerTrainer`. They bring the second copy, `twin`, through which the second column
goes, and train it too.
"""

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

from transencoder.losses.features import Loss, check_temperatures, embed, gathered


def contrastive_tension(
    first: Float[Tensor, "pairs dim"], second: Float[Tensor, "pairs dim"], targets: Float[Tensor, " pairs"]
) -> Float[Tensor, ""]:
    """Return the mean of -log sigmoid(f.s) where the sentences are the same, else of -log(1 - sigmoid(f.s)).

    Dot products, not cosines: embeddings may grow. Never negative. Contrastive Tension (Carlsson et al., ICLR 2021),
    equation 1; sentence-transformers' own version sums over the pairs.

    Args:
        first: The first copy's embeddings of one side.
        second: The second copy's embeddings of the other side.
        targets: 1 where both sides are the same sentence, else 0.
    """
    return binary_cross_entropy_with_logits((first.float() * second.float()).sum(1), targets.float())


def in_batch_contrastive_tension(
    first: Float[Tensor, "all dim"],
    second: Float[Tensor, "all dim"],
    temperature: Float[Tensor, ""],
    first_row: int = 0,
    n_rows: int | None = None,
) -> Float[Tensor, ""]:
    """Return half the mean over i of -log softmax_j(cos(f_i, s_j) / t)_i - log softmax_j(cos(f_j, s_i) / t)_i.

    Sentence-transformers' Contrastive Tension with the batch's other sentences as negatives: `info_nce` in both
    directions, with a temperature that has a gradient. Never negative.

    Args:
        first: The first copy's embeddings, of all processes.
        second: The second copy's of the same sentences, row by row.
        temperature: Above 0.
        first_row: The first i of the mean, this process's.
        n_rows: How many; None: all.
    """
    own = torch.arange(first_row, first_row + (n_rows or len(first)), device=first.device)
    logits = cos_sim(first.float(), second.float()) / temperature
    return (cross_entropy(logits[own], own) + cross_entropy(logits.T[own], own)) / 2


class ContrastiveTensionLoss(Loss):
    """`contrastive_tension` as a module; its labels are (pairs,) 1 where both are the same sentence, else 0.

    Args:
        model: The bi-encoder to train, the first copy.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__(model)
        self.twin = deepcopy(model)

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor) -> Float[Tensor, ""]:
        """Return the loss of a batch."""
        left, right = sentence_features
        first, second = embed(self.model, left), embed(self.twin, right)
        return contrastive_tension(first, second, labels.view(-1))


class InBatchContrastiveTensionLoss(Loss):
    """`in_batch_contrastive_tension` as a module, of a sentence twice, as sentence-transformers recommends it.

    Its temperature is learned. Under several processes all sentences of all of them are candidates, and gradients flow
    to each.

    Args:
        model: The bi-encoder to train, the first copy.
        temperature: At first; sentence-transformers: 0.05, a scale of 20.
    """

    def __init__(self, model: SentenceTransformer, temperature: float = 0.05) -> None:
        super().__init__(model)
        check_temperatures(temperature, usual="sentence-transformers' is 0.05")
        self.twin = deepcopy(model)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Float[Tensor, ""]:
        """Return the loss of a batch; labels are not used."""
        left, right = sentence_features
        first, second = embed(self.model, left), embed(self.twin, right)
        (all_first, first_row), (all_second, _) = gathered(first), gathered(second)
        temperature = (-self.log_scale).exp()
        return in_batch_contrastive_tension(all_first, all_second, temperature, first_row, len(first))

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        return {"temperature": math.exp(-self.log_scale.item())}
