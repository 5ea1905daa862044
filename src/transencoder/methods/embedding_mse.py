"""Mean squared error between embeddings (Reimers and Gurevych, EMNLP 2020): the simplest distillation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transencoder import configs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class EmbeddingMSE(configs.SentenceStudent):
    """Distillation of a teacher's embedding of each sentence, by mean squared error."""

    about = "Each sentence's embedding is brought to its teacher's, by mean squared error."

    fit: configs.FitConfig = (
        configs.fit_defaults(  # values of sentence-transformers' distillation example, with SCT's number of epochs
            learning_rate=(1e-4, "Peak learning rate of AdamW (example of sentence-transformers)."),
            batch_size=(64, "Number of sentences, or rows of views per step and device (example)."),
            epochs=(10, "Number of passes over the rows (example: 1 over millions of sentences)."),
            max_length=(128, "Maximum number of tokens of a sentence."),
            warmup_ratio=(0.1, "Share of the steps in which the learning rate rises (example)."),
            eval_steps=(200, "Number of steps between dev evaluations; one more follows at the end of each epoch."),
        )
    )
    """Training settings of the encoder."""

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Build sentence-transformers' `MSELoss`, which contains the projection that is used in training only."""
        from sentence_transformers.sentence_transformer.losses import MSELoss

        assert given.dimension is not None, "there is a teacher"
        has_projection = self.distillation.has("training", configs.width_of(student), given.dimension)
        return MSELoss(student, given.dimension if has_projection else None)
