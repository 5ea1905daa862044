"""ConGen (Limkonchotiwat et al., Findings of EMNLP 2022): a teacher's similarities to a queue of real sentences."""

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
"""Parameters of BERT-Tiny, -Mini, -Small (and MiniLM-L6), -Base -> the released settings."""


@dataclass(frozen=True, kw_only=True)
class ConGen(configs.TeacherFields, configs.ViewEncoder):
    """ConGen: a text and its view are as alike to real sentences as the text is for a teacher."""

    about = (
        "A text and its view go through the encoder, and each must be as alike to thousands of sentences as the text "
        "is for a teacher (ConGen)."
    )
    inputs = (*configs.ViewEncoder.inputs, *configs.TeacherFields.inputs)

    projection: configs.Projection = "kept"
    """A linear layer and tanh from the student's width to the teacher's: `kept`, a part of the student, whose
    embeddings are then of the teacher's width (released code, whatever the widths); in `training` only; `auto`: in
    training where the widths differ, else none."""
    pooling: configs.Pooling | None = "mean"
    """Pooling in training and at test (released code: mean). None: the base model's own."""
    queue_size: int | None = configs.at_least(1, None)
    """Rows whose first texts, embedded by the teacher, fill the queue at first; nothing is trained on them. Batches
    stand beside as many. None: the released number for the base model's size, 16,384 or 65,536."""
    temperature: float | None = configs.above_zero(None, ", released are 0.05 to 0.1")
    """Of the student's similarities, above 0; None: the released one for the base model's size, 0.05 or 0.07."""
    teacher_temperature: float | None = configs.above_zero(None, ", released are 0.05 to 0.1")
    """Of the teacher's similarities, above 0; None: the released one, 0.05."""
    fit: configs.FitConfig = configs.fit_defaults(
        learning_rate=(None, "Peak learning rate of AdamW; None: the released one for its size, 5e-5 to 5e-4."),
        batch_size=(128, "Rows a step and device."),
        epochs=(20, "Passes over the rows."),
        max_length=(128, "Tokens of a text."),
        warmup_ratio=(0.1, "Share of the steps with rising rate."),
        eval_steps=(512, "Steps between dev evaluations; one more at each epoch's end."),
    )
    """How the encoder is trained."""

    @property
    def distillation(self) -> configs.Teacher:
        """The teacher, whose embeddings of rows of their own fill the queue."""
        return replace(super().distillation, has_tanh=True, n_queued=self.queue_size or 0)

    def prepared(self, n_parameters: int) -> Self:
        """Return it with the released values for the model nearest in size."""
        return configs.fill_by_size(self, _RELEASED, n_parameters)

    def cost(self, width: int, dimension: int | None) -> configs.Cost:
        """Return that of the queue, each vector of which takes part in two products for p and two for q."""
        queued = (self.queue_size or 0) * (dimension or 0)
        return configs.Cost(loss_operations=2 * 8 * queued, loss_state=queued)

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Make the divergence from the teacher's similarities to the queue."""
        from transencoder.losses import ConGenLoss, InstanceQueue

        assert given.queue is not None and given.dimension is not None, "there is a teacher"
        assert self.temperature is not None and self.teacher_temperature is not None, "filled"
        instances = InstanceQueue(len(given.queue), given.dimension, n_entering=self.fit.batch_size or 0)
        instances.push(given.queue)
        projector = configs.training_projector(self.distillation, student, given)
        return ConGenLoss(student, instances, self.temperature, self.teacher_temperature, projector)
