"""What losses of a cross-encoder's logits have in common: texts or token features in, targets checked."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from sentence_transformers import CrossEncoder
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn

from transencoder.losses.annealing import Annealing
from transencoder.losses.targets import check_targets


def cross_logits(
    model: CrossEncoder, inputs: list[Any], prompt: str | None, task: str | None
) -> Float[Tensor, "pairs outputs"]:
    """Raw outputs of a cross-encoder for a batch, as trainers hand it over.

    Args:
        model: The cross-encoder.
        inputs: The two columns of texts (the plain trainer), or one mapping of token features (`transencoder.fit`).
        prompt: Prompt put before the texts, as sentence-transformers has it.
        task: Task for routed models, as sentence-transformers has it.
    """
    if isinstance(inputs[0], Mapping):
        features = dict(inputs[0])
    else:
        features = model.preprocess(list(zip(*inputs, strict=True)), prompt=prompt, task=task)
        features = batch_to_device(features, model.device)
    scores: Tensor = model(features)["scores"]
    return scores.view(len(scores), -1)


class LogitLoss(Annealing, nn.Module, ABC):
    """A loss of logits and targets for `CrossEncoderTrainer`, ours and the plain one.

    Args:
        model: The cross-encoder to train; one output label.
        allow_outside: Accept targets outside [0, 1] (the label policy `raw`).
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
            labels: (pairs,) targets, in [0, 1]; or (pairs, 1 + teachers), gold ones, NaN where there are none, and
                each teacher's: see `Annealing`.
            prompt: Prompt put before the texts, as sentence-transformers has it.
            task: Task for routed models, as sentence-transformers has it.
        """
        logits = cross_logits(self.model, inputs, prompt, task).view(-1)

        def loss(targets: Tensor) -> Float[Tensor, ""]:
            if not self.allow_outside:
                check_targets(targets)
            return self.equation(logits, targets)

        gold, *taught = labels.view(len(labels), -1).unbind(1)
        return self.taught_loss(loss, gold, taught)

    @staticmethod
    @abstractmethod
    def equation(logits: Float[Tensor, " pairs"], targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
        """The loss of logits, any real numbers, and targets."""

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {"allow_outside": self.allow_outside, "soft_share": self.soft_share}
