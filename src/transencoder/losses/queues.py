"""Losses of similarities to a queue of embeddings, and the queue (SCT, ConGen, CKD).

An embedding learns to be as alike to the vectors of a queue as its reference is, or to find its reference among them.
The queue holds the last references, unit vectors through which no gradient flows.
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
"""Vectors of a queue at a time."""


def similarity_divergence(
    queries: Float[Tensor, "batch dim"],
    references: Float[Tensor, "batch dim"],
    queue: Float[Tensor, "queue dim"],
    temperature: float,
    reference_temperature: float,
) -> Float[Tensor, ""]:
    """Return the mean of KL(p_i, q_i), p_i = softmax_j(cos(r_i, d_j) / t_ref), q_i = softmax_j(cos(q_i, d_j) / t).

    Equation 1 of SCT (Limkonchotiwat et al., TACL 2023) and one of the two terms of its equation 2, without the half.
    Never negative; 0 where both distributions are the same. Cross-entropy in its place has the same gradient: it is
    greater by the entropy of p, which is fixed.

    The queue goes through in chunks, and no matrix of batch times queue is made: 4 products of batch x queue x dim, and
    memory for batch x 4,096.

    Args:
        queries: Embeddings that learn.
        references: Embeddings of the same meaning, of the dimension of the queue; no gradient flows to them.
        queue: Unit vectors that both are compared with.
        temperature: Of the queries, above 0; SCT: 0.03 to 0.05 (Table 1).
        reference_temperature: Of the references, above 0; SCT: 0.01 to 0.04 (Table 1).
    """
    with torch.autocast(queries.device.type, enabled=False):  # a cosine's half precision is a tenth of a temperature
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

    `info_nce` whose keys are a queue that the batch's own were put into: CKD's loss, and SCT's ablation "contrastive"
    (Table 4). The limit of `similarity_divergence` where the references' temperature goes to 0.

    The queue is taken as a whole: forward and backward together, logits and their gradient take 3 matrices of batch x
    queue at their peak, 6 where the temperature is learned: 0.8 GB for CKD's 512 x 65,536.

    Args:
        queries: Embeddings that learn.
        queue: Unit vectors.
        own: Which of them is each query's own.
        temperature: Above 0; it may be learned.
    """
    with torch.autocast(queries.device.type, enabled=False):
        return cross_entropy(normalize(queries.float()) @ queue.T / temperature, own)


class InstanceQueue(nn.Module):
    """A ring of unit vectors, in place from the start: the newest take the place of the oldest.

    Its rows are a part of the state of the loss that it belongs to: saved, resumed and moved with it. They stand in no
    order of age, which no similarity distribution depends on. At first they are random directions (SCT, section 4.1),
    or there are none.

    Args:
        size: Of earlier vectors, at least 1.
        dimension: Of the vectors.
        n_entering: Vectors that each process puts in at a step. They stand beside the earlier ones, so that a batch is
            compared with all of both (released code of SCT, ConGen and CKD, and their methods here); 0: in the place of
            the oldest of them.
        is_empty: It begins without vectors.
    """

    rows: Tensor
    """(size and all that enter, dimension), each of length 1."""
    oldest: Tensor
    """Which of them is the oldest, or the first that is not filled; a scalar."""
    n_filled: Tensor
    """So many of the rows count; a scalar."""

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
        """Put a batch, made unit vectors, in the place of the oldest, and return which rows they are now."""
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
        """Put in the references of a batch, of which `n_batches` must be in it together; of several processes all.

        Where no gradient is asked for, as in evaluation, a copy takes them, and the queue stays as it is.

        Returns:
            All vectors, and which of them are this process's own.
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
        rows = queue.rows[: int(queue.n_filled)] if self.was_empty else queue.rows  # without waiting for a GPU
        return rows, places[first : first + len(references)]


class ConGenLoss(Loss):
    """ConGen's loss for `SentenceTransformerTrainer`, ours and the plain one, on a text and its view.

    (KL(p, q_a) + KL(p, q_b)) / 2, where p is the similarity distribution of the teacher's embedding of the first text
    over a queue of the teacher's embeddings, and q_a, q_b those of the student's embeddings of both texts
    (Limkonchotiwat et al., Findings of EMNLP 2022). ConGen writes cross-entropy, which has the same gradient.
    `SCTLoss` with a teacher compares each view with the teacher's embedding of the other one, in two queues.

    Its labels are the teacher's embeddings of the texts, (batch, dim), or of texts and views, (batch, 2, dim), whose
    second is not used.

    Args:
        queue: Of the teacher's dimension. ConGen fills it with the teacher's embeddings of real sentences, on which
            nothing is trained: `queue.push(embeddings)`.
        temperature: Of the student, above 0; ConGen: 0.05 to 0.1.
        teacher_temperature: Of the teacher, above 0; ConGen: 0.05 or 0.1.
        projector: On the student's embeddings, to the teacher's dimension, in training only. ConGen has a linear layer
            and tanh there, as a part of the student.
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
    """CKD's loss for `SentenceTransformerTrainer`, ours and the plain one, on one column of texts or more.

    InfoNCE: -log(exp(s cos(h(z_i), t_i)) / sum_j exp(s cos(h(z_i), t_j))), t_j being a queue of the teacher's
    embeddings, the batch's own among them (Wu et al., DisCo, 2021; released code of DistilCSE). The scale s is e at
    first and learned (released code). Each text counts by itself, whatever its column.

    Its labels are the teacher's embeddings of the texts, (batch, columns, dim), or one for all columns of a row.

    Args:
        queue: Of the teacher's dimension; DistilCSE: 65,536 vectors, at first none.
        projector: As in `ConGenLoss`; released code: a linear layer.
        temperature: 1 / s, above 0 and fixed; None: learned.
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
        own = own.repeat(len(embeddings) // len(own))  # labels of single texts are those of every column
        return queue_info_nce(self.projector(embeddings), rows, own, (-self.log_scale).exp())

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        return {"temperature": (-self.log_scale).exp().item(), "learned": self.log_scale.requires_grad}


class _Divergence(torch.autograd.Function):
    """KL(p_i, q_i) of each i, and its gradient (E_q[d] - E_p[d]) / t, in one pass over the queue."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, references: Tensor, queue: Tensor, temperature: float, reference_temperature: float
    ) -> Tensor:
        scales = queries.new_tensor([1 / reference_temperature, 1 / temperature]).repeat_interleave(len(queries))
        scaled = torch.cat([references, queries]) * scales[:, None]
        greatest = scaled.new_full((len(scaled), 1), -torch.inf)
        total = scaled.new_zeros(len(scaled), 1)  # of exp(logit - greatest)
        mean = torch.zeros_like(scaled)  # of the queue's vectors under p, then q; times total
        gap = scaled.new_zeros(len(queries), 1)  # of the logits of p less those of q, under p; times total
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
