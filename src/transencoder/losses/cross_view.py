"""Self-supervised cross-view training: each view's similarity distribution is the other view's (SCT, equation 2)."""

from copy import deepcopy
from typing import Any, Literal

import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from transencoder.losses.features import Columns, Loss, check_temperatures, embed_pairs, gathered, projector_of
from transencoder.losses.queues import InstanceQueue, queue_info_nce, similarity_divergence

Views = tuple[Tensor, Tensor]


class ViewComparison(nn.Module):
    """A comparison of both views' embeddings with both views' references, and the queues of these references.

    Half of KL(SR(r2, D2), SR(z1, D2)) and half of KL(SR(r1, D1), SR(z2, D1)): equation 2 of SCT with the network itself
    as reference, equation 4 with a teacher. The references are put into their queue first, beside `queue_size` earlier
    ones (released code, which has no halves) or in the place of its oldest (paper, section 3.1). Under several
    processes all references of all of them enter. Where no gradient is asked for, as in evaluation, the queues stay.

    Args:
        dimension: Of the references.
        queue_size: Vectors in each queue; 0: no queue, the references of the batch stand in its place.
        batch_size: Pairs a step and process, whose references stand beside those, as in method `sct`; 0: in the place
            of the oldest.
        temperature: Of the embeddings, above 0.
        reference_temperature: Of the references, above 0; None, for `contrastive`: they have no distribution.
        comparison: `cross`, each view with the other's references and queue, or `identical`, with its own (Table 4).
        objective: `distribution`, or `contrastive`: the own reference must be found in the queue (Table 4).
        n_queues: Two, one a view, or one for both (Table 4).
        renew: Whether references enter the queues; else they stay as they are at first (Table 4).
    """

    def __init__(
        self,
        dimension: int,
        queue_size: int,
        temperature: float,
        reference_temperature: float | None,
        *,
        batch_size: int = 0,
        comparison: Literal["cross", "identical"] = "cross",
        objective: Literal["distribution", "contrastive"] = "distribution",
        n_queues: Literal[1, 2] = 2,
        renew: bool = True,
    ) -> None:
        super().__init__()
        check_temperatures(temperature, 1.0 if reference_temperature is None else reference_temperature)
        if objective == "distribution" and reference_temperature is None:
            raise ValueError("the references have a distribution; give reference_temperature, or objective contrastive")
        if objective == "contrastive" and not renew:
            raise ValueError("a contrastive objective looks for references in the queue, so that they must enter it")
        self.temperature = temperature
        self.reference_temperature = reference_temperature
        self.comparison = comparison
        self.objective = objective
        self.renew = renew
        n_entering = batch_size * 2 // n_queues if renew else 0
        self.queues = nn.ModuleList(
            InstanceQueue(queue_size, dimension, n_entering=n_entering) for _ in range(n_queues if queue_size else 0)
        )

    def forward(self, online: Views, references: Views) -> Float[Tensor, ""]:
        """Return the loss of a batch's two views, (batch, dim) each; no gradient flows to the references."""
        found = [self._candidates(view, reference.detach()) for view, reference in enumerate(references)]
        targets = list(zip(references, found, strict=True))
        if self.comparison == "cross":
            targets.reverse()
        first, second = (
            self._term(embeddings, reference, *candidates)
            for embeddings, (reference, candidates) in zip(online, targets, strict=True)
        )
        return (first + second) / 2

    def _candidates(self, view: int, references: Tensor) -> tuple[Tensor, Tensor]:
        """Return what a view's references are compared with, and which of these are its own."""
        if not self.queues:
            with torch.no_grad():
                everyones, first = gathered(references)
            own = first + torch.arange(len(references), device=references.device)
            return nn.functional.normalize(everyones.float()), own
        queue: Any = self.queues[view % len(self.queues)]
        if not self.renew:
            return queue.rows, torch.arange(0, device=references.device)
        return queue.enter(references, n_batches=2 // len(self.queues))  # type: ignore[no-any-return]

    def _term(self, embeddings: Tensor, references: Tensor, candidates: Tensor, own: Tensor) -> Tensor:
        if self.objective == "contrastive":
            return queue_info_nce(embeddings, candidates, own, self.temperature)
        assert self.reference_temperature is not None, "checked when this was made"
        return similarity_divergence(embeddings, references, candidates, self.temperature, self.reference_temperature)


class ViewError(nn.Module):
    """The mean squared error of both views' embeddings to their references: L_MSE of SCT's Table 7."""

    def forward(self, online: Views, references: Views) -> Float[Tensor, ""]:
        """Return the loss of a batch's two views, (batch, dim) each."""
        first, second = (mse_loss(own.float(), other) for own, other in zip(online, references, strict=True))
        return (first + second) / 2


class FirstViewDivergence(nn.Module):
    """Both views' embeddings as alike to a queue of first references as the first reference is: L_ConGen of Table 7.

    Args:
        queue: Of the references' dimension.
        temperature: Of the embeddings, above 0.
        reference_temperature: Of the references, above 0.
    """

    def __init__(self, queue: InstanceQueue, temperature: float, reference_temperature: float) -> None:
        super().__init__()
        check_temperatures(temperature, reference_temperature)
        self.queue = queue
        self.temperature = temperature
        self.reference_temperature = reference_temperature

    def forward(self, online: Views, references: Views) -> Float[Tensor, ""]:
        """Return the loss of a batch's two views, (batch, dim) each; no gradient flows to the references."""
        rows, _ = self.queue.enter(references[0])
        temperatures = self.temperature, self.reference_temperature
        first, second = (similarity_divergence(each, references[0], rows, *temperatures) for each in online)
        return (first + second) / 2


class ReferenceSearch(nn.Module):
    """Each view's embedding finds its reference in a queue of references: L_CKD of Table 7.

    Args:
        queue: Of the references' dimension.
    """

    def __init__(self, queue: InstanceQueue) -> None:
        super().__init__()
        self.queue = queue
        self.log_scale = nn.Parameter(torch.tensor(1.0))
        """Logarithm of what multiplies the cosines; learned, as in `CKDLoss`."""

    def forward(self, online: Views, references: Views) -> Float[Tensor, ""]:
        """Return the loss of a batch's two views, (batch, dim) each; no gradient flows to the references."""
        rows, own = self.queue.enter(torch.cat(references))
        return queue_info_nce(torch.cat(online), rows, own, (-self.log_scale).exp())


class SCTLoss(Loss):
    """SCT's loss for `SentenceTransformerTrainer`, ours and the plain one, on two columns of views.

    Equation 2 where there is no teacher, equation 3, the sum with equation 4, where there is one, and equation 4 alone
    without `own`. The reference of `own` is the encoder itself, without projector and gradient: the embeddings that
    learn serve as references too, in one forward pass (released code: a second pass with other dropout masks). With a
    teacher its labels are (batch, 2, dim), the teacher's embeddings of both views.

    Args:
        own: How the views compare with the model's own embeddings, of its dimension.
        projector: On the embeddings that are compared in `own`, in training only.
        teacher: How they compare with a teacher's, of its dimension, which come as labels: as `own`, or, for the sums
            of Table 7, by `ViewError`, `FirstViewDivergence` or `ReferenceSearch`.
        teacher_projector: On the embeddings that are compared in `teacher`, from the model's dimension to the
            teacher's, in training only.
        momentum: References come from a copy of the encoder that follows it: at each forward pass that a gradient is
            asked of, this share of it stays (Table 4's ablation: worse). None: no copy.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        own: ViewComparison | None = None,
        projector: nn.Module | None = None,
        *,
        teacher: nn.Module | None = None,
        teacher_projector: nn.Module | None = None,
        momentum: float | None = None,
    ) -> None:
        super().__init__(model)
        if own is None and teacher is None:
            raise ValueError("there is nothing to compare with; give own, teacher or both")
        if momentum is not None and not 0.0 <= momentum < 1.0:
            raise ValueError(f"momentum is {momentum}; it is a share, 0 to below 1")
        self.own = own
        self.projector = projector_of(model, projector)
        self.teacher = teacher
        self.teacher_projector = projector_of(model, teacher_projector)
        self.momentum = momentum
        self.follower = None if momentum is None else deepcopy(model).requires_grad_(False)

    def forward(self, sentence_features: Columns, labels: Tensor | None = None) -> Float[Tensor, ""]:
        """Return the loss of a batch of views; with a teacher, labels of another shape are refused."""
        left, right = sentence_features
        first, second = embed_pairs(self.model, [left, right])
        loss = first.new_zeros(())
        if self.own is not None:
            references = (first, second) if self.follower is None else self._followed(left, right)
            loss = loss + self.own((self.projector(first), self.projector(second)), references)
        if self.teacher is not None:
            projected = (self.teacher_projector(first), self.teacher_projector(second))
            expected = (len(first), 2, projected[0].shape[1])
            if labels is None or labels.shape != expected:
                shape = None if labels is None else tuple(labels.shape)
                raise ValueError(
                    f"the labels have the shape {shape}; with a teacher they are its embeddings, {expected}"
                )
            loss = loss + self.teacher(projected, labels.float().unbind(1))
        return loss

    def _followed(self, left: dict[str, Any], right: dict[str, Any]) -> Views:
        """Return the follower's embeddings, once it has made its step; in evaluation it makes none."""
        assert self.follower is not None and self.momentum is not None
        step = 1 - self.momentum if torch.is_grad_enabled() else 0.0
        with torch.no_grad():
            for kept, new in zip(self.follower.parameters(), self.model.parameters(), strict=True):
                kept.lerp_(new, step)
            return embed_pairs(self.follower, [left, right])

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        parts = {"own": self.own, "teacher": self.teacher}
        return {
            name: {"temperature": part.temperature, "reference_temperature": part.reference_temperature}
            for name, part in parts.items()
            if isinstance(part, ViewComparison | FirstViewDivergence)
        }


def mlp_projector(dimension: int, output: int | None = None, *, expansion: int = 10, n_layers: int = 3) -> nn.Module:
    """Make SCT's: MLPs one after the other, each linear, ReLU, linear (Limkonchotiwat et al., TACL 2023, section 4.1).

    The last one gives `output` numbers, a teacher's dimension, or as many as come in; inner layers have `expansion`
    times as many.
    """
    layers: list[nn.Module] = []
    for i in range(n_layers):
        after = dimension if output is None or i < n_layers - 1 else output
        layers += [nn.Linear(dimension, expansion * dimension), nn.ReLU(), nn.Linear(expansion * dimension, after)]
    return nn.Sequential(*layers)
