"""Similarity distributions: an embedding is as alike to many others as its reference is (SCT, equations 1 and 2)."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, normalize

_CHUNK = 4096
"""Vectors of a queue at a time."""


def similarity_divergence(
    queries: Float[Tensor, "batch dim"],
    references: Float[Tensor, "batch dim"],
    queue: Float[Tensor, "queue dim"],
    temperature: float,
    reference_temperature: float,
) -> Float[Tensor, ""]:
    """Mean over i of KL(p_i, q_i): p_i = softmax_j(cos(r_i, d_j) / t_ref), q_i = softmax_j(cos(q_i, d_j) / t).

    Equation 1 of SCT (Limkonchotiwat et al., TACL 2023) and one of the two terms of its equation 2, without the half.
    Never negative; 0 where both distributions are the same. Cross-entropy in its place has the same gradient: it is
    greater by the entropy of p, which is fixed.

    The queue goes through in chunks, and no matrix of batch times queue is made: 4 products of batch x queue x dim, and
    memory for batch x 4,096.

    Args:
        queries: Embeddings that learn.
        references: Embeddings of the same meaning, of the dimension of the queue; no gradient flows to them.
        queue: Unit vectors that both are compared with; no gradient flows to them.
        temperature: Of the queries, above 0; SCT: 0.03 to 0.05 (Table 1).
        reference_temperature: Of the references, above 0; SCT: 0.01 to 0.04 (Table 1).

    Returns:
        The loss, a scalar.
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
    """Mean over i of -log(exp(cos(q_i, d_own(i)) / t) / sum_j exp(cos(q_i, d_j) / t)).

    `info_nce` whose keys are a queue that the batch's own were put into: CKD's loss, and SCT's ablation "contrastive"
    (Table 4). The limit of `similarity_divergence` where the references' temperature goes to 0.

    The queue is taken as a whole: forward and backward together, logits and their gradient take 3 matrices of batch x
    queue at their peak, 6 where the temperature is learned: 0.8 GB for CKD's 512 x 65,536.

    Args:
        queries: Embeddings that learn.
        queue: Unit vectors; no gradient flows to them.
        own: Which of them is each query's own.
        temperature: Above 0; a scalar that is learned, where it is a parameter's.

    Returns:
        The loss, a scalar.
    """
    with torch.autocast(queries.device.type, enabled=False):
        return cross_entropy(normalize(queries.float()) @ queue.T / temperature, own)


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
