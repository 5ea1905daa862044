"""Soft binary cross-entropy: how a cross-encoder learns a bi-encoder's scores (paper, equation 2)."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from sentence_transformers import CrossEncoder
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from transencoder.losses.targets import check_targets


def soft_cross_entropy(logits: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """Mean over pairs of -(y log sigmoid(x) + (1 - y) log(1 - sigmoid(x))) (Trans-Encoder, equation 2).

    Never negative for targets in [0, 1], where its gradient is (sigmoid(x) - y) / N; the paper's equation 4 prints the
    opposite sign. Unbounded below for targets outside [0, 1]. Its sibling `cosine_regression` punishes any difference
    of scores; this one forgives at both ends, which keeps student and teacher apart (paper, section 2.3).

    Args:
        logits: The cross-encoder's raw outputs, any real number.
        targets: Pseudo-labels, in [0, 1].

    Returns:
        The loss, a scalar.
    """
    return binary_cross_entropy_with_logits(logits.float(), targets.float())


class SoftCrossEntropyLoss(nn.Module):
    """`soft_cross_entropy` for `CrossEncoderTrainer`, ours and the plain one.

    Args:
        model: The cross-encoder to train; one output label.
        allow_outside: Accept targets outside [0, 1], as the released code does, where the loss has no lower bound.
    """

    def __init__(self, model: CrossEncoder, allow_outside: bool = False) -> None:
        super().__init__()
        self.model = model
        self.allow_outside = allow_outside

    def forward(
        self, inputs: list[Any], labels: Tensor, prompt: str | None = None, task: str | None = None
    ) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            inputs: The two columns of texts (the plain trainer), or one mapping of token
                features (`transencoder.fit`).
            labels: (pairs,) targets, in [0, 1].
            prompt: Prompt put before the texts, as sentence-transformers has it.
            task: Task for routed models, as sentence-transformers has it.
        """
        if not self.allow_outside:
            check_targets(labels)
        if isinstance(inputs[0], Mapping):
            features = dict(inputs[0])
        else:
            features = self.model.preprocess(list(zip(*inputs, strict=True)), prompt=prompt, task=task)
            features = batch_to_device(features, self.model.device)
        return soft_cross_entropy(self.model(features)["scores"].view(-1), labels.view(-1))

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {"allow_outside": self.allow_outside}
