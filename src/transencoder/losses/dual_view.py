"""Classes of pairs, learned by two embeddings from gold and from teachers that read both texts at once (DvBERT)."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.functional import kl_div, one_hot

from transencoder.losses.annealing import Annealing
from transencoder.losses.features import embed_pairs


def class_divergence(
    logits: Float[Tensor, "pairs classes"], targets: Float[Tensor, "pairs classes"]
) -> Float[Tensor, ""]:
    """Mean over pairs of KL(q, p), p = softmax(logits) (DvBERT, section 2.2).

    Its gradient is (p - q) / N, that of the cross-entropy; of a gold class, all of q on it, it is the cross-entropy.

    Args:
        logits: Of n classes, any real numbers.
        targets: q, distributions over them.

    Returns:
        The loss, a scalar, at least 0.
    """
    return kl_div(logits.float().log_softmax(-1), targets.float(), reduction="batchmean")


def distributions(labels: Tensor, n_classes: int) -> Float[Tensor, "pairs targets classes"]:
    """Labels as distributions over classes.

    Args:
        labels: (pairs, targets * classes), one target's distribution after the other; or (pairs,), classes from 0.
        n_classes: n.

    Raises:
        ValueError: Labels of another number of classes.
    """
    if labels.ndim == 1:
        classes = labels.long()
        low, high = (each.item() for each in classes.aminmax())
        if not (low >= 0 and high < n_classes):
            raise ValueError(f"labels range from {low} to {high}; classes are 0 to {n_classes - 1}")
        return one_hot(classes, n_classes).float()[:, None]
    if labels.shape[1] % n_classes:
        raise ValueError(f"labels are {labels.shape[1]} wide, no multiple of the {n_classes} classes")
    return labels.view(len(labels), -1, n_classes)


class DualViewLoss(Annealing, nn.Module):
    """DvBERT's loss of classes for `SentenceTransformerTrainer`, ours and the plain one.

    softmax(W [u, v, |u - v|] + b) of a pair's embeddings, W and b in training only, as in SBERT; sum over teachers of
    the divergence from lambda y + (1 - lambda) q_k (DvBERT, sections 2.1 to 2.3, whose W has no b). With no teacher, or
    lambda 1 and one, it is sentence-transformers' `SoftmaxLoss`.

    Args:
        model: The bi-encoder to train.
        n_classes: At least 2.
        soft_share: Weight of the teachers' losses, in [0, 1], instead of annealing (section 3.6); None: annealing.
    """

    def __init__(self, model: SentenceTransformer, n_classes: int, *, soft_share: float | None = None) -> None:
        super().__init__()
        if n_classes < 2:
            raise ValueError(f"n_classes is {n_classes}; it must be at least 2")
        width = model.get_embedding_dimension()
        assert width is not None, "every model here has embeddings of one size"
        self.model = model
        self.n_classes = n_classes
        self.soft_share = self.checked_share(soft_share)
        self.classifier = nn.Linear(3 * width, n_classes)

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            sentence_features: Token features of the two sides.
            labels: (pairs, targets * classes): distributions one after the other, first gold, then each teacher's; or
                (pairs,), gold classes from 0.

        Raises:
            ValueError: Labels of another number of classes.
        """
        first, second = embed_pairs(self.model, list(sentence_features))
        logits = self.classifier(torch.cat([first, second, (first - second).abs()], dim=-1))
        gold, *taught = distributions(labels, self.n_classes).unbind(1)
        return self.taught_loss(lambda targets: class_divergence(logits, targets), gold, taught)

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {"n_classes": self.n_classes, "soft_share": self.soft_share}
