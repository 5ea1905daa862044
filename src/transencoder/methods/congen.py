"""ConGen (Limkonchotiwat et al., Findings of EMNLP 2022): distils a teacher's similarities to a queue of sentences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from transencoder import configs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


_RELEASED: dict[float, dict[str, float | None]] = {
    4e6: {"learning_rate": 5e-4, "queue_size": 16_384, "temperature": 0.05, "teacher_temperature": 0.05},
    11e6: {"learning_rate": 3e-4, "queue_size": 16_384, "temperature": 0.07, "teacher_temperature": 0.05},
    29e6: {"learning_rate": 3e-4, "queue_size": 65_536, "temperature": 0.07, "teacher_temperature": 0.05},
    110e6: {"learning_rate": 5e-5, "queue_size": 65_536, "temperature": 0.07, "teacher_temperature": 0.05},
}
"""Number of parameters of BERT-Tiny, -Mini, -Small (and MiniLM-L6), -Base -> the released settings."""


@dataclass(frozen=True, kw_only=True)
class ConGen(configs.TeacherFields, configs.ViewEncoder):
    """ConGen: distillation of a teacher's similarities between a text and real sentences, for the text and its view."""

    about = (
        "A text and its view go through the encoder, and each must be as alike to thousands of sentences as the text "
        "is for a teacher (ConGen)."
    )
    inputs = (*configs.ViewEncoder.inputs, *configs.TeacherFields.inputs)

    projection: configs.Projection = "kept"
    """Linear layer and tanh from the student's width to the teacher's: `kept` as part of the student, whose embeddings
    then have the teacher's width (released code, whatever the widths); in `training` only; `auto`: in training if the
    widths differ, else none."""
    pooling: configs.Pooling | None = "mean"
    """Pooling in training and at test (released code: mean). None: the base model's own."""
    queue_size: int | None = configs.at_least(1, None)
    """Number of rows left out of training, whose first texts, embedded by the teacher, fill the queue at the start; the
    embeddings of each batch come in addition. None: the released number for the base model's size, 16,384 or 65,536."""
    temperature: float | None = configs.above_zero(None, ", released are 0.05 to 0.1")
    """Temperature of the student's similarities, above 0; None: the released value for the base model's size, 0.05 or
    0.07."""
    teacher_temperature: float | None = configs.above_zero(None, ", released are 0.05 to 0.1")
    """Temperature of the teacher's similarities, above 0; None: the released value, 0.05."""
    fit: configs.FitConfig = configs.fit_defaults(
        learning_rate=(None, "Peak learning rate of AdamW; None: the released one for its size, 5e-5 to 5e-4."),
        batch_size=(128, "Number of rows per step and device."),
        epochs=(20, "Number of passes over the rows."),
        max_length=(128, "Maximum number of tokens of a text."),
        warmup_ratio=(0.1, "Share of the steps in which the learning rate rises."),
        eval_steps=(512, "Number of steps between dev evaluations; one more follows at the end of each epoch."),
    )
    """Training settings of the encoder."""

    @property
    def distillation(self) -> configs.EmbeddingTeacher:
        """The teacher, whose embeddings of rows that are left out of training fill the queue."""
        return replace(super().distillation, has_tanh=True, n_queued=self.queue_size or 0)

    def prepared(self, n_parameters: int) -> Self:
        """Return the config with the released values for the model nearest in size."""
        return configs.fill_by_size(self, _RELEASED, n_parameters)

    def cost(self, width: int, dimension: int | None) -> configs.MethodCost:
        """Return the cost of the queue: each vector takes part in two products for p and two for q."""
        queued = (self.queue_size or 0) * (dimension or 0)
        return configs.MethodCost(loss_operations=2 * 8 * queued, loss_state=queued)

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Build the divergence from the teacher's similarities to the queue."""
        from transencoder.losses import ConGenLoss, InstanceQueue

        assert given.queue is not None and given.dimension is not None, "there is a teacher"
        assert self.temperature is not None and self.teacher_temperature is not None, "filled"
        instances = InstanceQueue(len(given.queue), given.dimension, n_entering=self.fit.batch_size or 0)
        instances.push(given.queue)
        projector = configs.training_projector(self.distillation, student, given)
        return ConGenLoss(student, instances, self.temperature, self.teacher_temperature, projector)
