"""Embeddings of all processes as candidates for each."""

import torch
from jaxtyping import Float
from sentence_transformers.util import all_gather_with_grad
from torch import Tensor


def gathered(embeddings: Float[Tensor, "batch dim"]) -> tuple[Float[Tensor, "all dim"], int]:
    """All processes' embeddings in the order of ranks, and where this process's begin. Gradients flow to each.

    Under DDP, which takes the mean of all processes' gradients, the mean of their losses is thereby trained.

    Args:
        embeddings: This process's; all processes have as many.
    """
    if not torch.distributed.is_initialized():
        return embeddings, 0
    return all_gather_with_grad(embeddings), torch.distributed.get_rank() * len(embeddings)
