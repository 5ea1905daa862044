"""Weighted InfoNCE with noise negatives: negatives may count less, and some are no text at all (DCLR)."""

from collections.abc import Iterable
from typing import Any, Literal

import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import cos_sim
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy, cross_entropy, one_hot

from transencoder.losses.features import embed, embed_pairs
from transencoder.losses.gathering import gathered

_LEAST_NORM = 1e-12


def weighted_info_nce(
    queries: Float[Tensor, "queries dim"],
    keys: Float[Tensor, "keys dim"],
    weights: Float[Tensor, "queries keys"],
    temperature: float,
    first_key: int = 0,
) -> Float[Tensor, ""]:
    """Mean over i of -log(exp(cos(q_i, k_i) / t) / sum_j w_ij exp(cos(q_i, k_j) / t)), w_ii = 1.

    `info_nce` where all weights are 1; a weight of 0 takes a negative out. DCLR (Zhou et al., ACL 2022), section 4.

    Args:
        queries: Embeddings of the first views.
        keys: Embeddings of the second views, row by row, then of further negatives.
        weights: Of each key for each query, at least 0; those of a query's own key are taken as 1.
        temperature: Above 0; DCLR: 0.05.
        first_key: The key of query 0; query i has key `first_key` + i. Other processes' keys stand around them.

    Returns:
        The loss, a scalar.
    """
    own = torch.arange(first_key, first_key + len(queries), device=queries.device)
    weights = weights.float().masked_fill(one_hot(own, len(keys)).bool(), 1.0)
    return cross_entropy(cos_sim(queries.float(), keys.float()) / temperature + weights.log(), own)


def elementwise_info_nce(
    queries: Float[Tensor, "queries dim"],
    keys: Float[Tensor, "keys dim"],
    weights: Float[Tensor, "queries keys"],
    temperature: float,
    first_key: int = 0,
) -> Float[Tensor, ""]:
    """What DCLR's released code does in the place of `weighted_info_nce`.

    The weights multiply the logits, so that a weight of 0 makes a cosine of 0 and takes nothing out; the loss is the
    mean over all queries and keys of the binary cross-entropy of the softmax.

    Args:
        queries: As in `weighted_info_nce`.
        keys: As in `weighted_info_nce`.
        weights: As in `weighted_info_nce`.
        temperature: As in `weighted_info_nce`.
        first_key: As in `weighted_info_nce`.

    Returns:
        The loss, a scalar.
    """
    own = one_hot(torch.arange(first_key, first_key + len(queries), device=queries.device), len(keys)).bool()
    logits = cos_sim(queries.float(), keys.float()) / temperature * weights.float().masked_fill(own, 1.0)
    return binary_cross_entropy(logits.softmax(1), own.float())


def refine_noise(
    noise: Float[Tensor, "noise dim"],
    queries: Float[Tensor, "queries dim"],
    keys: Float[Tensor, "queries dim"],
    temperature: float,
    n_steps: int,
    step_size: float,
) -> Float[Tensor, "noise dim"]:
    """Noise vectors after steps up the gradient of the loss in which they are negatives (DCLR, equation 5).

    Each step has the length `step_size` whatever the gradient's. Nothing flows back into the encoder.

    Args:
        noise: Random vectors.
        queries: Embeddings of the first views.
        keys: Embeddings of the second views.
        temperature: Of the loss.
        n_steps: How many steps; 0 leaves the noise as it is.
        step_size: Length of each.
    """
    queries, keys, noise = queries.detach(), keys.detach(), noise.detach()
    for _ in range(n_steps):
        noise.requires_grad_()
        all_keys = torch.cat([keys, noise])
        with torch.enable_grad():
            loss = weighted_info_nce(queries, all_keys, queries.new_ones(len(queries), len(all_keys)), temperature)
            (gradient,) = torch.autograd.grad(loss, noise)
        length = gradient.norm(dim=1, keepdim=True).clamp(min=_LEAST_NORM)
        noise = (noise + step_size * gradient / length).detach()
    return noise


class WeightedInfoNCELoss(nn.Module):
    """DCLR's loss for `SentenceTransformerTrainer`, ours and the plain one, on two columns of the same sentences.

    Negatives that a frozen model finds too alike to the query are left out; Gaussian vectors, refined to be hard, are
    negatives too, which spreads the embeddings evenly. Under several processes all keys of all of them are candidates;
    noise is each process's own.

    Args:
        model: The bi-encoder to train.
        complement: A frozen bi-encoder of the same tokenizer, which weighs the negatives.
        temperature: Above 0; DCLR: 0.05.
        threshold: Negatives whose cosine in `complement` is above it are left out; DCLR: BERT 0.9, RoBERTa 0.85.
        noise_ratio: Noise vectors for each sentence of the batch; DCLR: BERT-base 1, RoBERTa-base 2.5.
        n_noise_steps: Steps of gradient ascent for the noise; DCLR: 4.
        noise_step_size: Length of each step; DCLR: 1e-3.
        form: `weighted` as in the paper, or `elementwise` as in the released code.
        projector: Between embeddings and loss, in training only.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        complement: SentenceTransformer,
        temperature: float = 0.05,
        *,
        threshold: float = 0.9,
        noise_ratio: float = 1.0,
        n_noise_steps: int = 4,
        noise_step_size: float = 1e-3,
        form: Literal["weighted", "elementwise"] = "weighted",
        projector: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.complement = complement.requires_grad_(False)
        self.temperature = temperature
        self.threshold = threshold
        self.noise_ratio = noise_ratio
        self.n_noise_steps = n_noise_steps
        self.noise_step_size = noise_step_size
        self.form = form
        self.projector = nn.Identity() if projector is None else projector

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            sentence_features: Token features of the two views, attention masks included.
            labels: Not used.
        """
        left, right = sentence_features
        queries, own_keys = (self.projector(side) for side in embed_pairs(self.model, [dict(left), dict(right)]))
        keys, first_key = gathered(own_keys)
        weights = self._weigh(left, right)
        if n_noise := int(self.noise_ratio * len(queries)):
            keys = torch.cat([keys.float(), self._noise(queries, own_keys, n_noise)])
            weights = torch.cat([weights, weights.new_ones(len(weights), n_noise)], dim=1)
        loss = weighted_info_nce if self.form == "weighted" else elementwise_info_nce
        return loss(queries, keys, weights, self.temperature, first_key)

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        names = ("temperature", "threshold", "noise_ratio", "n_noise_steps", "noise_step_size", "form")
        return {name: getattr(self, name) for name in names}

    @torch.no_grad()
    def _weigh(self, left: dict[str, Any], right: dict[str, Any]) -> Tensor:
        """0 where the frozen model finds two sentences too alike, 1 elsewhere; without dropout."""
        self.complement.eval()
        first = second = embed(self.complement, dict(left))
        if not torch.equal(left["input_ids"], right["input_ids"]):
            second = embed(self.complement, dict(right))
        return (cos_sim(first.float(), gathered(second.float())[0]) <= self.threshold).float()

    def _noise(self, queries: Tensor, keys: Tensor, n_noise: int) -> Tensor:
        noise = torch.randn(n_noise, queries.shape[1], device=queries.device)
        return refine_noise(
            noise, queries.float(), keys.float(), self.temperature, self.n_noise_steps, self.noise_step_size
        )
