"""CKD (Wu et al., DisCo, 2021, as DistilCSE releases it): each sentence finds its teacher's embedding in a queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transencoder import configs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class CKD(configs.SentenceStudent):
    """CKD: an embedding must find its teacher's own among those of thousands of sentences."""

    about = "Each sentence's embedding must find its teacher's among those of thousands of other sentences (CKD)."

    projection: configs.Projection = "training"
    """A linear layer from the student's width to the teacher's: in `training` only (released code, whatever the
    widths); `kept`, a part of the student, whose embeddings are then of the teacher's width; `auto`: in training where
    the widths differ, else none."""
    pooling: configs.Pooling | None = "cls"
    """Pooling in training and at test (released code: cls, there with BERT's pooler). None: the base model's own."""
    queue_size: int = configs.at_least(1, 65_536)
    """The teacher's embeddings of earlier sentences, at first none, beside the batch's (released code)."""
    temperature: float | None = configs.above_zero(None, ", or left out")
    """Of the similarities, above 0 and fixed; None: learned, from 1 / e on (released code)."""
    fit: configs.FitConfig = configs.fit_defaults(  # the released code's values where one device can have them
        learning_rate=(2e-4, "Peak learning rate of AdamW (released code)."),
        batch_size=(512, "Sentences, or rows of views, a step and device (released code: 512 on each of 8 GPUs)."),
        epochs=(20, "Passes over the rows (released code: 20, with `patience_epochs` 3)."),
        max_length=(64, "Tokens of a sentence."),
        warmup_ratio=(0.005, "Share of the steps with rising rate (released code: a tenth of an epoch)."),
        schedule=("cosine", "After the warm-up the rate falls along a cosine (released code), in a line, or stays."),
        weight_decay=(0.0, "AdamW weight decay (released code: none)."),
        adam_beta2=(0.98, "Share of the mean of squared gradients that stays at each step (released code)."),
        eval_steps=(125, "Steps between dev evaluations; one more at each epoch's end."),
    )
    """How the encoder is trained."""

    def cost(self, width: int, dimension: int | None) -> configs.Cost:
        """Return that of the queue, each vector of which takes part in a product, and in another for the gradient."""
        queued = self.queue_size * (dimension or 0)
        return configs.Cost(loss_operations=4 * queued * (2 if self.is_paired else 1), loss_state=queued)

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Make InfoNCE over the queue."""
        from transencoder.losses import CKDLoss, InstanceQueue

        assert given.dimension is not None, "there is a teacher"
        n_entering = (self.fit.batch_size or 0) * (2 if self.is_paired else 1)
        instances = InstanceQueue(self.queue_size, given.dimension, n_entering=n_entering, is_empty=True)
        projector = configs.training_projector(self.distillation, student, given)
        return CKDLoss(student, instances, projector, temperature=self.temperature)
