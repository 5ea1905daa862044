"""Mirror-BERT (Liu et al., EMNLP 2021): a text finds its own copy with a span masked, in seconds of training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from transencoder.config import FitConfig, Pooling
from transencoder.errors import InputError
from transencoder.methods.checks import check_dropout, check_temperature
from transencoder.methods.start import Sentences, StartMethod

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from transencoder.views import PairMaker


@dataclass(frozen=True, kw_only=True)
class MirrorBERTFit(FitConfig):
    """How Mirror-BERT trains: the released code's values for sentences."""

    learning_rate: float | None = 2e-5
    """Learning rate of AdamW (released code)."""
    batch_size: int | None = 200
    """Texts a step and device (released code)."""
    epochs: int | None = 1
    """Passes over the texts. Released code: sentences 1, words 2."""
    max_length: int | None = 50
    """Tokens of a text. Released code: sentences 50, words 25."""
    warmup_ratio: float | None = 0.0
    """Share of the steps with rising rate (released code: none)."""
    schedule: Literal["linear", "constant"] = "constant"
    """The rate stays (released code), or falls in a line to 0."""
    max_grad_norm: float = 0.0
    """Gradients are clipped to this norm; 0: not at all (released code)."""
    bucket_batches: int = 1
    """Batches in a window that is sorted by length. 1, so that the negatives are of any length as in the released code;
    more is faster."""


@dataclass(frozen=True, kw_only=True)
class MirrorBERT(Sentences, StartMethod):
    """Mirror-BERT: a text and its copy with a span masked, through two dropout masks."""

    about = (
        "Each text must find its copy with a few characters masked among the texts and copies of its batch "
        "(Mirror-BERT)."
    )

    pooling: Pooling | None = "mean"
    """Pooling in training and at test. Released code: mean for BERT (over padding too, which we leave out), cls for
    RoBERTa. None: the start's own."""
    temperature: float = 0.04
    """Of the softmax over cosines, above 0. Paper: sentences 0.04, words 0.2."""
    span_characters: int = 5
    """Characters that are masked in the second view (released code); 0: none, as for words. Not where the views are two
    columns."""
    mask_token: str | None = None
    """What stands for them; None: the tokenizer's own. The released code: `[MASK]` for every model."""
    drophead: float = 0.0
    """Probability that an attention head is dropped, for a text and in a layer; 0 to below 1, one head always stays.
    Released code: BERT 0.2, RoBERTa 0.05, both with `fit.dropout` 0; words 0."""
    fit: MirrorBERTFit = field(default_factory=MirrorBERTFit)
    """How the encoder is trained."""

    def __post_init__(self) -> None:
        """Refuse contradictions."""
        super().__post_init__()
        check_temperature(self.temperature, "the paper's is 0.04")
        if self.span_characters < 0:
            raise InputError(f"span_characters is {self.span_characters}; it must be at least 0")
        if not 0.0 <= self.drophead < 1.0:
            raise InputError(f"drophead is {self.drophead}; it is a share of the heads, 0 to below 1")
        if self.mask_token is not None and self.is_paired:
            raise InputError("mask_token is given, but two columns are the views as they are; leave one of them out")
        if self.fit.dropout == 0.0 and not self._views_differ:
            raise InputError("fit.dropout, span_characters and drophead are all 0, and then both views are the same")

    @property
    def _views_differ(self) -> bool:
        """Whether anything but dropout makes the views differ."""
        return bool(self.span_characters or self.drophead or self.is_paired)

    def pair_maker(self, mask_token: str | None) -> PairMaker | None:
        """The text, and its copy with a span masked."""
        from transencoder.views import SpanMask, TwoViews, as_is

        if not self.span_characters:
            return super().pair_maker(mask_token)
        token = self.mask_token or mask_token
        if token is None:
            raise InputError(f"the tokenizer of {self.start} has no mask token; give mask_token, or span_characters 0")
        return TwoViews(first=as_is, second=SpanMask(mask_token=token, n_characters=self.span_characters))

    def loss(self, student: SentenceTransformer) -> nn.Module:
        """InfoNCE in both directions, the student's heads dropped.

        Raises:
            InputError: The student's heads are not known, or nothing makes both views differ.
        """
        from transencoder.losses import NTXentLoss, add_drop_head

        if not self._views_differ:
            check_dropout(self, student)
        if self.drophead:
            try:
                add_drop_head(student, self.drophead)
            except ValueError as error:
                raise InputError(f"drophead is {self.drophead}, but {error}; give drophead 0") from error
        return NTXentLoss(student, self.temperature)
