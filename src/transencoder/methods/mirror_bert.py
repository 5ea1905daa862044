"""Mirror-BERT (Liu et al., EMNLP 2021): a text finds its own copy with a span masked, in seconds of training."""

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
    """Mirror-BERT: a text and its copy with a span masked, through two dropout masks."""

    about = (
        "Each text must find its copy with a few characters masked among the texts and copies of its batch "
        "(Mirror-BERT)."
    )

    pooling: configs.Pooling | None = "mean"
    """Pooling in training and at test. Released code: mean for BERT (over padding too, which we leave out), cls for
    RoBERTa. None: the base model's own."""
    temperature: float = configs.above_zero(0.04, ", the paper's is 0.04")
    """Of the softmax over cosines, above 0. Paper: sentences 0.04, words 0.2."""
    span_characters: int = configs.at_least(0, 5)
    """Characters that are masked in the second view (released code); 0: none, as for words. Not where the views are two
    columns."""
    mask_token: str | None = None
    """What stands for them; None: the tokenizer's own. The released code: `[MASK]` for every model."""
    drophead: float = configs.share(0.0, " of the heads")
    """Probability that an attention head is dropped, for a text and in a layer; 0 to below 1, one head always stays.
    Released code: BERT 0.2, RoBERTa 0.05, both with `fit.dropout` 0; words 0."""
    fit: configs.FitConfig = configs.fit_defaults(
        learning_rate=(2e-5, "Learning rate of AdamW (released code)."),
        batch_size=(200, "Texts a step and device (released code)."),
        epochs=(1, "Passes over the texts. Released code: sentences 1, words 2."),
        max_length=(50, "Tokens of a text. Released code: sentences 50, words 25."),
        warmup_ratio=(0.0, "Share of the steps with rising rate (released code: none)."),
        schedule=("constant", "The rate stays (released code), or falls in a line to 0.", ("linear", "constant")),
        max_grad_norm=(0.0, "Gradients are clipped to this norm; 0: not at all (released code)."),
        bucket_batches=(
            1,
            "Batches in a window that is sorted by length. 1, so that the negatives are of any length as in the "
            "released code; more is faster.",
        ),
    )
    """How the encoder is trained."""

    def contradictions(self) -> configs.Contradictions:
        """Yield what fields say against each other."""
        if self.fit.dropout == 0.0 and self.rows.need_dropout:
            yield "fit.dropout, span_characters and drophead are all 0, and then both views are the same"
        yield from super().contradictions()
        if self.mask_token is not None and self.is_paired:
            yield "mask_token is given, but two columns are the views as they are; leave one of them out"

    @property
    def rows(self) -> configs.TrainingRows:
        """The text, and its copy with a span masked."""
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
        """Make InfoNCE in both directions, the student's heads dropped.

        Raises:
            InputError: The student's heads are not known.
        """
        from transencoder.losses import NTXentLoss, add_drop_head

        if self.drophead:
            try:
                add_drop_head(student, self.drophead)
            except ValueError as error:
                raise InputError(f"drophead is {self.drophead}, but {error}; give drophead 0") from error
        return NTXentLoss(student, self.temperature)
