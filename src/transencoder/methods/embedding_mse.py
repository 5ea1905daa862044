"""Mean squared error between embeddings (Reimers and Gurevych, EMNLP 2020): the plainest distillation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transencoder import configs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class EmbeddingMSE(configs.SentenceStudent):
    """Each sentence's embedding becomes its teacher's, by mean squared error."""

    about = "Each sentence's embedding is brought to its teacher's, by mean squared error."

    fit: configs.FitConfig = (
        configs.fit_defaults(  # those of sentence-transformers' distillation example, SCT's number of epochs
            learning_rate=(1e-4, "Peak learning rate of AdamW (example of sentence-transformers)."),
            batch_size=(64, "Sentences, or rows of views, a step and device (example)."),
            epochs=(10, "Passes over the rows (example: 1 over millions of sentences)."),
            max_length=(128, "Tokens of a sentence."),
            warmup_ratio=(0.1, "Share of the steps with rising rate (example)."),
            eval_steps=(200, "Steps between dev evaluations; one more at each epoch's end."),
        )
    )
    """How the encoder is trained."""

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Make sentence-transformers' own, the projection of training in it."""
        from sentence_transformers.sentence_transformer.losses import MSELoss

        assert given.dimension is not None, "there is a teacher"
        has_projection = self.distillation.has("training", configs.width_of(student), given.dimension)
        return MSELoss(student, given.dimension if has_projection else None)
