"""Contrastive Tension (Carlsson et al., ICLR 2021): two copies of one encoder pull on each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from transencoder.config import FitConfig, Pooling
from transencoder.errors import InputError
from transencoder.methods.start import Sentences, StartMethod

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from transencoder.views import PairMaker


@dataclass(frozen=True, kw_only=True)
class ContrastiveTensionFit(FitConfig):
    """How both copies are trained: the released code's values where the trainers have them."""

    learning_rate: float | None = 1e-5
    """Peak learning rate. Released code: falls from 1e-5 to 2e-6 in steps over 2,000 batches, here in a line to 0."""
    batch_size: int | None = 16
    """Pairs a step and device: 2 positive and 14 negative ones on average (released code)."""
    epochs: int | None = 1
    """Passes over the sentences. Released code: 5,000 batches, which take 10,000 sentences."""
    max_length: int | None = 75
    """Tokens of a sentence (released code)."""
    warmup_ratio: float | None = 0.0
    """Share of the steps with rising rate (released code: none)."""
    dropout: float | None = 0.0
    """The official code trains without dropout: the tension comes from the two copies. sentence-transformers: 0.1."""
    optimizer: Literal["adamw", "rmsprop"] = "rmsprop"
    """The official code: RMSProp (its decay rate 0.9, torch's 0.99). sentence-transformers: AdamW."""
    weight_decay: float = 0.0
    """The official code has none; in RMSProp it would pull words that never occur towards 0."""
    max_grad_norm: float = 0.0
    """Gradients are clipped to this norm; 0: not at all (official code)."""
    bucket_batches: int = 1
    """Batches in a window that is sorted by length. More would part positive pairs from negative ones, whose longer
    side is longer."""


@dataclass(frozen=True, kw_only=True)
class ContrastiveTension(Sentences, StartMethod):
    """Contrastive Tension: two copies agree on the same sentence and disagree on different ones; the better is kept."""

    about = (
        "Two copies of the encoder learn to give the same sentence embeddings of a high dot product and different "
        "sentences of a low one; the copy that is better on dev is kept, without dev the first (Contrastive Tension)."
    )

    pooling: Pooling | None = "mean"
    """Pooling in training and at test (paper). None: the start's own."""
    negatives: Literal["random", "in_batch"] = "random"
    """Random pairs of other sentences (paper), or the batch's other sentences with a learned temperature
    (sentence-transformers)."""
    n_negatives: int = 7
    """Random negative pairs for each sentence (paper: 7)."""
    fit: ContrastiveTensionFit = field(default_factory=ContrastiveTensionFit)
    """How the encoders are trained."""

    def __post_init__(self) -> None:
        """Refuse contradictions."""
        super().__post_init__()
        if self.is_paired:
            raise InputError("columns names two; Contrastive Tension makes its pairs itself: name one, or none")
        if self.n_negatives < 1:
            raise InputError(f"n_negatives is {self.n_negatives}; it must be at least 1, the paper's is 7")

    @property
    def rows_per_text(self) -> int:
        """The sentence with itself, and pairs of others."""
        return 1 if self.negatives == "in_batch" else 1 + self.n_negatives

    @property
    def n_encoders(self) -> int:
        """Both copies."""
        return 2

    def pair_maker(self, mask_token: str | None) -> PairMaker | None:
        """Each sentence with itself, and, for random negatives, pairs of different ones."""
        from transencoder.views import Contrasts

        if self.negatives == "in_batch":
            return super().pair_maker(mask_token)
        return Contrasts(n_negatives=self.n_negatives)

    def loss(self, student: SentenceTransformer) -> nn.Module:
        """The loss with the second copy."""
        from transencoder.losses import ContrastiveTensionLoss, InBatchContrastiveTensionLoss

        return (InBatchContrastiveTensionLoss if self.negatives == "in_batch" else ContrastiveTensionLoss)(student)

    def rivals(self, loss: nn.Module) -> tuple[SentenceTransformer, ...]:
        """The second copy, which is kept where it does better on dev."""
        return (loss.twin,)  # type: ignore[return-value]
