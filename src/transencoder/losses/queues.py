"""Losses on similarities to a queue of embeddings, and the queue (SCT, ConGen, CKD).

An embedding learns its reference's similarities to the vectors of a queue, or to find its reference among them. The
queue holds the latest references, unit vectors through which no gradient flows.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float, Int
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, normalize

from transencoder.losses.features import (
    Columns,
    Loss,
    check_temperatures,
    embed_pairs,
    embed_sides,
    gathered,
    projector_of,
)

_CHUNK = 4096
"""Number of a queue's vectors that are processed at a time."""


def similarity_divergence(
    queries: Float[Tensor, "batch dim"],
    references: Float[Tensor, "batch dim"],
    queue: Float[Tensor, "queue dim"],
    temperature: float,
    reference_temperature: float,
) -> Float[Tensor, ""]:
    """Return the mean of KL(p_i, q_i), p_i = softmax_j(cos(r_i, d_j) / t_ref), q_i = softmax_j(cos(q_i, d_j) / t).

    Equation 1 of SCT (Limkonchotiwat et al., TACL 2023) and one of the two terms of its equation 2, without the half.
    Never negative; 0 if both distributions are the same. Cross-entropy has the same gradient: it is larger by the
    entropy of p, which is fixed.

    The queue is processed in chunks, without a matrix of batch x queue: 4 products of batch x queue x dim, and memory
    for batch x 4,096.

    Args:
        queries: Embeddings to train.
        references: Embeddings of texts with the same meaning, of the queue's dimension; no gradient flows to them.
        queue: Unit vectors with which both are compared.
        temperature: Temperature of the queries' similarities, above 0; SCT: 0.03 to 0.05 (Table 1).
        reference_temperature: Temperature of the references' similarities, above 0; SCT: 0.01 to 0.04 (Table 1).
    """
    with torch.autocast(queries.device.type, enabled=False):  # half precision errs by a tenth of a temperature
        directions, targets = normalize(queries.float()), normalize(references.detach().float())
        divergences: Callable[..., Tensor] = _Divergence.apply
        return divergences(directions, targets, queue, temperature, reference_temperature).mean()


def queue_info_nce(
    queries: Float[Tensor, "batch dim"],
    queue: Float[Tensor, "queue dim"],
    own: Int[Tensor, " batch"],
    temperature: float | Tensor,
) -> Float[Tensor, ""]:
    """Return the mean over i of -log(exp(cos(q_i, d_own(i)) / t) / sum_j exp(cos(q_i, d_j) / t)).

    It is `info_nce` with a queue as keys, which contains the batch's own: CKD's loss, and SCT's ablation "contrastive"
    (Table 4). It is the limit of `similarity_divergence` as the references' temperature goes to 0.

    The queue is processed as a whole: in forward and backward together, logits and their gradient take 3 matrices of
    batch x queue at their peak, 6 if the temperature is learned: 0.8 GB for CKD's 512 x 65,536.

    Args:
        queries: Embeddings to train.
        queue: Unit vectors.
        own: Index of each query's own vector in the queue.
        temperature: Temperature of the cosines, above 0; it may be learned.
    """
    with torch.autocast(queries.device.type, enabled=False):
        return cross_entropy(normalize(queries.float()) @ queue.T / temperature, own)


class InstanceQueue(nn.Module):
    """A ring buffer of unit vectors, allocated at the start, in which the newest replace the oldest.

    Its rows are part of the state of the loss that it belongs to: saved, resumed and moved with it. They are not
    ordered by age, on which no similarity distribution depends. At first they are random directions (SCT, section 4.1),
    or there are none.

    Args:
        size: Number of earlier vectors, at least 1.
        dimension: Dimension of the vectors.
        n_entering: Number of vectors that each process adds at a step. They are held in addition to `size` earlier
            ones, so that a batch is compared with all of both (released code of SCT, ConGen and CKD, and their methods
            here); 0: they replace the oldest of the `size` vectors.
        is_empty: Whether the queue starts without vectors.
    """

    rows: Tensor
    """Vectors of length 1, (size and all that enter, dimension)."""
    oldest: Tensor
    """Index of the oldest row, or of the first that is not filled; a scalar."""
    n_filled: Tensor
    """Number of filled rows; a scalar."""

    def __init__(self, size: int, dimension: int, *, n_entering: int = 0, is_empty: bool = False) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"a queue of {size} vectors was asked for; it must hold at least 1")
        n_processes = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        rows = torch.randn(size + n_entering * n_processes, dimension)
        rows /= torch.linalg.vector_norm(rows, dim=1, keepdim=True)  # in place: it may take a gigabyte
        self.register_buffer("rows", rows)
        self.register_buffer("oldest", torch.zeros((), dtype=torch.long))
        self.register_buffer("n_filled", torch.tensor(0 if is_empty else len(rows)))
        self.was_empty = is_empty

    @torch.no_grad()
    def push(self, embeddings: Float[Tensor, "batch dim"]) -> Int[Tensor, " batch"]:
        """Normalise a batch, replace the oldest rows by it, and return the indices of these rows."""
        if len(embeddings) > len(self.rows):
            raise ValueError(
                f"{len(embeddings)} vectors for a queue of {len(self.rows)}; it must hold what all processes bring"
            )
        places = (self.oldest + torch.arange(len(embeddings), device=self.rows.device)) % len(self.rows)
        self.rows[places] = normalize(embeddings.float())
        self.oldest.copy_((self.oldest + len(embeddings)) % len(self.rows))
        self.n_filled.copy_((self.n_filled + len(embeddings)).clamp(max=len(self.rows)))
        return places

    def enter(
        self, references: Float[Tensor, "batch dim"], n_batches: int = 1
    ) -> tuple[Float[Tensor, "size dim"], Int[Tensor, " batch"]]:
        """Add the references of a batch, from all processes; `n_batches` such batches must fit into the queue.

        Without gradients, as in evaluation, they are added to a copy, and the queue does not change.

        Returns:
            All vectors, and the indices of this process's own.
        """
        with torch.no_grad():
            everyones, first = gathered(references.detach())
        if len(everyones) * n_batches > len(self.rows):
            raise ValueError(
                f"a queue of {len(self.rows)} vectors cannot hold {n_batches} x {len(everyones)}, the references that "
                "all processes bring at a time"
            )
        queue = self if torch.is_grad_enabled() else deepcopy(self)
        places = queue.push(everyones)
        rows = queue.rows[: int(queue.n_filled)] if self.was_empty else queue.rows  # int() waits for a GPU
        return rows, places[first : first + len(references)]


class ConGenLoss(Loss):
    """ConGen's loss on a text and its view, for the `SentenceTransformerTrainer` of this package or the plain one.

    It is (KL(p, q_a) + KL(p, q_b)) / 2, where p is the similarity distribution of the teacher's embedding of the first
    text over a queue of the teacher's embeddings, and q_a, q_b those of the student's embeddings of both texts
    (Limkonchotiwat et al., Findings of EMNLP 2022). ConGen writes cross-entropy, which has the same gradient.
    `SCTLoss` with a teacher compares each view with the teacher's embedding of the other one, in two queues.

    The labels are the teacher's embeddings of the texts, (batch, dim), or of texts and views, (batch, 2, dim), where
    those of the views are not used.

    Args:
        queue: Queue of the teacher's dimension. ConGen fills it with the teacher's embeddings of real sentences that
            are left out of training: `queue.push(embeddings)`.
        temperature: Temperature of the student's similarities, above 0; ConGen: 0.05 to 0.1.
        teacher_temperature: Temperature of the teacher's similarities, above 0; ConGen: 0.05 or 0.1.
        projector: Module from the student's embeddings to the teacher's dimension, used in training only. ConGen has a
            linear layer and tanh there, as part of the student.
    """

    shown = ("temperature", "teacher_temperature")

    def __init__(
        self,
        model: SentenceTransformer,
        queue: InstanceQueue,
        temperature: float,
        teacher_temperature: float,
        projector: nn.Module | None = None,
    ) -> None:
        super().__init__(model)
        check_temperatures(temperature, teacher_temperature)
        self.queue = queue
        self.temperature = temperature
        self.teacher_temperature = teacher_temperature
        self.projector = projector_of(model, projector)

    def forward(
        self, sentence_features: Columns, labels: Float[Tensor, "batch dim"] | Float[Tensor, "batch 2 dim"]
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch of texts and their views."""
        embeddings = embed_pairs(self.model, sentence_features)
        references = (labels if labels.ndim == 2 else labels[:, 0]).float()
        rows, _ = self.queue.enter(references)
        first, second = (
            similarity_divergence(self.projector(each), references, rows, self.temperature, self.teacher_temperature)
            for each in embeddings
        )
        return (first + second) / 2


class CKDLoss(Loss):
    """CKD's loss on columns of texts, for the `SentenceTransformerTrainer` of this package or the plain one.

    It is InfoNCE: -log(exp(s cos(h(z_i), t_i)) / sum_j exp(s cos(h(z_i), t_j))), where the t_j are a queue of the
    teacher's embeddings, including the batch's own (Wu et al., DisCo, 2021; released code of DistilCSE). The scale s
    starts at e and is learned (released code). Each text counts by itself, whatever its column.

    The labels are the teacher's embeddings of the texts, (batch, columns, dim), or one for all columns of a row,
    (batch, dim).

    Args:
        queue: Queue of the teacher's dimension; DistilCSE: 65,536 vectors, none at the start.
        projector: Module as in `ConGenLoss`; released code: a linear layer.
        temperature: Fixed temperature 1 / s, above 0; None: learned.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        queue: InstanceQueue,
        projector: nn.Module | None = None,
        *,
        temperature: float | None = None,
    ) -> None:
        super().__init__(model)
        check_temperatures(1.0 if temperature is None else temperature)
        self.queue = queue
        self.projector = projector_of(model, projector)
        log_scale = torch.tensor(1.0 if temperature is None else -math.log(temperature))
        self.log_scale = nn.Parameter(log_scale, requires_grad=temperature is None)

    def forward(
        self, sentence_features: Columns, labels: Float[Tensor, "batch dim"] | Float[Tensor, "batch columns dim"]
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch."""
        embeddings = embed_sides(self.model, sentence_features)
        references = labels.float() if labels.ndim == 2 else labels.float().transpose(0, 1).flatten(0, 1)
        rows, own = self.queue.enter(references)
        own = own.repeat(len(embeddings) // len(own))  # one label for a row is the label of all its columns
        return queue_info_nce(self.projector(embeddings), rows, own, (-self.log_scale).exp())

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        return {"temperature": (-self.log_scale).exp().item(), "learned": self.log_scale.requires_grad}


class _Divergence(torch.autograd.Function):
    """KL(p_i, q_i) for each i, and its gradient (E_q[d] - E_p[d]) / t, in one pass over the queue."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, references: Tensor, queue: Tensor, temperature: float, reference_temperature: float
    ) -> Tensor:
        scales = queries.new_tensor([1 / reference_temperature, 1 / temperature]).repeat_interleave(len(queries))
        scaled = torch.cat([references, queries]) * scales[:, None]
        greatest = scaled.new_full((len(scaled), 1), -torch.inf)
        total = scaled.new_zeros(len(scaled), 1)  # sum of exp(logit - greatest)
        mean = torch.zeros_like(scaled)  # mean of the queue's vectors under p, then q; times total
        gap = scaled.new_zeros(len(queries), 1)  # mean under p of p's logits minus q's; times total
        for chunk in torch.split(queue, _CHUNK):
            logits = scaled @ chunk.T
            before, greatest = greatest, torch.maximum(greatest, logits.amax(1, keepdim=True))
            shrink = (before - greatest).exp()
            weights = (logits - greatest).exp_()
            of_p, of_q = logits.chunk(2)
            total = total * shrink + weights.sum(1, keepdim=True)
            mean = torch.addmm(mean * shrink, weights, chunk)
            p_shrink, p_weights = shrink[: len(queries)], weights[: len(queries)]
            gap = gap * p_shrink + (p_weights * (of_p - of_q)).sum(1, keepdim=True)
        (p_total, q_total), (p_greatest, q_greatest) = total.chunk(2), greatest.chunk(2)
        p_mean, q_mean = (mean / total).chunk(2)
        ctx.save_for_backward((q_mean - p_mean) / temperature)
        log_normalisers = (q_total.log() + q_greatest) - (p_total.log() + p_greatest)
        return (gap / p_total + log_normalisers).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return gradients[0][:, None] * slope, None, None, None, None
