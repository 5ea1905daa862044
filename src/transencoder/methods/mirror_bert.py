"""Mirror-BERT (Liu et al., EMNLP 2021): a text must find its copy with a masked span; training takes seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transencoder import configs
from transencoder.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class MirrorBERT(configs.SentenceEncoder):
    """Mirror-BERT: contrastive learning of a text and its copy with a masked span, under different dropout masks."""

    about = (
        "Each text must find its copy with a few characters masked among the texts and copies of its batch "
        "(Mirror-BERT)."
    )

    pooling: configs.Pooling | None = "mean"
    """Pooling in training and at test. Released code: mean for BERT (also over padding, which we leave out), cls for
    RoBERTa. None: the base model's own."""
    temperature: float = configs.above_zero(0.04, ", the paper's is 0.04")
    """Temperature of the softmax over cosines, above 0. Paper: sentences 0.04, words 0.2."""
    span_characters: int = configs.at_least(0, 5)
    """Number of characters to mask in the second view (released code); 0: none, as for words. Not used if the views are
    given in two columns."""
    mask_token: str | None = None
    """Token that replaces the masked span; None: the tokenizer's mask token. The released code: `[MASK]` for every
    model."""
    drophead: float = configs.share(0.0, " of the heads")
    """Probability that an attention head is dropped, for each text and layer, 0 to below 1; one head is always kept.
    Released code: BERT 0.2, RoBERTa 0.05, both with `fit.dropout` 0; words 0."""
    fit: configs.FitConfig = configs.fit_defaults(
        learning_rate=(2e-5, "Learning rate of AdamW (released code)."),
        batch_size=(200, "Number of texts per step and device (released code)."),
        epochs=(1, "Number of passes over the texts. Released code: sentences 1, words 2."),
        max_length=(50, "Maximum number of tokens of a text. Released code: sentences 50, words 25."),
        warmup_ratio=(0.0, "Share of the steps in which the learning rate rises (released code: none)."),
        schedule=(
            "constant",
            "Learning rate: it stays constant (released code), falls linearly to 0, or falls along a cosine.",
        ),
        max_grad_norm=(0.0, "Norm to which gradients are clipped; 0 switches clipping off (released code)."),
        bucket_batches=(
            1,
            "Number of batches in a window that is sorted by length. 1, so that the negatives are of any length as in "
            "the released code; more is faster.",
        ),
    )
    """Training settings of the encoder."""

    def contradictions(self) -> configs.Contradictions:
        """Yield an error message for each contradiction between fields."""
        if self.fit.dropout == 0.0 and self.rows.need_dropout:
            yield "fit.dropout, span_characters and drophead are all 0, and then both views are the same"
        yield from super().contradictions()
        if self.mask_token is not None and self.is_paired:
            yield "mask_token is given, but two columns are the views as they are; leave one of them out"

    @property
    def rows(self) -> configs.TrainingRows:
        """Each text and its copy with a masked span."""
        masked = configs.SecondView(
            kind="span-mask",
            mask_token=self.mask_token,
            n_characters=self.span_characters,
            otherwise="give mask_token, or span_characters 0",
        )
        return configs.TrainingRows(
            text=self.text,
            made=masked if self.span_characters else configs.SecondView(),
            need_dropout=not (self.span_characters or self.drophead or self.is_paired),
        )

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Build InfoNCE in both directions, and add DropHead to the student.

        Raises:
            InputError: DropHead cannot be added to the student.
        """
        from transencoder.losses import NTXentLoss, add_drop_head

        if self.drophead:
            try:
                add_drop_head(student, self.drophead)
            except ValueError as error:
                raise InputError(f"drophead is {self.drophead}, but {error}; give drophead 0") from error
        return NTXentLoss(student, self.temperature)
