"""ConGen (Limkonchotiwat et al., Findings of EMNLP 2022): a teacher's similarities to a queue of real sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

from transencoder.config import FitConfig, Pooling
from transencoder.methods.by_size import SizeRow, fill_by_size
from transencoder.methods.checks import check_queue, check_temperature
from transencoder.methods.taught import Projection, Taught
from transencoder.methods.view_method import ViewMethod

if TYPE_CHECKING:
    from pathlib import Path

    from sentence_transformers import SentenceTransformer
    from torch import Tensor, nn


@dataclass(frozen=True)
class _Row(SizeRow):
    """Released settings."""

    queue_size: int
    temperature: float
    teacher_temperature: float


_RELEASED = (
    _Row(4e6, 5e-4, 16_384, 0.05, 0.05),
    _Row(11e6, 3e-4, 16_384, 0.07, 0.05),
    _Row(29e6, 3e-4, 65_536, 0.07, 0.05),
    _Row(110e6, 5e-5, 65_536, 0.07, 0.05),
)
"""BERT-Tiny, -Mini, -Small (and MiniLM-L6), -Base."""


@dataclass(frozen=True, kw_only=True)
class ConGenFit(FitConfig):
    """How ConGen trains: the released code's values."""

    learning_rate: float | None = None
    """Peak learning rate of AdamW; None: the released one for the start's size, 5e-5 to 5e-4."""
    batch_size: int | None = 128
    """Rows a step and device."""
    epochs: int | None = 20
    """Passes over the rows."""
    max_length: int | None = 128
    """Tokens of a text."""
    warmup_ratio: float | None = 0.1
    """Share of the steps with rising rate."""
    eval_steps: int = 512
    """Steps between dev evaluations; one more at each epoch's end."""


@dataclass(frozen=True, kw_only=True)
class ConGen(Taught, ViewMethod):
    """ConGen: a text and its view are as alike to real sentences as the text is for a teacher."""

    about = (
        "A text and its view go through the encoder, and each must be as alike to thousands of sentences as the text "
        "is for a teacher (ConGen)."
    )
    has_tanh: ClassVar[bool] = True

    projection: Projection = "kept"
    """A linear layer and tanh from the student's width to the teacher's: `kept`, a part of the student, whose
    embeddings are then of the teacher's width (released code, whatever the widths); in `training` only; `auto`: in
    training where the widths differ, else none."""
    pooling: Pooling | None = "mean"
    """Pooling in training and at test (released code: mean). None: the start's own."""
    queue_size: int | None = None
    """Rows whose first texts, embedded by the teacher, fill the queue at first; nothing is trained on them. None: the
    released number for the start's size, 16,384 or 65,536."""
    temperature: float | None = None
    """Of the student's similarities, above 0; None: the released one for the start's size, 0.05 or 0.07."""
    teacher_temperature: float | None = None
    """Of the teacher's similarities, above 0; None: the released one, 0.05."""
    fit: ConGenFit = field(default_factory=ConGenFit)
    """How the encoder is trained."""

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        for name in ("temperature", "teacher_temperature"):
            check_temperature(getattr(self, name), "released are 0.05 to 0.1", name)

    @property
    def n_held_out(self) -> int:
        """What fills the queue."""
        assert self.queue_size is not None, "filled when the run was prepared"
        return self.queue_size

    def filled(self, folder: Path) -> Self:
        """With the released values for the model nearest in size."""
        filled = fill_by_size(self, _RELEASED, self.n_parameters(folder))
        check_queue(filled.n_held_out, self.fit.batch_size or 1)
        return filled

    def distillation_loss(self, student: SentenceTransformer, dimension: int, queue: Tensor) -> nn.Module:
        """Divergence from the teacher's similarities to the queue."""
        from transencoder.losses import ConGenLoss, InstanceQueue

        assert self.temperature is not None and self.teacher_temperature is not None, "filled"
        instances = InstanceQueue(len(queue), dimension)
        instances.push(queue)
        return ConGenLoss(
            student, instances, self.temperature, self.teacher_temperature, self.projector(student, dimension)
        )

    def loss_operations(self, width: int, dimension: int | None) -> float:
        """Of the queue, each vector of which takes part in two products for p and two for q."""
        return 2 * 8 * self.n_held_out * (dimension or 0)

    def loss_state(self, width: int, dimension: int | None) -> float:
        """Of the queue."""
        return self.n_held_out * (dimension or 0)
