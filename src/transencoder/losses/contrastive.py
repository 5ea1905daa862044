"""Contrastive losses: a view must find its text's other view (SimCSE, Mirror-BERT, DCLR, Contrastive Tension).

Embeddings may have any norm, since cosines are compared. Temperatures are above 0; the scale in sentence-transformers'
losses is 1 / temperature. The modules are for the `SentenceTransformerTrainer` of this package or the plain one. They
take two columns of views and, except for Contrastive Tension, no labels. With several processes, the views of all
processes are candidates, and gradients flow to all of them.
"""

import math
from copy import deepcopy
from typing import Any, Literal

import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import cos_sim
from torch import Tensor, nn
from torch.nn.functional import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    one_hot,
)

from transencoder.losses.features import Columns, Loss, check_temperatures, embed, embed_pairs, gathered, projector_of

INITIAL_STD = 0.02
"""Standard deviation of BERT's initial weights, also used for new layers on top of it."""

_LEAST_NORM = 1e-12


def info_nce(
    queries: Float[Tensor, "queries dim"], keys: Float[Tensor, "keys dim"], temperature: float, first_key: int = 0
) -> Float[Tensor, ""]:
    """Return the mean over i of -log(exp(cos(q_i, k_i) / t) / sum_j exp(cos(q_i, k_j) / t)) (SimCSE, equation 4).

    One direction: each query must find its key, and all other keys are negatives. Never negative; log(number of keys)
    if all cosines are equal. Its siblings: `nt_xent` works in both directions and also among the queries;
    `weighted_info_nce` gives negatives smaller weights.

    Args:
        queries: Embeddings of the first views.
        keys: Embeddings of the second views, at least as many as queries.
        temperature: Temperature of the cosines, above 0; SimCSE: 0.05.
        first_key: Index of the key of query 0; query i has key `first_key` + i. The other keys are from other
            processes.
    """
    own_keys = torch.arange(first_key, first_key + len(queries), device=queries.device)
    return cross_entropy(cos_sim(queries.float(), keys.float()) / temperature, own_keys)


class InfoNCELoss(Loss):
    """`info_nce` as a module. With two equal columns it is SimCSE, where dropout makes the two views differ.

    The projector, (batch, dim) -> (batch, any), is applied to the embeddings in training only: it is part of the loss,
    not of the saved model. SimCSE: `tanh_projector`.
    """

    is_of_cosines = True

    def __init__(
        self, model: SentenceTransformer, temperature: float = 0.05, projector: nn.Module | None = None
    ) -> None:
        super().__init__(model)
        check_temperatures(temperature, usual="SimCSE's is 0.05")
        self.temperature = temperature
        self.projector = projector_of(model, projector)

    def forward(self, sentence_features: Columns, labels: Tensor | None = None) -> Float[Tensor, ""]:
        """Return the loss of a batch."""
        queries, keys = map(self.projector, embed_pairs(self.model, sentence_features))
        all_keys, first_key = gathered(keys)
        return info_nce(queries, all_keys, self.temperature, first_key)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        projector = getattr(self.projector, "projector", self.projector)  # of one that scales what enters it
        return {"temperature": self.temperature, "projector": type(projector).__name__}


def tanh_projector(dimension: int) -> nn.Sequential:
    """Build SimCSE's projector for this dimension: a linear layer and tanh (Gao et al., EMNLP 2021, section 3)."""
    linear = nn.Linear(dimension, dimension)
    nn.init.normal_(linear.weight, std=INITIAL_STD)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh())


def nt_xent(
    first: Float[Tensor, "pairs dim"], second: Float[Tensor, "pairs dim"], temperature: float
) -> Float[Tensor, ""]:
    """Return the mean over the 2N views x of -log(exp(cos(x, x') / t) / sum_{y not x} exp(cos(x, y) / t)).

    x' is the other view of x (Mirror-BERT, Liu et al., EMNLP 2021, equation 1; SimCLR). It is `info_nce` in both
    directions, with 2N - 2 negatives: both views of all other texts. Never negative.

    Args:
        first: Embeddings of the first views.
        second: Embeddings of the second views, in the same order.
        temperature: Temperature of the cosines, above 0; Mirror-BERT: 0.04 for sentences, 0.2 for words.
    """
    views = torch.cat([first, second]).float()
    cosines = cos_sim(views, views).fill_diagonal_(-torch.inf)
    others = torch.arange(len(views), device=views.device).roll(len(first))
    return cross_entropy(cosines / temperature, others)


class NTXentLoss(Loss):
    """`nt_xent` as a module."""

    shown = ("temperature",)
    is_of_cosines = True

    def __init__(self, model: SentenceTransformer, temperature: float = 0.04) -> None:
        super().__init__(model)
        check_temperatures(temperature, usual="Mirror-BERT's is 0.04")
        self.temperature = temperature

    def forward(self, sentence_features: Columns, labels: Tensor | None = None) -> Float[Tensor, ""]:
        """Return the loss of a batch."""
        first, second = (gathered(side)[0] for side in embed_pairs(self.model, sentence_features))
        return nt_xent(first, second, self.temperature)


def weighted_info_nce(
    queries: Float[Tensor, "queries dim"],
    keys: Float[Tensor, "keys dim"],
    weights: Float[Tensor, "queries keys"],
    temperature: float,
    first_key: int = 0,
) -> Float[Tensor, ""]:
    """Return the mean over i of -log(exp(cos(q_i, k_i) / t) / sum_j w_ij exp(cos(q_i, k_j) / t)), w_ii = 1.

    It is `info_nce` if all weights are 1; a weight of 0 removes a negative. DCLR (Zhou et al., ACL 2022), section 4.

    Args:
        queries: Embeddings of the first views.
        keys: Embeddings of the second views, in the same order, then of further negatives.
        weights: Weight of each key for each query, at least 0; the weight of a query's own key is taken as 1.
        temperature: Temperature of the cosines, above 0; DCLR: 0.05.
        first_key: Index of the key of query 0, as in `info_nce`.
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
    """Return the loss that DCLR's released code has instead of `weighted_info_nce`, from the same arguments.

    The weights multiply the logits, so that a weight of 0 gives a cosine of 0 and removes nothing. The loss is the mean
    over all queries and keys of the binary cross-entropy of the softmax.
    """
    own = one_hot(torch.arange(first_key, first_key + len(queries), device=queries.device), len(keys)).bool()
    logits = cos_sim(queries.float(), keys.float()) / temperature * weights.float().masked_fill(own, 1.0)
    return binary_cross_entropy(logits.softmax(1), own.float())


class WeightedInfoNCELoss(Loss):
    """DCLR's loss on two columns of the same sentences, with weighted negatives and noise vectors as negatives.

    Negatives that a frozen model finds too similar to the query are left out. Gaussian vectors, refined to be hard, are
    further negatives, which spreads the embeddings evenly. Each process has its own noise.

    Args:
        complement: A frozen bi-encoder with the same tokenizer, which weights the negatives.
        temperature: Temperature of the cosines, as in `weighted_info_nce`.
        threshold: Cosine in `complement` above which a negative is left out; DCLR: BERT 0.9, RoBERTa 0.85.
        noise_ratio: Number of noise vectors for each sentence of the batch; DCLR: BERT-base 1, RoBERTa-base 2.5.
        n_noise_steps: Number of gradient ascent steps for the noise; DCLR: 4.
        noise_step_size: Length of each step; DCLR: 1e-3.
        form: `weighted` as in the paper, or `elementwise` as in the released code.
        projector: Module between embeddings and loss, used in training only.
    """

    shown = ("temperature", "threshold", "noise_ratio", "n_noise_steps", "noise_step_size", "form")

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
        super().__init__(model)
        check_temperatures(temperature, usual="DCLR's is 0.05")
        self.complement = complement.requires_grad_(False)
        self.temperature = temperature
        self.threshold = threshold
        self.noise_ratio = noise_ratio
        self.n_noise_steps = n_noise_steps
        self.noise_step_size = noise_step_size
        self.form = form
        self.projector = projector_of(model, projector)

    def forward(self, sentence_features: Columns, labels: Tensor | None = None) -> Float[Tensor, ""]:
        """Return the loss of a batch, whose features include attention masks."""
        left, right = sentence_features
        queries, own_keys = map(self.projector, embed_pairs(self.model, [left, right]))
        keys, first_key = gathered(own_keys)
        weights = self._weigh(left, right)
        if n_noise := int(self.noise_ratio * len(queries)):
            noise = torch.randn(n_noise, queries.shape[1], device=queries.device)
            steps = (self.temperature, self.n_noise_steps, self.noise_step_size)
            keys = torch.cat([keys.float(), refine_noise(noise, queries.float(), own_keys.float(), *steps)])
            weights = torch.cat([weights, weights.new_ones(len(weights), n_noise)], dim=1)
        loss = weighted_info_nce if self.form == "weighted" else elementwise_info_nce
        return loss(queries, keys, weights, self.temperature, first_key)

    @torch.no_grad()
    def _weigh(self, left: dict[str, Any], right: dict[str, Any]) -> Tensor:
        """Return 0 where the frozen model, without dropout, finds two sentences too similar, and 1 elsewhere."""
        self.complement.eval()
        first = second = embed(self.complement, left)
        if not torch.equal(left["input_ids"], right["input_ids"]):
            second = embed(self.complement, right)
        return (cos_sim(first.float(), gathered(second.float())[0]) <= self.threshold).float()


def refine_noise(
    noise: Float[Tensor, "noise dim"],
    queries: Float[Tensor, "queries dim"],
    keys: Float[Tensor, "queries dim"],
    temperature: float,
    n_steps: int,
    step_size: float,
) -> Float[Tensor, "noise dim"]:
    """Move noise vectors up the gradient of the loss in which they are the negatives (DCLR, equation 5).

    Each step has the length `step_size`, whatever the gradient's norm. No gradient flows back into the encoder.
    """
    queries, keys, noise = queries.detach(), keys.detach(), noise.detach()
    for _ in range(n_steps):
        noise.requires_grad_()
        with torch.enable_grad():
            loss = info_nce(queries, torch.cat([keys, noise]), temperature)
            (gradient,) = torch.autograd.grad(loss, noise)
        length = gradient.norm(dim=1, keepdim=True).clamp(min=_LEAST_NORM)
        noise = (noise + step_size * gradient / length).detach()
    return noise


def contrastive_tension(
    first: Float[Tensor, "pairs dim"], second: Float[Tensor, "pairs dim"], targets: Float[Tensor, " pairs"]
) -> Float[Tensor, ""]:
    """Return the mean of -log sigmoid(f.s) where the sentences are the same, else of -log(1 - sigmoid(f.s)).

    It uses dot products, not cosines, so that embeddings may grow. Never negative. Contrastive Tension (Carlsson et
    al., ICLR 2021), equation 1; sentence-transformers' own version sums over the pairs.

    Args:
        first: The first copy's embeddings of one side.
        second: The second copy's embeddings of the other side.
        targets: 1 where both sides are the same sentence, else 0.
    """
    return binary_cross_entropy_with_logits((first.float() * second.float()).sum(1), targets.float())


class ContrastiveTensionLoss(Loss):
    """`contrastive_tension` as a module, which makes the second copy of the encoder, `twin`, and trains it too.

    The twin encodes the second column. The labels are (pairs,): 1 if both texts are the same sentence, else 0.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__(model)
        self.twin = deepcopy(model)

    def forward(self, sentence_features: Columns, labels: Tensor) -> Float[Tensor, ""]:
        """Return the loss of a batch."""
        left, right = sentence_features
        return contrastive_tension(embed(self.model, left), embed(self.twin, right), labels.view(-1))


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
        first: The first copy's embeddings, from all processes.
        second: The second copy's embeddings of the same sentences, in the same order.
        temperature: Temperature of the cosines, above 0.
        first_row: First i of the mean, where this process's rows begin.
        n_rows: Number of rows in the mean; None: all.
    """
    own = torch.arange(first_row, first_row + (n_rows or len(first)), device=first.device)
    logits = cos_sim(first.float(), second.float()) / temperature
    return (cross_entropy(logits[own], own) + cross_entropy(logits.T[own], own)) / 2


class InBatchContrastiveTensionLoss(Loss):
    """`in_batch_contrastive_tension` as a module, on each sentence twice, as sentence-transformers recommends.

    A second copy of the encoder, `twin`, encodes the second column and is trained too. The temperature is learned,
    starting at the given one.
    """

    def __init__(self, model: SentenceTransformer, temperature: float = 0.05) -> None:
        super().__init__(model)
        check_temperatures(temperature, usual="sentence-transformers' is 0.05")
        self.twin = deepcopy(model)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))

    def forward(self, sentence_features: Columns, labels: Tensor | None = None) -> Float[Tensor, ""]:
        """Return the loss of a batch; labels are not used."""
        left, right = sentence_features
        first, second = embed(self.model, left), embed(self.twin, right)
        (all_first, first_row), (all_second, _) = gathered(first), gathered(second)
        temperature = (-self.log_scale).exp()
        return in_batch_contrastive_tension(all_first, all_second, temperature, first_row, len(first))

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        return {"temperature": math.exp(-self.log_scale.item())}
