"""CKD (Wu et al., DisCo, 2021, as DistilCSE releases it): each sentence finds its teacher's embedding in a queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from transencoder.config import FitConfig, Pooling
from transencoder.methods.checks import check_queue, check_temperature
from transencoder.methods.taught import OneByOne, Projection

if TYPE_CHECKING:
    from pathlib import Path

    from sentence_transformers import SentenceTransformer
    from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class CKDFit(FitConfig):
    """How CKD trains: the released code's values where one device can have them."""

    learning_rate: float | None = 2e-4
    """Peak learning rate of AdamW (released code, whose second beta is 0.98)."""
    batch_size: int | None = 512
    """Sentences, or rows of views, a step and device (released code: 512 on each of 8 GPUs)."""
    epochs: int | None = 20
    """Passes over the rows (released code: at most 20, stopped after 3 without a gain)."""
    max_length: int | None = 64
    """Tokens of a sentence."""
    warmup_ratio: float | None = 0.005
    """Share of the steps with rising rate (released code: a tenth of an epoch)."""
    schedule: Literal["linear", "cosine", "constant"] = "cosine"
    """After the warm-up the rate falls along a cosine (released code), in a line, or stays."""
    eval_steps: int = 125
    """Steps between dev evaluations; one more at each epoch's end."""


@dataclass(frozen=True, kw_only=True)
class CKD(OneByOne):
    """CKD: an embedding must find its teacher's own among those of thousands of sentences."""

    about = "Each sentence's embedding must find its teacher's among those of thousands of other sentences (CKD)."

    projection: Projection = "training"
    """A linear layer from the student's width to the teacher's: in `training` only (released code, whatever the
    widths); `kept`, a part of the student, whose embeddings are then of the teacher's width; `auto`: in training where
    the widths differ, else none."""
    pooling: Pooling | None = "cls"
    """Pooling in training and at test (released code: cls, there with BERT's pooler). None: the start's own."""
    queue_size: int = 65_536
    """The teacher's embeddings of earlier sentences (released code)."""
    temperature: float | None = None
    """Of the similarities, above 0 and fixed; None: learned, from 1 / e on (released code)."""
    fit: CKDFit = field(default_factory=CKDFit)
    """How the encoder is trained."""

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        check_temperature(self.temperature, "or left out")

    def filled(self, folder: Path) -> Self:
        """As it is, once its queue is seen to hold a batch."""
        n_texts, more = (2, ", as both texts of a row enter it") if self.is_paired else (1, "")
        check_queue(self.queue_size, n_texts * (self.fit.batch_size or 1), more)
        return self

    def distillation_loss(self, student: SentenceTransformer, dimension: int, queue: Tensor) -> nn.Module:
        """InfoNCE over the queue."""
        from transencoder.losses import CKDLoss, InstanceQueue

        instances = InstanceQueue(self.queue_size, dimension)
        return CKDLoss(student, instances, self.projector(student, dimension), temperature=self.temperature)

    def loss_operations(self, width: int, dimension: int | None) -> float:
        """Of the queue, each vector of which takes part in a product, and in another for the gradient."""
        return 4 * self.queue_size * (dimension or 0) * (2 if self.is_paired else 1)

    def loss_state(self, width: int, dimension: int | None) -> float:
        """Of the queue."""
        return self.queue_size * (dimension or 0)
