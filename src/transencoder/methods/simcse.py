"""SimCSE (Gao et al., EMNLP 2021): a sentence must find itself, under another dropout mask, among others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transencoder import configs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class SimCSE(configs.SentenceEncoder):
    """Unsupervised SimCSE: contrastive learning of two views of each sentence that differ by dropout only."""

    about = (
        "Each sentence goes through the encoder twice, and must find itself among the others of its batch although "
        "dropout changed it (SimCSE)."
    )

    pooling: configs.Pooling | None = "cls"
    """Pooling in training and at test. Paper: the raw [CLS] at test. None: the base model's own, else mean."""
    projector: bool = True
    """Whether to put a linear layer and tanh on the embeddings in training; they are removed at test (paper, section
    3). The sentence-transformers page has none."""
    temperature: float = configs.above_zero(0.05, ", the paper's is 0.05")
    """Temperature of the softmax over cosines, above 0 (paper, section 4). The sentence-transformers page has a scale
    of 20, which is the same."""
    fit: configs.FitConfig = configs.fit_defaults(configs.SIMCSE_FIT)
    """Training settings of the encoder."""

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Build InfoNCE in one direction, through the projector."""
        from transencoder.losses import InfoNCELoss, tanh_projector

        return InfoNCELoss(
            student, self.temperature, tanh_projector(configs.width_of(student)) if self.projector else None
        )
