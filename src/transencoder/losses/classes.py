"""Losses of classes of pairs: a bi-encoder's from gold and from teachers, and these teachers' own (DvBERT).

Classes are numbers from 0, or distributions over all of them.
"""

from typing import Any

import torch
from jaxtyping import Float
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch import Tensor, nn
from torch.nn.functional import kl_div, one_hot

from transencoder.losses.features import Columns, Loss, embed_pairs, head_scale
from transencoder.losses.scores import Annealing, cross_logits


def class_divergence(
    logits: Float[Tensor, "pairs classes"], targets: Float[Tensor, "pairs classes"]
) -> Float[Tensor, ""]:
    """Return the mean over pairs of KL(q, p), p = softmax(logits), targets q (DvBERT, section 2.2).

    Never negative. Its gradient is (p - q) / N, that of the cross-entropy; of a gold class, all of q on it, it is the
    cross-entropy.
    """
    return kl_div(logits.float().log_softmax(-1), targets.float(), reduction="batchmean")


class DualViewLoss(Annealing):
    """DvBERT's loss of classes for `SentenceTransformerTrainer`, ours and the plain one.

    softmax(W [u, v, |u - v|] + b) of a pair's embeddings, W and b in training only, as in SBERT; sum over teachers of
    the divergence from lambda y + (1 - lambda) q_k (DvBERT, sections 2.1 to 2.3, whose W has no b). With no teacher, or
    lambda 1 and one, it is sentence-transformers' `SoftmaxLoss`, but for the scale of unit vectors.

    Its labels are (pairs, targets * classes), distributions one after the other, first gold, then each teacher's; or
    (pairs,), gold classes.

    Args:
        n_classes: At least 2.
        soft_share: Weight of the teachers' losses, in [0, 1], instead of annealing (section 3.6); None: annealing.
    """

    shown = ("n_classes", "soft_share")

    def __init__(self, model: SentenceTransformer, n_classes: int, *, soft_share: float | None = None) -> None:
        super().__init__(model, soft_share)
        if n_classes < 2:
            raise ValueError(f"n_classes is {n_classes}; it must be at least 2")
        width = model.get_embedding_dimension()
        assert width is not None, "every model here has embeddings of one size"
        self.n_classes = n_classes
        self.scale = head_scale(model)
        self.classifier = nn.Linear(3 * width, n_classes)

    def forward(self, sentence_features: Columns, labels: Tensor) -> Float[Tensor, ""]:
        """Return the loss of a batch of pairs; labels of another number of classes are refused."""
        first, second = (self.scale * each for each in embed_pairs(self.model, sentence_features))
        logits = self.classifier(torch.cat([first, second, (first - second).abs()], dim=-1))
        gold, *teachers = _distributions(labels, self.n_classes).unbind(1)
        return self.annealed_loss(lambda targets: class_divergence(logits, targets), gold, teachers)


class ClassCrossEntropyLoss(Loss):
    """Cross-entropy of a cross-encoder's classes for `CrossEncoderTrainer`, ours and the plain one.

    softmax(O z) of [CLS], trained to gold classes, (pairs,), or to distributions, (pairs, classes) (DvBERT, section
    2.2). As sentence-transformers' `CrossEntropyLoss`, and for token features too.

    Args:
        model: The cross-encoder to train, with n outputs, at least 2.
    """

    shown = ("n_classes",)
    model: CrossEncoder

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__(model)
        if model.num_labels < 2:
            raise ValueError(f"the cross-encoder has {model.num_labels} output; classes need at least 2")
        self.n_classes = model.num_labels

    def forward(
        self, inputs: list[Any], labels: Tensor, prompt: str | None = None, task: str | None = None
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch as `cross_logits` takes it."""
        logits = cross_logits(self.model, inputs, prompt, task)
        return class_divergence(logits, _distributions(labels, logits.shape[1])[:, 0])


def _distributions(labels: Tensor, n_classes: int) -> Float[Tensor, "pairs targets classes"]:
    """Return labels as distributions over n classes, or refuse those of another number."""
    if labels.ndim == 1:
        classes = labels.long()
        low, high = (each.item() for each in classes.aminmax())
        if not (low >= 0 and high < n_classes):
            raise ValueError(f"labels range from {low} to {high}; classes are 0 to {n_classes - 1}")
        return one_hot(classes, n_classes).float()[:, None]
    if labels.shape[1] % n_classes:
        raise ValueError(f"labels are {labels.shape[1]} wide, no multiple of the {n_classes} classes")
    return labels.view(len(labels), -1, n_classes)
