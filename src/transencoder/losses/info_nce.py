"""InfoNCE: each text must find its own other view among those of the batch (SimCSE, equation 4)."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import cos_sim
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from transencoder.losses.features import embed_pairs
from transencoder.losses.gathering import gathered


def info_nce(
    queries: Float[Tensor, "queries dim"], keys: Float[Tensor, "keys dim"], temperature: float, first_key: int = 0
) -> Float[Tensor, ""]:
    """Mean over i of -log(exp(cos(q_i, k_i) / t) / sum_j exp(cos(q_i, k_j) / t)) (SimCSE, equation 4).

    One direction: queries look for keys, and all other keys are negatives. Never negative; log(keys) where all cosines
    are alike. Its sibling `nt_xent` looks in both directions and among the queries too.

    Args:
        queries: Embeddings of the first views, of any length.
        keys: Embeddings of the second views; at least as many.
        temperature: Above 0; SimCSE: 0.05. The scale of sentence-transformers' losses is 1 / temperature.
        first_key: The key of query 0; query i has key `first_key` + i. Other processes' keys stand around them.

    Returns:
        The loss, a scalar.
    """
    own_keys = torch.arange(first_key, first_key + len(queries), device=queries.device)
    return cross_entropy(cos_sim(queries.float(), keys.float()) / temperature, own_keys)


class InfoNCELoss(nn.Module):
    """`info_nce` for `SentenceTransformerTrainer`, ours and the plain one, on two columns of views.

    Equal columns are SimCSE: dropout makes the two views differ. Under several processes all keys of all of them are
    candidates, and gradients flow to each.

    Args:
        model: The bi-encoder to train.
        temperature: Above 0; SimCSE: 0.05.
        projector: A module (batch, dim) -> (batch, any) put on the embeddings in training only: it is a part of the
            loss, not of the model that is saved.
    """

    def __init__(
        self, model: SentenceTransformer, temperature: float = 0.05, projector: nn.Module | None = None
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}; it must be above 0, SimCSE's is 0.05")
        self.model = model
        self.temperature = temperature
        self.projector = nn.Identity() if projector is None else projector

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            sentence_features: Token features of the two views.
            labels: Not used.
        """
        queries, keys = (self.projector(side) for side in embed_pairs(self.model, list(sentence_features)))
        all_keys, first_key = gathered(keys)
        return info_nce(queries, all_keys, self.temperature, first_key)

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {"temperature": self.temperature, "projector": type(self.projector).__name__}
