"""Classes of pairs, learned by a cross-encoder: DvBERT's teachers."""

from typing import Any

from jaxtyping import Float
from sentence_transformers import CrossEncoder
from torch import Tensor, nn

from transencoder.losses.dual_view import class_divergence, distributions
from transencoder.losses.logits import cross_logits


class ClassCrossEntropyLoss(nn.Module):
    """Cross-entropy of a cross-encoder's classes for `CrossEncoderTrainer`, ours and the plain one.

    softmax(O z) of [CLS], trained to gold classes (DvBERT, section 2.2). As sentence-transformers' `CrossEntropyLoss`,
    and for token features too.

    Args:
        model: The cross-encoder to train, with n outputs, at least 2.
    """

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        if model.num_labels < 2:
            raise ValueError(f"the cross-encoder has {model.num_labels} output; classes need at least 2")
        self.model = model

    def forward(
        self, inputs: list[Any], labels: Tensor, prompt: str | None = None, task: str | None = None
    ) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            inputs: The two columns of texts (the plain trainer), or one mapping of token features (`transencoder.fit`).
            labels: (pairs,) classes from 0, or (pairs, classes) distributions.
            prompt: Prompt put before the texts, as sentence-transformers has it.
            task: Task for routed models, as sentence-transformers has it.
        """
        logits = cross_logits(self.model, inputs, prompt, task)
        return class_divergence(logits, distributions(labels, logits.shape[1])[:, 0])

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {"n_classes": self.model.num_labels}
