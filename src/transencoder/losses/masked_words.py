"""Losses with masked words: DeCLUTR predicts them, DiffCSE detects which ones a language model has replaced.

Both are for the `SentenceTransformerTrainer` of this package or the plain one, and take no labels.
"""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from transencoder.losses.contrastive import INITIAL_STD, info_nce, nt_xent
from transencoder.losses.features import (
    Columns,
    Loss,
    check_temperatures,
    embed,
    embed_sides,
    gathered,
    join,
    projector_of,
)

_MASKED, _RANDOM = 0.8, 0.1
"""Shares of the chosen tokens that become the mask and a random token; the others stay."""


def mask_tokens(
    ids: Int[Tensor, "batch tokens"],
    attention_mask: Int[Tensor, "batch tokens"],
    mask_ratio: float,
    *,
    mask_token_id: int,
    special_ids: list[int],
    n_vocabulary: int,
) -> tuple[Int[Tensor, "batch tokens"], Bool[Tensor, "batch tokens"], Bool[Tensor, "batch tokens"]]:
    """Choose tokens to predict, each with probability `mask_ratio`, 0 to 1, and replace them.

    Padding and special tokens are never chosen; a random token is one of `n_vocabulary`.

    Returns:
        The ids after `replace_chosen`, which tokens were chosen, and which could have been.
    """
    is_text = attention_mask.bool() & ~torch.isin(ids, torch.tensor(special_ids, device=ids.device))
    is_chosen = is_text & (torch.rand(ids.shape, device=ids.device) < mask_ratio)
    fates = torch.rand(ids.shape, device=ids.device)
    anything = torch.randint(n_vocabulary, ids.shape, device=ids.device)
    return replace_chosen(ids, is_chosen, fates, anything, mask_token_id), is_chosen, is_text


def replace_chosen(
    ids: Int[Tensor, "batch tokens"],
    is_chosen: Bool[Tensor, "batch tokens"],
    fates: Float[Tensor, "batch tokens"],
    anything: Int[Tensor, "batch tokens"],
    mask_token_id: int,
) -> Int[Tensor, "batch tokens"]:
    """Replace 80 % of the chosen tokens by the mask, 10 % by a random one; 10 % stay (BERT, NAACL 2019, section 3.1).

    `fates`, random numbers in [0, 1), decide among the three; `anything` are the random tokens.
    """
    masked = ids.masked_fill(is_chosen & (fates < _MASKED), mask_token_id)
    return torch.where(is_chosen & (fates >= 1 - _RANDOM), anything, masked)


class DeCLUTRLoss(Loss):
    """DeCLUTR's loss on columns of spans.

    It is `nt_xent` between anchors and the means of their positives, plus the cross-entropy of the anchors' masked
    tokens, with equal weights (Giorgi et al., ACL 2021, equations 2 to 4). The anchors are embedded with their masks. A
    row is a document: an anchor and its positives, then the next anchor and its positives. With several processes, the
    spans of all processes are candidates.

    Args:
        n_positives: Number of positives that follow each anchor; DeCLUTR: 2.
        temperature: Temperature of the cosines, above 0; DeCLUTR: 0.05.
        head: A masked language model whose encoder returns `inputs_embeds`, so that it maps the model's token
            embeddings to logits; None: nothing is masked.
        mask_token_id: Id of the vocabulary's mask token; needed with a head.
        special_ids: Ids of tokens that are never masked.
        mask_ratio: Share of the anchors' tokens to predict; DeCLUTR: 0.15.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        n_positives: int = 2,
        temperature: float = 0.05,
        *,
        head: nn.Module | None = None,
        mask_token_id: int | None = None,
        special_ids: Iterable[int] = (),
        mask_ratio: float = 0.15,
    ) -> None:
        super().__init__(model)
        check_temperatures(temperature, usual="DeCLUTR's is 0.05")
        if (head is None) != (mask_token_id is None):
            raise ValueError("head and mask_token_id belong together; give both, or neither")
        self.n_positives = n_positives
        self.temperature = temperature
        self.head = head
        self.mask_token_id = mask_token_id
        self.special_ids = list(special_ids)
        self.mask_ratio = mask_ratio

    def forward(self, sentence_features: Columns, labels: Tensor | None = None) -> Float[Tensor, ""]:
        """Return the loss of a batch, whose columns are each anchor followed by its positives."""
        columns, group = list(sentence_features), 1 + self.n_positives
        anchors = join(columns[::group])
        positives = join([column for i, column in enumerate(columns) if i % group])
        n_documents = len(columns[0]["input_ids"])
        spans = embed(self.model, positives)
        means = spans.view(-1, self.n_positives, n_documents, spans.shape[1]).mean(1).flatten(0, 1)
        embeddings, guess = self._guess(anchors)
        return nt_xent(gathered(embeddings)[0], gathered(means)[0], self.temperature) + guess

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        ratio = {} if self.head is None else {"mask_ratio": self.mask_ratio}
        return {"n_positives": self.n_positives, "temperature": self.temperature} | ratio

    def _guess(self, anchors: dict[str, Any]) -> tuple[Tensor, Tensor | float]:
        """Return the masked anchors' embeddings, and the mean cross-entropy of the masked tokens; 0 if none are."""
        if self.head is None or self.mask_token_id is None:
            return embed(self.model, anchors), 0.0
        ids = anchors["input_ids"]
        masked, is_chosen, _ = mask_tokens(
            ids,
            anchors["attention_mask"],
            self.mask_ratio,
            mask_token_id=self.mask_token_id,
            special_ids=self.special_ids,
            n_vocabulary=self.head.config.vocab_size,  # type: ignore[union-attr, arg-type]
        )
        output = self.model(anchors | {"input_ids": masked})
        logits = self.head(inputs_embeds=output["token_embeddings"][is_chosen][None]).logits[0]
        guess = cross_entropy(logits.float(), ids[is_chosen], reduction="sum") / max(1, len(logits))
        return output["sentence_embedding"], guess


def replaced_token_detection(
    logits: Float[Tensor, "batch tokens 2"],
    is_replaced: Bool[Tensor, "batch tokens"],
    counts: Bool[Tensor, "batch tokens"],
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of detecting replaced tokens, over the tokens in `counts` (DiffCSE, equation 2).

    The released code includes padding, as not replaced: give `counts` all true for that.

    Args:
        logits: Logits of "as it was" and "replaced".
        is_replaced: Whether each token differs from the sentence's.
        counts: Whether each token is included in the mean; at least one is.
    """
    return cross_entropy(logits.float()[counts], is_replaced[counts].long())


def batch_norm_projector(dimension: int) -> nn.Module:
    """Build DiffCSE's projector: two linear layers with batch normalisation, initialised as BERT (released code)."""
    layers = nn.Sequential(
        nn.Linear(dimension, 2 * dimension, bias=False),
        nn.BatchNorm1d(2 * dimension),
        nn.ReLU(),
        nn.Linear(2 * dimension, dimension, bias=False),
        nn.BatchNorm1d(dimension, affine=False),
    )
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=INITIAL_STD)
    return layers


class DiffCSELoss(Loss):
    """DiffCSE's loss on two columns of the same sentences.

    It is `info_nce` plus `weight` times `replaced_token_detection` by a discriminator. This reads the edited sentence,
    with the embedding in place of its first token (Chuang et al., NAACL 2022, section 3). The generator predicts with
    dropout in training, as in the released code. Generator, discriminator and projector are not part of the saved
    model.

    Args:
        generator: A masked language model with the same vocabulary; it is frozen.
        discriminator: An encoder with the same vocabulary and the embeddings' width; it is trained.
        mask_token_id: Id of the vocabulary's mask token.
        special_ids: Ids of tokens that are never masked.
        temperature: Temperature of `info_nce`.
        weight: Weight of the detection loss; DiffCSE: 0.005.
        mask_ratio: Share of the tokens that the generator must predict; DiffCSE: BERT 0.3, RoBERTa 0.2.
        projector: Module between embeddings and loss, used in training only; DiffCSE: `batch_norm_projector`.
        counts_padding: Whether the mean of the detection loss includes padding, as tokens that were not replaced
            (released code).
    """

    shown = ("temperature", "weight", "mask_ratio", "counts_padding")

    def __init__(
        self,
        model: SentenceTransformer,
        generator: nn.Module,
        discriminator: nn.Module,
        *,
        mask_token_id: int,
        special_ids: list[int],
        temperature: float = 0.05,
        weight: float = 0.005,
        mask_ratio: float = 0.3,
        projector: nn.Module | None = None,
        counts_padding: bool = False,
    ) -> None:
        super().__init__(model)
        self.generator = generator.requires_grad_(False)
        self.discriminator = discriminator
        self.head = nn.Linear(discriminator.config.hidden_size, 2)  # type: ignore[union-attr, arg-type]
        self.mask_token_id = mask_token_id
        self.special_ids = special_ids
        self.temperature = temperature
        self.weight = weight
        self.mask_ratio = mask_ratio
        self.projector = projector_of(model, projector)
        self.counts_padding = counts_padding

    def forward(self, sentence_features: Columns, labels: Tensor | None = None) -> Float[Tensor, ""]:
        """Return the loss of a batch."""
        sides = list(sentence_features)
        views = self.projector(embed_sides(self.model, sides))
        first, second = views.chunk(2)
        all_seconds, first_key = gathered(second)
        contrast = info_nce(first, all_seconds, self.temperature, first_key)
        detections = [self._detect(side, view) for side, view in zip(sides, (first, second), strict=True)]
        return contrast + self.weight * torch.stack(detections).mean()

    def _detect(self, features: dict[str, Any], embeddings: Tensor) -> Tensor:
        ids, mask = features["input_ids"], features["attention_mask"]
        edited = self._edit(ids, mask)

        def inject(_: nn.Module, __: Any, output: Tensor) -> Tensor:
            return torch.cat([embeddings[:, None].to(output.dtype), output[:, 1:]], dim=1)

        with self.discriminator.embeddings.register_forward_hook(inject):  # type: ignore[union-attr]
            states = self.discriminator(input_ids=edited, attention_mask=mask).last_hidden_state
        counts = torch.ones_like(mask, dtype=torch.bool) if self.counts_padding else mask.bool()
        return replaced_token_detection(self.head(states), (edited != ids) & mask.bool(), counts)

    @torch.no_grad()
    def _edit(self, ids: Int[Tensor, "batch tokens"], mask: Int[Tensor, "batch tokens"]) -> Tensor:
        """Replace all tokens but the first by the generator's most likely ones, and padding by 0 (released code)."""
        masked, _, _ = mask_tokens(
            ids,
            mask,
            self.mask_ratio,
            mask_token_id=self.mask_token_id,
            special_ids=self.special_ids,
            n_vocabulary=self.generator.config.vocab_size,  # type: ignore[union-attr, arg-type]
        )
        self.generator.train(self.training)
        guesses = self.generator(input_ids=masked, attention_mask=mask).logits.argmax(-1)
        return torch.cat([ids[:, :1], guesses[:, 1:]], dim=1) * mask
