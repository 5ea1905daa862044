"""Instance queues: the last embeddings of a reference network, which new ones are compared with (SCT, ConGen, CKD)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize


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
        self.register_buffer("rows", normalize(torch.randn(size, dimension)))
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
