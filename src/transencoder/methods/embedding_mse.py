"""Mean squared error between embeddings (Reimers and Gurevych, EMNLP 2020): the plainest distillation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transencoder.config import FitConfig
from transencoder.methods.taught import OneByOne

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class EmbeddingMSEFit(FitConfig):
    """How it trains: the values of sentence-transformers' distillation example, SCT's number of epochs."""

    learning_rate: float | None = 1e-4
    """Peak learning rate of AdamW (example of sentence-transformers)."""
    batch_size: int | None = 64
    """Sentences, or rows of views, a step and device (example)."""
    epochs: int | None = 10
    """Passes over the rows (example: 1 over millions of sentences)."""
    max_length: int | None = 128
    """Tokens of a sentence."""
    warmup_ratio: float | None = 0.1
    """Share of the steps with rising rate (example)."""
    eval_steps: int = 200
    """Steps between dev evaluations; one more at each epoch's end."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingMSE(OneByOne):
    """Each sentence's embedding becomes its teacher's, by mean squared error."""

    about = "Each sentence's embedding is brought to its teacher's, by mean squared error."

    fit: EmbeddingMSEFit = field(default_factory=EmbeddingMSEFit)
    """How the encoder is trained."""

    def distillation_loss(self, student: SentenceTransformer, dimension: int, queue: Tensor) -> nn.Module:
        """sentence-transformers' own, the projection of training in it."""
        from sentence_transformers.sentence_transformer.losses import MSELoss

        return MSELoss(student, dimension if self.has_projector(student, dimension) else None)
