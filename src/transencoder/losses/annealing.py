"""Teacher annealing: targets move from a teacher's to the gold ones (BAM!, Clark et al., ACL 2019; DvBERT)."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def annealed(
    gold: Float[Tensor, "*shape"], taught: Float[Tensor, "*shape"], gold_share: float
) -> Float[Tensor, "*shape"]:
    """Return targets lambda y + (1 - lambda) q (DvBERT, section 2.3).

    Args:
        gold: y, scores or distributions; NaN where there is none, and the teacher's then stays the target.
        taught: q, a teacher's.
        gold_share: lambda, in [0, 1]; at 1 the targets are the gold ones themselves.
    """
    return torch.where(gold.isnan(), taught, gold_share * gold + (1.0 - gold_share) * taught)


class Annealing:
    """A part of losses that learn from gold and from teachers: how much of each, and the sum over teachers.

    `transencoder.fit.GoldAnnealing` moves `gold_share` from 0 at the first step to 1 at the last, in our trainers by
    itself, in a plain one as a callback.
    """

    gold_share: float = 0.0
    """lambda: the share of gold in each teacher's targets, in [0, 1]."""
    soft_share: float | None = None
    """alpha: instead of that, (1 - alpha) of the loss to gold and alpha of the losses to the teachers (DvBERT, section
    3.6), in [0, 1]; None: annealing."""

    @staticmethod
    def checked_share(soft_share: float | None) -> float | None:
        """Return a value for `soft_share`, refused if it is not in [0, 1]."""
        if soft_share is not None and not 0.0 <= soft_share <= 1.0:
            raise ValueError(f"soft_share is {soft_share}; it must be in [0, 1]")
        return soft_share

    def taught_loss(
        self,
        loss: Callable[[Tensor], Float[Tensor, ""]],
        gold: Float[Tensor, "*shape"],
        taught: Sequence[Float[Tensor, "*shape"]],
    ) -> Float[Tensor, ""]:
        """Sum the loss to lambda y + (1 - lambda) q_k over teachers (DvBERT, section 2.3); without any, to gold.

        Args:
            loss: Of the student, to targets.
            gold: y; where teachers anneal to it, NaN where there is none.
            taught: q_k, each teacher's.
        """
        if not taught:
            return loss(gold)
        if self.soft_share is None:
            return torch.stack([loss(annealed(gold, each, self.gold_share)) for each in taught]).sum()
        soft = torch.stack([loss(each) for each in taught]).sum()
        return (1.0 - self.soft_share) * loss(gold) + self.soft_share * soft
