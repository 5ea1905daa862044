"""Contrastive knowledge distillation: an embedding must find its teacher's among those of many sentences (CKD)."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from transencoder.losses.features import embed_sides
from transencoder.losses.queues import InstanceQueue
from transencoder.losses.similarity_distributions import queue_info_nce


class CKDLoss(nn.Module):
    """CKD's loss for `SentenceTransformerTrainer`, ours and the plain one, on one column of texts or more.

    InfoNCE: -log(exp(s cos(h(z_i), t_i)) / sum_j exp(s cos(h(z_i), t_j))), t_j being a queue of the teacher's
    embeddings, the batch's own among them (Wu et al., DisCo, 2021; released code of DistilCSE). The scale s is e at
    first and learned (released code). Each text counts by itself, whatever its column. The queue begins with random
    directions.

    Args:
        model: The bi-encoder to train.
        queue: Of the teacher's dimension; DistilCSE: 65,536 vectors.
        projector: On the student's embeddings, to the teacher's dimension, in training only (released code: a linear
            layer); None: these are of that dimension.
        temperature: 1 / s, above 0 and fixed; None: learned.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        queue: InstanceQueue,
        projector: nn.Module | None = None,
        *,
        temperature: float | None = None,
    ) -> None:
        super().__init__()
        if temperature is not None and not temperature > 0:
            raise ValueError(f"temperature is {temperature}; it must be above 0")
        self.model = model
        self.queue = queue
        self.projector = nn.Identity() if projector is None else projector
        log_scale = torch.tensor(1.0 if temperature is None else -math.log(temperature))
        self.log_scale = nn.Parameter(log_scale, requires_grad=temperature is None)

    def forward(
        self,
        sentence_features: Iterable[dict[str, Any]],
        labels: Float[Tensor, "batch dim"] | Float[Tensor, "batch columns dim"],
    ) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            sentence_features: Token features of each column.
            labels: The teacher's embeddings of the texts, or one for all columns of a row.
        """
        embeddings = embed_sides(self.model, list(sentence_features))
        references = labels.float() if labels.ndim == 2 else labels.float().transpose(0, 1).flatten(0, 1)
        rows, own = self.queue.enter(references)
        own = own.repeat(len(embeddings) // len(own))  # labels of single texts are those of every column
        return queue_info_nce(self.projector(embeddings), rows, own, (-self.log_scale).exp())

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {"temperature": (-self.log_scale).exp().item(), "learned": self.log_scale.requires_grad}
