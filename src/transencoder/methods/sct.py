"""SCT (Limkonchotiwat et al., TACL 2023): each view is as alike to earlier sentences as the other view is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self

from transencoder.config import FitConfig, Pooling
from transencoder.errors import InputError
from transencoder.methods.by_size import SizeRow, fill_by_size
from transencoder.methods.checks import check_dropout, check_fit_dropout, check_queue, check_temperature
from transencoder.methods.view_method import ViewMethod

if TYPE_CHECKING:
    from pathlib import Path

    from sentence_transformers import SentenceTransformer
    from torch import Tensor, nn

    from transencoder.losses import ViewComparison


@dataclass(frozen=True)
class _Row(SizeRow):
    """A row of SCT's Table 1."""

    queue_size: int
    reference_temperature: float | None
    """None: not used."""
    temperature: float


_TABLE_1 = (
    _Row(4e6, 5e-4, 131_072, 0.03, 0.04),
    _Row(11e6, 3e-4, 131_072, 0.01, 0.03),
    _Row(29e6, 3e-4, 65_536, 0.02, 0.03),
    _Row(110e6, 5e-4, 65_536, 0.04, 0.05),
    _Row(340e6, 5e-4, 16_384, 0.04, 0.05),
)
"""BERT-Tiny, -Mini, -Small, -Base, -Large."""

_RELEASED_DISTILLATION = (
    _Row(4e6, 5e-4, 131_072, 0.03, 0.04),
    _Row(11e6, 1e-4, 65_536, 0.04, 0.05),
    _Row(29e6, 1e-4, 131_072, 0.04, 0.05),
    _Row(110e6, 1e-4, 65_536, 0.04, 0.05),
)
"""BERT-Tiny, -Mini, -Small, -Base in the released distillation; the paper has no table of its own for it."""


@dataclass(frozen=True, kw_only=True)
class SCTFit(FitConfig):
    """How SCT trains: the paper's values (section 4.1)."""

    learning_rate: float | None = None
    """Peak learning rate of AdamW; None: Table 1's for the start's size, 3e-4 or 5e-4; 1e-4 in most second steps."""
    batch_size: int | None = 128
    """Pairs of views a step and device."""
    epochs: int | None = None
    """Passes over the views; None: 10 (paper), with `two_step` 20 (released code)."""
    max_length: int | None = 128
    """Tokens of a view (released code)."""
    warmup_ratio: float | None = 0.1
    """Share of the steps with rising rate."""
    eval_steps: int = 64
    """Steps between dev evaluations; one more at each epoch's end."""


@dataclass(frozen=True, kw_only=True)
class SCT(ViewMethod):
    """SCT: two views of a sentence, each as alike to thousands of earlier sentences as the other one is."""

    about = (
        "Two views of a sentence go through the encoder, and each must be as alike to thousands of earlier sentences "
        "as the other view is (SCT)."
    )

    teacher: str | None = None
    """Distillation (paper, section 3.4): a larger bi-encoder, a folder, a run, a hub id or `minilm`. Its embeddings of
    the views, computed once, are references too, in queues of their own."""
    teacher_pooling: Pooling | None = None
    """Pooling of `teacher`; None: its own, mean for a plain model, as released SimCSE models are, which want cls."""
    own_loss: bool = True
    """With a teacher: whether the views learn from each other too (equation 3)."""
    two_step: bool = False
    """With a teacher: the released code's second step, whose start is a model that SCT made without a teacher. The
    views learn from the teacher alone, with no MLPs, whatever `own_loss` and `projector` say; where the widths differ,
    a linear layer and tanh are a part of the student, also at test. Empty settings are that code's."""
    pooling: Pooling | None = "mean"
    """Pooling in training and at test (paper: mean). None: the start's own."""
    queue_size: int | None = None
    """Embeddings in each of the two queues, 0: the batch alone; None: Table 1's for the start's size, 16,384 to
    131,072."""
    temperature: float | None = None
    """Of the similarities of what learns, above 0; None: Table 1's for the start's size, 0.03 to 0.05."""
    reference_temperature: float | None = None
    """Of the references' similarities, above 0; None: Table 1's for the start's size, 0.01 to 0.04, and none where the
    objective is contrastive."""
    projector: bool = True
    """Three MLPs on what learns while training, gone at test (paper). Table 4: worse without; to a teacher of another
    width there is then a linear layer."""
    expansion: int = 10
    """Width of the projector's inner layers, in embeddings (paper: 10)."""
    comparison: Literal["cross", "identical"] = "cross"
    """Each view learns the other's distribution, or its own (Table 4: much worse)."""
    objective: Literal["distribution", "contrastive"] = "distribution"
    """The other view's distribution, or the other view alone among all (Table 4: much worse). Table 4's cross-entropy
    is no choice: it has the gradient of the divergence."""
    one_queue: bool = False
    """One queue for both views instead of one for each (Table 4: worse)."""
    renew_queues: bool = True
    """Whether embeddings enter the queues, or these stay as they are at first, random (Table 4: worse)."""
    momentum: float | None = None
    """The reference is a copy of the encoder that follows it, of which this share stays at each batch; None: the
    encoder itself (paper). Table 4: worse with."""
    fit: SCTFit = field(default_factory=SCTFit)
    """How the encoder is trained."""

    def __post_init__(self) -> None:
        """Refuse contradictions."""
        super().__post_init__()
        if self.view_kind == "as-is" and self.learns_from_itself:
            check_fit_dropout(self)
        if self.teacher is None and (self.teacher_pooling is not None or not self.own_loss or self.two_step):
            raise InputError("teacher_pooling, own_loss and two_step are for a teacher; give one, or leave them out")
        if self.momentum is not None and not self.learns_from_itself:
            raise InputError(
                "momentum is of the views' own references, which own_loss false and two_step leave out; "
                "leave one of them out"
            )
        if self.expansion != type(self).expansion and (self.two_step or not self.projector):
            raise InputError(
                "expansion is of the projector, which projector false and two_step leave out; leave one of them out"
            )
        if self.reference_temperature is not None and self.objective == "contrastive":
            raise InputError(
                "reference_temperature is of the references' distribution, which objective contrastive does not have; "
                "leave one of them out"
            )
        self._check_numbers()

    def _check_numbers(self) -> None:
        for name in ("temperature", "reference_temperature"):
            check_temperature(getattr(self, name), "the paper's are 0.01 to 0.05", name)
        if self.queue_size is not None and self.queue_size < 0:
            raise InputError(f"queue_size is {self.queue_size}; it must be 0 or more")
        if self.expansion < 1:
            raise InputError(f"expansion is {self.expansion}; it must be at least 1")
        if self.momentum is not None and not 0.0 <= self.momentum < 1.0:
            raise InputError(f"momentum is {self.momentum}; it is a share, 0 to below 1")
        if self.objective == "contrastive" and not self.renew_queues:
            raise InputError("objective contrastive looks for the other view in the queue; leave renew_queues true")
        if self.queue_size == 0 and (self.one_queue or not self.renew_queues):
            raise InputError("queue_size is 0, and one_queue and renew_queues are of queues; leave one of them out")

    @property
    def learns_from_itself(self) -> bool:
        """Whether the encoder's own embeddings are references (equation 2)."""
        return self.own_loss and not self.two_step

    @property
    def account(self) -> str:
        """With or without a teacher; pairs of views are what SCT is made for."""
        if self.teacher is None:
            return self.about
        if self.learns_from_itself:
            return f"{self.about[:-1]}, for the encoder itself and for its teacher."
        return (
            "Two views of a sentence go through the encoder, and each must be as alike to thousands of earlier "
            "sentences as the other view is for a teacher (SCT's distillation)."
        )

    @property
    def taught_by(self) -> str | None:
        """The teacher."""
        return self.teacher

    @property
    def teacher_fields(self) -> tuple[str, ...]:
        """Which it is, and how it pools."""
        return ("teacher", "teacher_pooling")

    def filled(self, folder: Path) -> Self:
        """With the values of the row whose model is nearest in size: Table 1's, or the released code's."""
        table: tuple[_Row, ...] = _RELEASED_DISTILLATION if self.two_step else _TABLE_1
        if self.objective == "contrastive":
            table = tuple(replace(row, reference_temperature=None) for row in table)
        filled = fill_by_size(self, table, self.n_parameters(folder))
        if filled.queue_size:
            n_views, more = (2, ", as both views enter one queue") if self.one_queue else (1, ", or be 0")
            check_queue(filled.queue_size, n_views * (self.fit.batch_size or 1), more)
        fit = replace(filled.fit, epochs=self.fit.epochs or (20 if self.two_step else 10))
        if self.two_step:
            return replace(filled, fit=fit, own_loss=False, projector=False)  # as it is, for the record
        return replace(filled, fit=fit)

    def loss(self, student: SentenceTransformer) -> nn.Module:
        """Divergence of the views' similarity distributions, through the projector.

        Raises:
            InputError: Dropout alone should make the views differ, and the encoder has none.
        """
        return self._loss(student, None)

    def projected(self, student: SentenceTransformer, dimension: int) -> SentenceTransformer:
        """The student; in the second step with a layer that takes it to the teacher's width."""
        from transencoder.encoders import add_projection

        if not self.two_step or student.get_embedding_dimension() == dimension:
            return student
        return add_projection(student, dimension, tanh=True)

    def distillation_loss(self, student: SentenceTransformer, dimension: int, queue: Tensor) -> nn.Module:
        """Divergence from the teacher's similarity distributions and, with `own_loss`, of the views' own (equation 3).

        Raises:
            InputError: Dropout alone should make the views differ, and the encoder has none.
        """
        return self._loss(student, dimension)

    def loss_operations(self, width: int, dimension: int | None) -> float:
        """Of the queues, each vector of which takes part in two products for p and two for q, and of the MLPs."""
        of_queues = 8 * (self.queue_size or 0) * sum(self._reference_widths(width, dimension))
        return 2 * (of_queues + 6 * self._projector_parameters(width, dimension))

    def loss_state(self, width: int, dimension: int | None) -> float:
        """Of the queues, and of the MLPs three for each parameter."""
        queues = (1 if self.one_queue else 2) * (self.queue_size or 0) * sum(self._reference_widths(width, dimension))
        return queues + 3 * self._projector_parameters(width, dimension)

    def _reference_widths(self, width: int, dimension: int | None) -> list[int]:
        """Widths of the references that views are compared with: the student's own, the teacher's."""
        return [*([width] if self.learns_from_itself else []), *([] if dimension is None else [dimension])]

    def _projector_parameters(self, width: int, dimension: int | None) -> int:
        """Of the MLPs before all references, without biases."""
        if not self.projector or self.two_step:
            return 0
        return sum(self.expansion * width * (5 * width + each) for each in self._reference_widths(width, dimension))

    def _loss(self, student: SentenceTransformer, dimension: int | None) -> nn.Module:
        from transencoder.losses import SCTLoss

        if self.view_kind == "as-is" and self.learns_from_itself:
            check_dropout(self, student)
        width = student.get_embedding_dimension()
        assert width is not None, "every model here has embeddings of one size"
        return SCTLoss(
            student,
            self._comparison(width) if self.learns_from_itself else None,
            self._projector(width, width) if self.learns_from_itself else None,
            teacher=None if dimension is None else self._comparison(dimension),
            teacher_projector=None if dimension is None else self._projector(width, dimension),
            momentum=self.momentum,
        )

    def _comparison(self, dimension: int) -> ViewComparison:
        from transencoder.losses import ViewComparison

        assert self.queue_size is not None and self.temperature is not None, "filled when the run was prepared"
        return ViewComparison(
            dimension,
            self.queue_size,
            self.temperature,
            self.reference_temperature,
            comparison=self.comparison,
            objective=self.objective,
            n_queues=1 if self.one_queue else 2,
            renew=self.renew_queues,
        )

    def _projector(self, dimension: int, output: int) -> nn.Module | None:
        """Three MLPs; without them, what a teacher of another width needs: a linear layer."""
        from torch import nn

        from transencoder.losses import mlp_projector

        if self.projector and not self.two_step:
            return mlp_projector(dimension, output, expansion=self.expansion)
        return None if output == dimension else nn.Linear(dimension, output)
