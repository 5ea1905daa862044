"""Self-supervised cross-view training: each view learns the other's similarity distribution (SCT, equation 2)."""

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

    The loss is half of KL(SR(r2, D2), SR(z1, D2)) plus half of KL(SR(r1, D1), SR(z2, D1)): equation 2 of SCT if the
    references are from the network itself, equation 4 if they are a teacher's. References enter their queue first, in
    addition to `queue_size` earlier ones (released code, which does not halve the sum) or in place of the oldest
    (paper, section 3.1). With several processes, the references of all processes enter. Without gradients, as in
    evaluation, the queues do not change.

    Args:
        dimension: Dimension of the references.
        queue_size: Number of vectors in each queue; 0: no queue, embeddings are compared with the batch's references.
        batch_size: Number of pairs per step and process, whose references are held in addition to `queue_size`, as in
            method `sct`; 0: they replace the oldest.
        temperature: Temperature of the embeddings' similarities, above 0.
        reference_temperature: Temperature of the references' similarities, above 0; None for `contrastive`, where they
            have no distribution.
        comparison: `cross`, each view with the other's references and queue, or `identical`, with its own (Table 4).
        objective: `distribution`, or `contrastive`, where the reference must be found in the queue (Table 4).
        n_queues: Number of queues: 2, one for each view, or 1 for both (Table 4).
        renew: Whether references enter the queues; if not, these keep their initial vectors (Table 4).
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
        """Return the vectors to which a view is compared, and the indices of its own references among them."""
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
    """Mean squared error between both views' embeddings and their references: L_MSE of SCT's Table 7."""

    def forward(self, online: Views, references: Views) -> Float[Tensor, ""]:
        """Return the loss of a batch's two views, (batch, dim) each."""
        first, second = (mse_loss(own.float(), other) for own, other in zip(online, references, strict=True))
        return (first + second) / 2


class FirstViewDivergence(nn.Module):
    """Divergence of both views' similarities to a queue of first references from the first reference's own.

    This is L_ConGen of SCT's Table 7.

    Args:
        queue: Queue of the references' dimension.
        temperature: Temperature of the embeddings' similarities, above 0.
        reference_temperature: Temperature of the references' similarities, above 0.
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
    """InfoNCE in which each view's embedding must find its reference in a queue: L_CKD of SCT's Table 7.

    Args:
        queue: Queue of the references' dimension.
    """

    def __init__(self, queue: InstanceQueue) -> None:
        super().__init__()
        self.queue = queue
        self.log_scale = nn.Parameter(torch.tensor(1.0))
        """Logarithm of the scale of the cosines, learned as in `CKDLoss`."""

    def forward(self, online: Views, references: Views) -> Float[Tensor, ""]:
        """Return the loss of a batch's two views, (batch, dim) each; no gradient flows to the references."""
        rows, own = self.queue.enter(torch.cat(references))
        return queue_info_nce(torch.cat(online), rows, own, (-self.log_scale).exp())


class SCTLoss(Loss):
    """SCT's loss on two columns of views, for the `SentenceTransformerTrainer` of this package or the plain one.

    Without a teacher it is equation 2; with a teacher equation 3, the sum of equations 2 and 4, or equation 4 alone if
    there is no `own`. The references of `own` are from the encoder itself, without projector and gradient: they are the
    same embeddings that are trained, from one forward pass (released code: a second pass with other dropout masks).
    With a teacher, the labels are (batch, 2, dim), the teacher's embeddings of both views.

    Args:
        own: Comparison of the views with the model's own embeddings, of the model's dimension.
        projector: Module on the embeddings that `own` compares, used in training only.
        teacher: Comparison with a teacher's embeddings, which are the labels, of the teacher's dimension: as `own` or,
            for the sums of Table 7, `ViewError`, `FirstViewDivergence` or `ReferenceSearch`.
        teacher_projector: Module on the embeddings that `teacher` compares, from the model's dimension to the
            teacher's, used in training only.
        momentum: Momentum of a copy of the encoder that gives the references, a moving average of it: the share of the
            copy that is kept at each forward pass with gradients (Table 4's ablation: worse). None: no copy.
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
        """Return the embeddings of the momentum copy after its update, which evaluation skips."""
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
    """Build SCT's projector of stacked MLPs: linear, ReLU, linear (Limkonchotiwat et al., TACL 2023, section 4.1).

    The last one has the width `output`, such as a teacher's dimension, or else that of the input. Inner layers are
    `expansion` times as wide as the input.
    """
    layers: list[nn.Module] = []
    for i in range(n_layers):
        after = dimension if output is None or i < n_layers - 1 else output
        layers += [nn.Linear(dimension, expansion * dimension), nn.ReLU(), nn.Linear(expansion * dimension, after)]
    return nn.Sequential(*layers)
