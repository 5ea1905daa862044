"""SCT (Limkonchotiwat et al., TACL 2023): each view learns the other view's similarities to earlier sentences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from transencoder import configs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from transencoder.losses import ViewComparison


_Table = dict[float, dict[str, float | None]]

_TABLE_1: _Table = {
    4e6: {"learning_rate": 5e-4, "queue_size": 131_072, "reference_temperature": 0.03, "temperature": 0.04},
    11e6: {"learning_rate": 3e-4, "queue_size": 131_072, "reference_temperature": 0.01, "temperature": 0.03},
    29e6: {"learning_rate": 3e-4, "queue_size": 65_536, "reference_temperature": 0.02, "temperature": 0.03},
    110e6: {"learning_rate": 5e-4, "queue_size": 65_536, "reference_temperature": 0.04, "temperature": 0.05},
    340e6: {"learning_rate": 5e-4, "queue_size": 16_384, "reference_temperature": 0.04, "temperature": 0.05},
}
"""Number of parameters of BERT-Tiny, -Mini, -Small, -Base, -Large -> the settings of SCT's Table 1."""

_RELEASED_DISTILLATION: _Table = {
    4e6: {"learning_rate": 5e-4, "queue_size": 131_072, "reference_temperature": 0.03, "temperature": 0.04},
    11e6: {"learning_rate": 1e-4, "queue_size": 65_536, "reference_temperature": 0.04, "temperature": 0.05},
    29e6: {"learning_rate": 1e-4, "queue_size": 131_072, "reference_temperature": 0.04, "temperature": 0.05},
    110e6: {"learning_rate": 1e-4, "queue_size": 65_536, "reference_temperature": 0.04, "temperature": 0.05},
}
"""Number of parameters -> the settings of the released distillation, for which the paper has no table."""


@dataclass(frozen=True, kw_only=True)
class SCT(configs.ViewEncoder):
    """SCT: self-supervised training in which each view learns the other's similarities to thousands of sentences."""

    about = (
        "Two views of a sentence go through the encoder, and each must be as alike to thousands of earlier sentences "
        "as the other view is (SCT)."
    )
    inputs = (*configs.ViewEncoder.inputs, "teacher", "teacher_pooling")

    teacher: str | None = None
    """Larger bi-encoder to distil from (paper, section 3.4): a folder, a run, a hub id or `minilm`. Its embeddings of
    the views, computed once, are further references, with their own queues."""
    teacher_pooling: configs.Pooling | None = None
    """Pooling of `teacher`; None: its own, mean for a plain model. Released SimCSE models are plain and need cls."""
    own_loss: bool = True
    """Whether the views also learn from each other if there is a teacher (equation 3)."""
    teacher_loss: Literal["cross-view", "embedding-mse", "congen", "ckd"] = "cross-view"
    """Loss on the teacher, if there is one: `cross-view`, its distribution of the other view (equation 4), or the loss
    of another method (for the sums in Table 7): `embedding-mse` learns its embeddings, `congen` its distribution over a
    queue (of random vectors at first, with these temperatures), `ckd` its embedding in a queue. The settings of Table 4
    then apply to the views' own loss only."""
    two_step: bool = False
    """Whether this is the second step of a distillation (released code), in which `start` is a model that SCT trained
    without a teacher. The views learn from the teacher only, without MLPs, whatever `own_loss` and `projector` say; if
    the widths differ, a linear layer and tanh are part of the student, also at test. Empty settings take the values of
    the released code."""
    pooling: configs.Pooling | None = "mean"
    """Pooling in training and at test (paper: mean). None: the base model's own."""
    queue_size: int | None = configs.at_least(0, None)
    """Number of earlier embeddings in each of the two queues, in addition to the batch's (released code; paper:
    including the batch's); 0: the batch only; None: chosen by the base model's size (Table 1), 16,384 to 131,072."""
    temperature: float | None = configs.above_zero(None, ", the paper's are 0.01 to 0.05")
    """Temperature of the trained embeddings' similarities, above 0; None: chosen by the base model's size (Table 1),
    0.03 to 0.05."""
    reference_temperature: float | None = configs.above_zero(None, ", the paper's are 0.01 to 0.05")
    """Temperature of the references' similarities, above 0; None: chosen by the base model's size (Table 1), 0.01 to
    0.04, and not used if the objective is contrastive."""
    projector: bool = True
    """Whether to use three MLPs on the trained embeddings in training, removed at test (paper). Table 4: worse without.
    Without them, a linear layer leads to a teacher of another width."""
    expansion: int = configs.at_least(1, 10)
    """Width of the projector's inner layers, as a multiple of the embeddings' width (paper: 10)."""
    comparison: Literal["cross", "identical"] = "cross"
    """Distribution that each view learns: the other view's, or its own (Table 4: much worse)."""
    objective: Literal["distribution", "contrastive"] = "distribution"
    """Objective of each view: to learn the other view's distribution, or to find the other view among all embeddings
    (Table 4: much worse). Table 4's cross-entropy is not offered: it has the same gradient as the divergence."""
    one_queue: bool = False
    """Whether both views share one queue instead of having one each (Table 4: worse)."""
    renew_queues: bool = True
    """Whether embeddings enter the queues; if not, these keep their random initial vectors (Table 4: worse)."""
    momentum: float | None = configs.share(None)
    """Momentum of the reference, a moving average of the encoder: the share that is kept at each batch. None: the
    reference is the encoder itself (paper). Table 4: worse with momentum."""
    fit: configs.FitConfig = configs.fit_defaults(
        learning_rate=(
            None,
            "Peak learning rate of AdamW; None: by the base model's size (Table 1), 3e-4 or 5e-4; 1e-4 in most second "
            "steps.",
        ),
        batch_size=(128, "Number of pairs of views per step and device."),
        epochs=(None, "Number of passes over the views; None: 10 (paper), with `two_step` 20 (released code)."),
        max_length=(128, "Maximum number of tokens of a view (released code)."),
        warmup_ratio=(0.1, "Share of the steps in which the learning rate rises."),
        eval_steps=(64, "Number of steps between dev evaluations; one more follows at the end of each epoch."),
    )
    """Training settings of the encoder."""

    def contradictions(self) -> configs.Contradictions:
        """Yield an error message for each contradiction between fields."""
        yield from super().contradictions()
        asks = self.teacher_pooling is not None or not self.own_loss or self.teacher_loss != "cross-view"
        if self.teacher is None and (asks or self.two_step):
            yield "teacher_pooling, own_loss, teacher_loss and two_step are for a teacher; give one, or leave them out"
        if self.teacher_loss != "cross-view" and (self.two_step or not self.own_loss):
            yield (
                f"teacher_loss is {self.teacher_loss}, for the sum with the views' own loss, which two_step and "
                f"own_loss false leave out; leave them out, or take the method {self.teacher_loss}"
            )
        if self.teacher_loss != "cross-view" and self.objective == "contrastive":
            yield f"teacher_loss is {self.teacher_loss}, and objective contrastive is of views alone; give one of them"
        if self.teacher_loss in ("congen", "ckd") and self.queue_size == 0:
            yield f"teacher_loss is {self.teacher_loss}, whose references stand in a queue; leave queue_size 0 out"
        if self.momentum is not None and not self.learns_from_itself:
            yield (
                "momentum is of the views' own references, which own_loss false and two_step leave out; leave one of "
                "them out"
            )
        if self.expansion != type(self).expansion and (self.two_step or not self.projector):
            yield "expansion is of the projector, which projector false and two_step leave out; leave one of them out"
        if self.reference_temperature is not None and self.objective == "contrastive":
            yield (
                "reference_temperature is of the references' distribution, which objective contrastive does not have; "
                "leave one of them out"
            )
        if self.objective == "contrastive" and not self.renew_queues:
            yield "objective contrastive looks for the other view in the queue; leave renew_queues true"
        if self.queue_size == 0 and (self.one_queue or not self.renew_queues):
            yield "queue_size is 0, and one_queue and renew_queues are of queues; leave one of them out"

    @property
    def learns_from_itself(self) -> bool:
        """Whether the encoder's own embeddings are references (equation 2)."""
        return self.own_loss and not self.two_step

    @property
    def description(self) -> str:
        """Description of the method, with or without a teacher; the same for given pairs, which SCT is made for."""
        if self.teacher is None:
            return self.about
        if self.teacher_loss != "cross-view":
            return f"{self.about} Beside it the encoder learns from its teacher as {self.teacher_loss} does."
        if self.learns_from_itself:
            return f"{self.about[:-1]}, for the encoder itself and for its teacher."
        return (
            "Two views of a sentence go through the encoder, and each must be as alike to thousands of earlier "
            "sentences as the other view is for a teacher (SCT's distillation)."
        )

    @property
    def rows(self) -> configs.TrainingRows:
        """The two views, which must differ if they are references for each other."""
        is_same = self.view_kind == "as-is" and not self.is_paired
        return replace(super().rows, need_dropout=is_same and self.learns_from_itself)

    @property
    def distillation(self) -> configs.EmbeddingTeacher | None:
        """The teacher; in the second step the student keeps the projection to its width."""
        if self.teacher is None:
            return None
        projection: Literal["kept", "training"] = "kept" if self.two_step else "training"
        return configs.EmbeddingTeacher(
            model=self.teacher, pooling=self.teacher_pooling, projection=projection, has_tanh=self.two_step
        )

    def prepared(self, n_parameters: int) -> Self:
        """Return the config with the values for the model nearest in size, from Table 1 or the released code."""
        table = _RELEASED_DISTILLATION if self.two_step else _TABLE_1
        if self.objective == "contrastive":
            table = {size: row | {"reference_temperature": None} for size, row in table.items()}
        filled = configs.fill_by_size(self, table, n_parameters)
        fit = replace(filled.fit, epochs=self.fit.epochs or (20 if self.two_step else 10))
        if self.two_step:
            return replace(filled, fit=fit, own_loss=False, projector=False)  # so that the run's record is true
        return replace(filled, fit=fit)

    def cost(self, width: int, dimension: int | None) -> configs.MethodCost:
        """Return the cost of the queues and of the MLPs.

        Each vector of a queue takes part in two products for p and two for q. A checkpoint has three values for each
        parameter of the MLPs.
        """
        widths = [*([width] if self.learns_from_itself else []), *([] if dimension is None else [dimension])]
        n_queues = {"cross-view": 1.0, "embedding-mse": 0.0}.get(self.teacher_loss, 0.5)  # queues per view
        queued = (self.queue_size or 0) * (sum(widths) - (dimension or 0) * (1.0 - n_queues))
        has_mlps = self.projector and not self.two_step
        in_mlps = sum(self.expansion * width * (5 * width + each) for each in widths) if has_mlps else 0
        return configs.MethodCost(
            loss_operations=2 * (8 * queued + 6 * in_mlps),
            loss_state=(1 if self.one_queue else 2) * queued + 3 * in_mlps,
        )

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Build the divergence of the views' similarity distributions, and of a teacher's (equation 3)."""
        from transencoder.losses import SCTLoss

        width, dimension = configs.width_of(student), given.dimension
        return SCTLoss(
            student,
            self._comparison(width) if self.learns_from_itself else None,
            self._projector(width, width) if self.learns_from_itself else None,
            teacher=None if dimension is None else self._teacher_loss(dimension),
            teacher_projector=None if dimension is None else self._projector(width, dimension),
            momentum=self.momentum,
        )

    def _teacher_loss(self, dimension: int) -> nn.Module:
        from transencoder.losses import FirstViewDivergence, InstanceQueue, ReferenceSearch, ViewError

        if self.teacher_loss == "cross-view":
            return self._comparison(dimension)
        if self.teacher_loss == "embedding-mse":
            return ViewError()
        assert self.queue_size and self.temperature is not None, "filled when the run was prepared"
        batch = self.fit.batch_size or 0
        if self.teacher_loss == "ckd":
            return ReferenceSearch(InstanceQueue(self.queue_size, dimension, n_entering=2 * batch, is_empty=True))
        assert self.reference_temperature is not None, "as in _comparison"
        queue = InstanceQueue(self.queue_size, dimension, n_entering=batch)
        return FirstViewDivergence(queue, self.temperature, self.reference_temperature)

    def _comparison(self, dimension: int) -> ViewComparison:
        from transencoder.losses import ViewComparison

        assert self.queue_size is not None and self.temperature is not None, "filled when the run was prepared"
        return ViewComparison(
            dimension,
            self.queue_size,
            self.temperature,
            self.reference_temperature,
            batch_size=self.fit.batch_size or 0,
            comparison=self.comparison,
            objective=self.objective,
            n_queues=1 if self.one_queue else 2,
            renew=self.renew_queues,
        )

    def _projector(self, dimension: int, output: int) -> nn.Module | None:
        """Build three MLPs or, without them, the linear layer that a teacher of another width needs."""
        from torch import nn

        from transencoder.losses import mlp_projector

        if self.projector and not self.two_step:
            return mlp_projector(dimension, output, expansion=self.expansion)
        return None if output == dimension else nn.Linear(dimension, output)
