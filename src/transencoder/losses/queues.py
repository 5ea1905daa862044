"""Instance queues: the last embeddings of a reference network, which new ones are compared with (SCT, ConGen, CKD)."""

from copy import deepcopy

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from transencoder.losses.gathering import gathered


class InstanceQueue(nn.Module):
    """A ring of unit vectors, in place from the start: the newest take the place of the oldest.

    Its rows are a part of the state of the loss that it belongs to: saved, resumed and moved with it. They stand in no
    order of age, which no similarity distribution depends on. At first they are random directions (SCT, section 4.1).

    Args:
        size: How many vectors, at least 1.
        dimension: Of each.
    """

    rows: Tensor
    """(size, dimension), each of length 1."""
    oldest: Tensor
    """Which of them is the oldest; a scalar."""

    def __init__(self, size: int, dimension: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"a queue of {size} vectors was asked for; it must hold at least 1")
        rows = torch.randn(size, dimension)
        rows /= torch.linalg.vector_norm(rows, dim=1, keepdim=True)  # in place: it may take a gigabyte
        self.register_buffer("rows", rows)
        self.register_buffer("oldest", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def push(self, embeddings: Float[Tensor, "batch dim"]) -> Int[Tensor, " batch"]:
        """Put a batch in the place of the oldest.

        Args:
            embeddings: At most as many as there is room for, made unit vectors here; no gradient flows to them.

        Returns:
            Which rows they are now.
        """
        if len(embeddings) > len(self.rows):
            raise ValueError(
                f"{len(embeddings)} vectors for a queue of {len(self.rows)}; it must hold what all processes bring"
            )
        places = (self.oldest + torch.arange(len(embeddings), device=self.rows.device)) % len(self.rows)
        self.rows[places] = normalize(embeddings.float())
        self.oldest.copy_((self.oldest + len(embeddings)) % len(self.rows))
        return places

    def enter(
        self, references: Float[Tensor, "batch dim"], n_batches: int = 1
    ) -> tuple[Float[Tensor, "size dim"], Int[Tensor, " batch"]]:
        """Put in the references of a batch, under several processes those of all of them.

        Where no gradient is asked for, as in evaluation, a copy takes them, and the queue stays as it is.

        Args:
            references: What embeddings are compared with; no gradient flows to them.
            n_batches: How many such batches must be in it together.

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
        return queue.rows, places[first : first + len(references)]
