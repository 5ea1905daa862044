"""SimCSE (Gao et al., EMNLP 2021): a sentence finds itself among others through another dropout mask."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transencoder.config import FitConfig, Pooling
from transencoder.methods.checks import check_dropout, check_fit_dropout, check_temperature
from transencoder.methods.start import Sentences, StartMethod

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class SimCSEFit(FitConfig):
    """How SimCSE trains: the released code's values for BERT-base."""

    learning_rate: float | None = 3e-5
    """Peak learning rate of AdamW. Released code: BERT-base and RoBERTa-large 3e-5, the others
    1e-5."""
    batch_size: int | None = 64
    """Sentences a step and device. Released code: BERT 64, RoBERTa 512."""
    epochs: int | None = 1
    """Passes over the sentences. Released code: 1, over a million."""
    max_length: int | None = 32
    """Tokens of a sentence."""
    warmup_ratio: float | None = 0.0
    """Share of the steps with rising rate. Released code: none."""
    weight_decay: float = 0.0
    """AdamW weight decay. Released code: none."""
    eval_steps: int = 125
    """Steps between dev evaluations; one more at each epoch's end. SimCSE's released code: 125."""
    bucket_batches: int = 1
    """Batches in a window that is sorted by length. 1, so that the negatives are of any length as in the released code;
    more is faster."""


@dataclass(frozen=True, kw_only=True)
class SimCSE(Sentences, StartMethod):
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
    temperature: float = 0.05
    """Of the softmax over cosines, above 0 (paper, section 4). The sentence-transformers page: a scale of 20, which is
    the same."""
    fit: SimCSEFit = field(default_factory=SimCSEFit)
    """How the encoder is trained."""

    def __post_init__(self) -> None:
        """Refuse contradictions."""
        super().__post_init__()
        check_temperature(self.temperature, "the paper's is 0.05")
        check_fit_dropout(self)

    def loss(self, student: SentenceTransformer) -> nn.Module:
        """InfoNCE in one direction, through the projector.

        Raises:
            InputError: The encoder has no dropout, and both views would be the same.
        """
        from transencoder.losses import InfoNCELoss, tanh_projector

        check_dropout(self, student)
        dimension = student.get_embedding_dimension()
        assert dimension is not None, "every model here has embeddings of one size"
        return InfoNCELoss(student, self.temperature, tanh_projector(dimension) if self.projector else None)
