"""NT-Xent: each view must find its other view among all views of the batch (Mirror-BERT, equation 1; SimCLR)."""

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


def nt_xent(
    first: Float[Tensor, "pairs dim"], second: Float[Tensor, "pairs dim"], temperature: float
) -> Float[Tensor, ""]:
    """Mean over the 2N views x of -log(exp(cos(x, x') / t) / sum_{y not x} exp(cos(x, y) / t)), x' its other view.

    As `info_nce` in both directions, with 2N - 2 negatives: the other texts' views of either kind. Never negative.
    Mirror-BERT (Liu et al., EMNLP 2021), equation 1.

    Args:
        first: Embeddings of the first views, of any length.
        second: Embeddings of the second views, row by row.
        temperature: Above 0; Mirror-BERT: 0.04 for sentences, 0.2 for words.

    Returns:
        The loss, a scalar.
    """
    views = torch.cat([first, second]).float()
    cosines = cos_sim(views, views).fill_diagonal_(-torch.inf)
    others = torch.arange(len(views), device=views.device).roll(len(first))
    return cross_entropy(cosines / temperature, others)


class NTXentLoss(nn.Module):
    """`nt_xent` for `SentenceTransformerTrainer`, ours and the plain one, on two columns of views.

    Under several processes the views of all of them are candidates, and gradients flow to each.

    Args:
        model: The bi-encoder to train.
        temperature: Above 0; Mirror-BERT: 0.04 for sentences, 0.2 for words.
    """

    def __init__(self, model: SentenceTransformer, temperature: float = 0.04) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}; it must be above 0, Mirror-BERT's is 0.04")
        self.model = model
        self.temperature = temperature

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            sentence_features: Token features of the two views.
            labels: Not used.
        """
        first, second = (gathered(side)[0] for side in embed_pairs(self.model, list(sentence_features)))
        return nt_xent(first, second, self.temperature)

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {"temperature": self.temperature}
