"""SimCSE (Gao et al., EMNLP 2021): a sentence finds itself among others through another dropout mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transencoder.configs.choices import Pooling
from transencoder.configs.encoder import SentenceEncoder
from transencoder.configs.fit import Default, FitConfig, fit_defaults
from transencoder.configs.parts import Given
from transencoder.configs.ranges import above_zero
from transencoder.configs.teacher import width_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

SIMCSE_FIT: dict[str, Default] = {
    "learning_rate": (
        3e-5,
        "Peak learning rate of AdamW. Released code: BERT-base and RoBERTa-large 3e-5, the others 1e-5.",
    ),
    "batch_size": (64, "Sentences a step and device. Released code: BERT 64, RoBERTa 512."),
    "epochs": (1, "Passes over the sentences. Released code: 1, over a million."),
    "max_length": (32, "Tokens of a sentence."),
    "warmup_ratio": (0.0, "Share of the steps with rising rate. Released code: none."),
    "weight_decay": (0.0, "AdamW weight decay. Released code: none."),
    "eval_steps": (125, "Steps between dev evaluations; one more at each epoch's end. SimCSE's released code: 125."),
    "bucket_batches": (
        1,
        "Batches in a window that is sorted by length. 1, so that the negatives are of any length as in the released "
        "code; more is faster.",
    ),
}
"""The released code's values for BERT-base."""


@dataclass(frozen=True, kw_only=True)
class SimCSE(SentenceEncoder):
    """Unsupervised SimCSE: each sentence twice through the encoder, dropout makes the difference."""

    about = (
        "Each sentence goes through the encoder twice, and must find itself among the others of its batch although "
        "dropout changed it (SimCSE)."
    )

    pooling: Pooling | None = "cls"
    """Pooling in training and at test. Paper: the raw [CLS] at test. None: the start's own, mean for a plain model."""
    projector: bool = True
    """A linear layer and tanh on the embeddings while training, gone at test (paper, section 3). The
    sentence-transformers page has none."""
    temperature: float = above_zero(0.05, ", the paper's is 0.05")
    """Of the softmax over cosines, above 0 (paper, section 4). The sentence-transformers page: a scale of 20, which is
    the same."""
    fit: FitConfig = fit_defaults(SIMCSE_FIT)
    """How the encoder is trained."""

    def loss(self, student: SentenceTransformer, given: Given) -> nn.Module:
        """Make InfoNCE in one direction, through the projector."""
        from transencoder.losses import InfoNCELoss, tanh_projector

        return InfoNCELoss(student, self.temperature, tanh_projector(width_of(student)) if self.projector else None)
