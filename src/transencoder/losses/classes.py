"""Losses on classes of pairs (DvBERT): for a bi-encoder that learns from gold and teachers, and for these teachers.

Classes are numbers from 0, or distributions over all classes.
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

    Never negative. Its gradient is (p - q) / N, as that of the cross-entropy. For a gold class, where q is one-hot, it
    equals the cross-entropy.
    """
    return kl_div(logits.float().log_softmax(-1), targets.float(), reduction="batchmean")


class DualViewLoss(Annealing):
    """DvBERT's loss on classes, for the `SentenceTransformerTrainer` of this package or the plain one.

    A pair with embeddings u and v is classified by softmax(W [u, v, |u - v|] + b), with W and b in training only, as in
    SBERT. The loss is the sum over teachers of the divergence from lambda y + (1 - lambda) q_k (DvBERT, sections 2.1 to
    2.3, where W has no b). Without a teacher, or with one and lambda 1, it is sentence-transformers' `SoftmaxLoss`,
    except for the scale of unit vectors.

    The labels are (pairs, targets * classes), concatenated distributions, first gold, then each teacher's; or (pairs,),
    gold classes.

    Args:
        n_classes: Number of classes, at least 2.
        soft_share: Weight of the teachers' losses, in [0, 1], instead of annealing (section 3.6); None: annealing.
    """

    shown = ("n_classes", "soft_share")
    is_mean_of_rows = True

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
        embeddings = embed_pairs(self.model, sentence_features, distinct=True)
        first, second = (self.scale * each for each in embeddings)
        logits = self.classifier(torch.cat([first, second, (first - second).abs()], dim=-1))
        gold, *teachers = _distributions(labels, self.n_classes).unbind(1)
        return self.annealed_loss(lambda targets: class_divergence(logits, targets), gold, teachers)


class ClassCrossEntropyLoss(Loss):
    """Cross-entropy of a cross-encoder's classes, for the `CrossEncoderTrainer` of this package or the plain one.

    softmax(O z), with z the output of [CLS], learns gold classes, (pairs,), or distributions, (pairs, classes) (DvBERT,
    section 2.2). It is sentence-transformers' `CrossEntropyLoss`, but also accepts token features.

    Args:
        model: The cross-encoder to train, with one output for each class, at least 2.
    """

    shown = ("n_classes",)
    is_mean_of_rows = True
    model: CrossEncoder

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__(model)
        if model.num_labels < 2:
            raise ValueError(f"the cross-encoder has {model.num_labels} output; classes need at least 2")
        self.n_classes = model.num_labels

    def forward(
        self, inputs: list[Any], labels: Tensor, prompt: str | None = None, task: str | None = None
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch, in a form that `cross_logits` accepts."""
        logits = cross_logits(self.model, inputs, prompt, task)
        return class_divergence(logits, _distributions(labels, logits.shape[1])[:, 0])


def _distributions(labels: Tensor, n_classes: int) -> Float[Tensor, "pairs targets classes"]:
    """Convert labels to distributions over n classes; refuse labels with another number of classes."""
    if labels.ndim == 1:
        classes = labels.long()
        low, high = (each.item() for each in classes.aminmax())
        if not (low >= 0 and high < n_classes):
            raise ValueError(f"labels range from {low} to {high}; classes are 0 to {n_classes - 1}")
        return one_hot(classes, n_classes).float()[:, None]
    if labels.shape[1] % n_classes:
        raise ValueError(f"labels are {labels.shape[1]} wide, no multiple of the {n_classes} classes")
    return labels.view(len(labels), -1, n_classes)
