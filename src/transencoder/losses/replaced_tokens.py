"""DiffCSE: the embedding must tell which words of its sentence a masked language model has replaced."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from transencoder.losses.features import embed_sides
from transencoder.losses.gathering import gathered
from transencoder.losses.info_nce import info_nce
from transencoder.losses.masking import mask_tokens


def replaced_token_detection(
    logits: Float[Tensor, "batch tokens 2"],
    is_replaced: Bool[Tensor, "batch tokens"],
    counts: Bool[Tensor, "batch tokens"],
) -> Float[Tensor, ""]:
    """Mean over the tokens that count of the cross-entropy of "was this token replaced?" (DiffCSE, equation 2).

    The released code counts padding too: give `counts` all true for that.

    Args:
        logits: Of "as it was" and "replaced".
        is_replaced: Whether the token differs from the sentence's.
        counts: Which tokens the mean is over; at least one.

    Returns:
        The loss, a scalar.
    """
    return cross_entropy(logits.float()[counts], is_replaced[counts].long())


class DiffCSELoss(nn.Module):
    """DiffCSE's loss for `SentenceTransformerTrainer`, ours and the plain one, on two columns of the same sentences.

    `info_nce` plus `weight` times `replaced_token_detection` by a discriminator that reads the edited sentence with the
    embedding in the place of its first token (Chuang et al., NAACL 2022, section 3). Generator, discriminator and
    projector are no part of the saved model.

    Args:
        model: The bi-encoder to train.
        generator: A masked language model of the same vocabulary; it is frozen.
        discriminator: An encoder of the same vocabulary and the embeddings' size; it is trained.
        mask_token_id: The vocabulary's mask.
        special_ids: Tokens that are never masked.
        temperature: Of `info_nce`, above 0; DiffCSE: 0.05.
        weight: Of the detection; DiffCSE: 0.005.
        mask_ratio: Share of the tokens that the generator must guess; DiffCSE: BERT 0.3, RoBERTa 0.2.
        projector: Between embeddings and loss, in training only.
        counts_padding: As the released code does.
    """

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
        super().__init__()
        self.model = model
        self.generator = generator.requires_grad_(False)
        self.discriminator = discriminator
        self.head = nn.Linear(discriminator.config.hidden_size, 2)  # type: ignore[union-attr, arg-type]
        self.mask_token_id = mask_token_id
        self.special_ids = special_ids
        self.temperature = temperature
        self.weight = weight
        self.mask_ratio = mask_ratio
        self.projector = nn.Identity() if projector is None else projector
        self.counts_padding = counts_padding

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            sentence_features: Token features of the two views.
            labels: Not used.
        """
        sides = list(sentence_features)
        views = self.projector(embed_sides(self.model, [dict(side) for side in sides]))
        first, second = views.chunk(2)
        all_seconds, first_key = gathered(second)
        contrast = info_nce(first, all_seconds, self.temperature, first_key)
        detections = [self._detect(side, view) for side, view in zip(sides, (first, second), strict=True)]
        return contrast + self.weight * torch.stack(detections).mean()

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {name: getattr(self, name) for name in ("temperature", "weight", "mask_ratio", "counts_padding")}

    def _detect(self, features: dict[str, Any], embeddings: Tensor) -> Tensor:
        ids, mask = features["input_ids"], features["attention_mask"]
        edited = self._edit(ids, mask)

        def inject(_: nn.Module, __: Any, output: Tensor) -> Tensor:
            return torch.cat([embeddings[:, None].to(output.dtype), output[:, 1:]], dim=1)

        hook = self.discriminator.embeddings.register_forward_hook(inject)  # type: ignore[union-attr]
        try:
            states = self.discriminator(input_ids=edited, attention_mask=mask).last_hidden_state
        finally:
            hook.remove()
        counts = torch.ones_like(mask, dtype=torch.bool) if self.counts_padding else mask.bool()
        return replaced_token_detection(self.head(states), edited != ids, counts)

    @torch.no_grad()
    def _edit(self, ids: Int[Tensor, "batch tokens"], mask: Int[Tensor, "batch tokens"]) -> Tensor:
        """The sentences as the generator fills them in: its first choice everywhere but at special tokens.

        The released code takes its first choice at [SEP] and padding too.
        """
        masked, _, is_text = mask_tokens(
            ids,
            mask,
            self.mask_ratio,
            mask_token_id=self.mask_token_id,
            special_ids=self.special_ids,
            n_vocabulary=self.generator.config.vocab_size,  # type: ignore[union-attr, arg-type]
        )
        self.generator.eval()
        guesses = self.generator(input_ids=masked, attention_mask=mask).logits.argmax(-1)
        return torch.where(is_text, guesses, ids)
