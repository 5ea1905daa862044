"""Losses on scores: those by which Trans-Encoder's students learn pseudo-labels, and alternatives that its paper tried.

A bi-encoder's score is a cosine in [-1, 1], a cross-encoder's a raw logit, any real number. Each equation takes scores
and targets, pseudo-labels in [0, 1], and gives the mean over pairs in fp32. The paper uses `cosine_regression` for the
bi-encoder and `soft_cross_entropy` for the cross-encoder; the others are from its appendix A.2 and Table 8.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from sentence_transformers import CrossEncoder
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn
from torch.nn.functional import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_similarity,
    mse_loss,
    softplus,
)

from transencoder.losses.features import Columns, Loss, embed_pairs

Equation = Callable[[Float[Tensor, " pairs"], Float[Tensor, " pairs"]], Float[Tensor, ""]]
"""Loss of scores and targets."""

_EPSILON = 1e-4
"""Minimum distance of a probability from 0 and 1, where its logarithm is unbounded."""


def cosine_regression(cosines: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """Return the mean of (x - y)^2, x in [-1, 1], y in [0, 1] (Trans-Encoder, equation 3, printed with a minus sign).

    Never negative; its gradient is 2 (x - y) / N. Its siblings: `log_cosh`, nearly the same for differences this
    small; `cosine_cross_entropy` and `clipped_cosine_cross_entropy`, which the paper's Table 8 finds not to converge;
    `soft_cross_entropy` works on logits instead.
    """
    return mse_loss(cosines.float(), targets.float())


def log_cosh(cosines: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """Return the mean of log(cosh(d)), d = x - y, x in [-1, 1], y in [0, 1] (Trans-Encoder, appendix A.2: no gain).

    Never negative; its gradient is tanh(d) / N. About d^2 / 2 for small differences, so half of `cosine_regression`,
    and |d| - log 2 for large ones. Written as |d| + log(1 + exp(-2 |d|)) - log 2, which cannot overflow.
    """
    difference = (cosines.float() - targets.float()).abs()
    return (difference + softplus(-2.0 * difference) - math.log(2.0)).mean()


def soft_cross_entropy(logits: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """Return the mean of -(y log sigmoid(x) + (1 - y) log(1 - sigmoid(x))) (Trans-Encoder, equation 2).

    Never negative for targets in [0, 1], where its gradient is (sigmoid(x) - y) / N; the paper's equation 4 prints the
    opposite sign. Unbounded below for targets outside [0, 1]. Its sibling `cosine_regression` penalises any difference
    of scores; this one tolerates differences at both ends, which keeps student and teacher apart (paper, section 2.3).
    """
    return binary_cross_entropy_with_logits(logits.float(), targets.float())


def logit_regression(logits: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """Return the mean of (x - y)^2, x being the logit (Trans-Encoder, equation 4 and Table 8: MSE for bi -> cross).

    Its gradient is 2 (x - y) / N. The logit itself learns the target in [0, 1]: it is the score, and is clipped to
    [0, 1] when it labels. The paper finds that the student then copies its teacher; `soft_cross_entropy` tolerates
    more.
    """
    return mse_loss(logits.float(), targets.float())


def cosine_cross_entropy(cosines: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """Return `soft_cross_entropy` with the cosine as the logit (Trans-Encoder, Table 8: BCE for cross -> bi).

    For a cosine, sigmoid(x) stays in [0.27, 0.73]: targets outside are never reached, and pull cosines to -1 and 1. The
    paper does not say how the cosine enters; `clipped_cosine_cross_entropy` is the other reading. A sibling that works
    is `cosine_regression`.
    """
    return soft_cross_entropy(cosines, targets)


def clipped_cosine_cross_entropy(
    cosines: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]
) -> Float[Tensor, ""]:
    """Return the mean of -(y log p + (1 - y) log(1 - p)), p being the cosine clipped to [0.0001, 0.9999].

    It is the other reading of Trans-Encoder's Table 8, for targets in [0, 1]. A clipped cosine has no gradient.
    """
    with torch.autocast(cosines.device.type, enabled=False):  # torch refuses this function under autocast
        return binary_cross_entropy(cosines.float().clamp(_EPSILON, 1.0 - _EPSILON), targets.float())


def check_targets(targets: Tensor) -> None:
    """Refuse targets that are NaN or outside [0, 1], where a cross-entropy has no lower bound."""
    low, high = targets.aminmax()
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"targets range from {low.item():g} to {high.item():g}; allowed is [0, 1]. Choose a label policy "
            "that maps scores there (clip, affine, quantile), or allow_outside=True "
            "for what the released Trans-Encoder code does"
        )


def annealed(
    gold: Float[Tensor, "*shape"], teacher: Float[Tensor, "*shape"], gold_share: float
) -> Float[Tensor, "*shape"]:
    """Return targets lambda y + (1 - lambda) q (DvBERT, section 2.3).

    Args:
        gold: Gold targets y, scores or distributions; where they are NaN, the teacher's are the targets.
        teacher: Targets q of a teacher.
        gold_share: Share lambda of gold, in [0, 1]; at 1 the targets are the gold ones themselves.
    """
    return torch.where(gold.isnan(), teacher, gold_share * gold + (1.0 - gold_share) * teacher)


class Annealing(Loss):
    """Base class of losses that learn from gold and from teachers: the share of each, and the sum over teachers.

    `transencoder.fit.GoldAnnealing` moves `gold_share` from 0 at the first step to 1 at the last. This package's
    trainers add it themselves; add it to a plain trainer as a callback.

    Args:
        model: The encoder to train.
        soft_share: Weight alpha, in [0, 1], to use instead of annealing: 1 - alpha for the loss on gold, and alpha for
            the losses on the teachers (DvBERT, section 3.6); None: annealing.
    """

    gold_share: float = 0.0
    """Share lambda of gold in each teacher's targets, in [0, 1]."""

    def __init__(self, model: nn.Module, soft_share: float | None) -> None:
        super().__init__(model)
        if soft_share is not None and not 0.0 <= soft_share <= 1.0:
            raise ValueError(f"soft_share is {soft_share}; it must be in [0, 1]")
        self.soft_share = soft_share

    def annealed_loss(
        self,
        loss: Callable[[Tensor], Float[Tensor, ""]],
        gold: Float[Tensor, "*shape"],
        teachers: Sequence[Float[Tensor, "*shape"]],
    ) -> Float[Tensor, ""]:
        """Sum the loss on targets lambda y + (1 - lambda) q_k over teachers (DvBERT, section 2.3), or y without any."""
        if not teachers:
            return loss(gold)
        if self.soft_share is None:
            return torch.stack([loss(annealed(gold, each, self.gold_share)) for each in teachers]).sum()
        soft = torch.stack([loss(each) for each in teachers]).sum()
        return (1.0 - self.soft_share) * loss(gold) + self.soft_share * soft


class ScoreLoss(Annealing):
    """Base class of modules for the equations above.

    The labels are (pairs,), targets in [0, 1]; or (pairs, 1 + teachers), gold targets, NaN where there are none, then
    each teacher's: see `Annealing`.

    Args:
        model: The encoder to train; a cross-encoder must have one output.
        equation: The function of scores and targets to minimise.
        allow_outside: Whether to accept targets outside [0, 1] (the label policy `raw`), for which
            `soft_cross_entropy` has no lower bound.
        soft_share: Weight of the teachers' losses, for labels with gold for every pair; None: annealing.
    """

    shown = ("allow_outside", "soft_share")
    is_mean_of_rows = True

    def __init__(
        self, model: nn.Module, equation: Equation, allow_outside: bool = False, *, soft_share: float | None = None
    ) -> None:
        super().__init__(model, soft_share)
        self.equation = equation
        self.allow_outside = allow_outside

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card, with the name of the equation."""
        return {"equation": self.equation.__name__} | super().get_config_dict()

    def learn(self, scores: Float[Tensor, " pairs"], labels: Tensor) -> Float[Tensor, ""]:
        """Return the loss of a batch's scores."""

        def loss(targets: Tensor) -> Float[Tensor, ""]:
            if not self.allow_outside:
                check_targets(targets)
            return self.equation(scores, targets)

        gold, *teachers = labels.view(len(labels), -1).unbind(1)
        return self.annealed_loss(loss, gold, teachers)


class CosineLoss(ScoreLoss):
    """Loss of cosines, for the `SentenceTransformerTrainer` of this package or the plain one.

    The equation is `cosine_regression` (Trans-Encoder, equation 3), `log_cosh`, `cosine_cross_entropy` or
    `clipped_cosine_cross_entropy`. See `ScoreLoss` for labels and the other arguments.
    """

    is_of_cosines = True

    def __init__(
        self,
        model: nn.Module,
        equation: Equation = cosine_regression,
        allow_outside: bool = False,
        *,
        soft_share: float | None = None,
    ) -> None:
        super().__init__(model, equation, allow_outside, soft_share=soft_share)

    def forward(self, sentence_features: Columns, labels: Tensor) -> Float[Tensor, ""]:
        """Return the loss of a batch of pairs, which are encoded in one forward pass, and equal texts once."""
        first, second = embed_pairs(self.model, sentence_features, distinct=True)
        return self.learn(cosine_similarity(first, second), labels)


class LogitLoss(ScoreLoss):
    """Loss of logits, for the `CrossEncoderTrainer` of this package or the plain one.

    The equation is `soft_cross_entropy` (Trans-Encoder, equation 2) or `logit_regression`. See `ScoreLoss` for labels
    and the other arguments.
    """

    model: CrossEncoder

    def __init__(self, model: nn.Module, equation: Equation = soft_cross_entropy, allow_outside: bool = False) -> None:
        super().__init__(model, equation, allow_outside)

    def forward(
        self, inputs: list[Any], labels: Tensor, prompt: str | None = None, task: str | None = None
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch, in a form that `cross_logits` accepts."""
        return self.learn(cross_logits(self.model, inputs, prompt, task).view(-1), labels)


def cross_logits(
    model: CrossEncoder, inputs: list[Any], prompt: str | None, task: str | None
) -> Float[Tensor, "pairs outputs"]:
    """Return a cross-encoder's raw outputs for a batch, in either form in which trainers pass it.

    The inputs are the two columns of texts, with sentence-transformers' prompt and task (the plain trainer), or one
    mapping of token features (`transencoder.fit`).
    """
    if isinstance(inputs[0], Mapping):
        features = dict(inputs[0])
    else:
        features = model.preprocess(list(zip(*inputs, strict=True)), prompt=prompt, task=task)
        features = batch_to_device(features, model.device)
    scores: Tensor = model(features)["scores"]
    return scores.view(len(scores), -1)
