"""CKD (Wu et al., DisCo, 2021; code of DistilCSE): each sentence must find its teacher's embedding in a queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transencoder import configs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class CKD(configs.SentenceStudent):
    """CKD: contrastive distillation, in which an embedding must find its teacher's among thousands of others."""

    about = "Each sentence's embedding must find its teacher's among those of thousands of other sentences (CKD)."

    projection: configs.Projection = "training"
    """Linear layer from the student's width to the teacher's: in `training` only (released code, whatever the widths);
    `kept` as part of the student, whose embeddings then have the teacher's width; `auto`: in training if the widths
    differ, else none."""
    pooling: configs.Pooling | None = "cls"
    """Pooling in training and at test (released code: cls, there with BERT's pooler). None: the base model's own."""
    queue_size: int = configs.at_least(1, 65_536)
    """Number of the teacher's embeddings of earlier sentences in the queue, in addition to the batch's. It starts empty
    (released code)."""
    temperature: float | None = configs.above_zero(None, ", or left out")
    """Temperature of the similarities, above 0 and fixed; None: learned, starting at 1 / e (released code)."""
    fit: configs.FitConfig = configs.fit_defaults(  # the released code's values, as far as one device allows
        learning_rate=(2e-4, "Peak learning rate of AdamW (released code)."),
        batch_size=(
            512,
            "Number of sentences, or rows of views per step and device (released code: 512 on each of 8 GPUs).",
        ),
        epochs=(20, "Number of passes over the rows (released code: 20, with `patience_epochs` 3)."),
        max_length=(64, "Maximum number of tokens of a sentence."),
        warmup_ratio=(
            0.005,
            "Share of the steps in which the learning rate rises (released code: a tenth of an epoch).",
        ),
        schedule=(
            "cosine",
            "Learning rate after the warm-up: it falls along a cosine (released code), falls linearly, or stays "
            "constant.",
        ),
        weight_decay=(0.0, "AdamW weight decay (released code: none)."),
        adam_beta2=(0.98, "Share of the mean of squared gradients that stays at each step (released code)."),
        eval_steps=(125, "Number of steps between dev evaluations; one more follows at the end of each epoch."),
    )
    """Training settings of the encoder."""

    def cost(self, width: int, dimension: int | None) -> configs.MethodCost:
        """Return the cost of the queue: each vector takes part in one product, and in another for the gradient."""
        queued = self.queue_size * (dimension or 0)
        return configs.MethodCost(loss_operations=4 * queued * (2 if self.is_paired else 1), loss_state=queued)

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Build InfoNCE over the queue."""
        from transencoder.losses import CKDLoss, InstanceQueue

        assert given.dimension is not None, "there is a teacher"
        n_entering = (self.fit.batch_size or 0) * (2 if self.is_paired else 1)
        instances = InstanceQueue(self.queue_size, given.dimension, n_entering=n_entering, is_empty=True)
        projector = configs.training_projector(self.distillation, student, given)
        return CKDLoss(student, instances, projector, temperature=self.temperature)
