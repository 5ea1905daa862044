"""ConGen: both texts of a row are as alike to a queue of real sentences as the first one is for a teacher."""

from collections.abc import Iterable
from typing import Any

from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from transencoder.losses.features import embed_pairs
from transencoder.losses.queues import InstanceQueue
from transencoder.losses.similarity_distributions import similarity_divergence


class ConGenLoss(nn.Module):
    """ConGen's loss for `SentenceTransformerTrainer`, ours and the plain one, on a text and its view.

    (KL(p, q_a) + KL(p, q_b)) / 2, where p is the similarity distribution of the teacher's embedding of the first text
    over a queue of the teacher's embeddings, and q_a, q_b those of the student's embeddings of both texts
    (Limkonchotiwat et al., Findings of EMNLP 2022). ConGen writes cross-entropy, which has the same gradient.
    `SCTLoss` with a teacher compares each view with the teacher's embedding of the other one, in two queues.

    Args:
        model: The bi-encoder to train.
        queue: Of the teacher's dimension. ConGen fills it with the teacher's embeddings of real sentences, on which
            nothing is trained: `queue.push(embeddings)`.
        temperature: Of the student, above 0; ConGen: 0.05 to 0.1.
        teacher_temperature: Of the teacher, above 0; ConGen: 0.05 or 0.1.
        projector: On the student's embeddings, to the teacher's dimension, in training only; None: these are of that
            dimension. ConGen has a linear layer and tanh there, as a part of the student.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        queue: InstanceQueue,
        temperature: float,
        teacher_temperature: float,
        projector: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if not (temperature > 0 and teacher_temperature > 0):
            raise ValueError(f"temperatures are {temperature} and {teacher_temperature}; they must be above 0")
        self.model = model
        self.queue = queue
        self.temperature = temperature
        self.teacher_temperature = teacher_temperature
        self.projector = nn.Identity() if projector is None else projector

    def forward(
        self,
        sentence_features: Iterable[dict[str, Any]],
        labels: Float[Tensor, "batch dim"] | Float[Tensor, "batch 2 dim"],
    ) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            sentence_features: Token features of the texts and of their views.
            labels: The teacher's embeddings of the texts, or of texts and views, whose second is not used.
        """
        embeddings = embed_pairs(self.model, list(sentence_features))
        references = (labels if labels.ndim == 2 else labels[:, 0]).float()
        rows, _ = self.queue.enter(references)
        first, second = (
            similarity_divergence(self.projector(each), references, rows, self.temperature, self.teacher_temperature)
            for each in embeddings
        )
        return (first + second) / 2

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {"temperature": self.temperature, "teacher_temperature": self.teacher_temperature}
