"""DCLR (Zhou et al., ACL 2022): SimCSE whose negatives are cleared of false ones and joined by noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from transencoder.config import Pooling
from transencoder.errors import InputError
from transencoder.methods.checks import check_dropout, check_fit_dropout, check_temperature
from transencoder.methods.simcse import SimCSEFit
from transencoder.methods.start import Sentences, StartMethod

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class DCLRFit(SimCSEFit):
    """How DCLR trains: as SimCSE, but for the released code's values for BERT-base here."""

    learning_rate: float | None = 3e-5
    """Peak learning rate. Released code: RoBERTa-large 1e-5."""
    batch_size: int | None = 128
    """Sentences a step and device (released code)."""
    epochs: int | None = 3
    """Passes over the sentences. Released code: base 3, large 1."""


@dataclass(frozen=True, kw_only=True)
class DCLR(Sentences, StartMethod):
    """DCLR: dropout views, negatives weighed by a frozen model, and noise vectors as further negatives."""

    about = (
        "Each sentence goes through the encoder twice, and must find itself among noise vectors and those others of "
        "its batch that a frozen model does not find too alike (DCLR)."
    )

    complement: str
    """The frozen bi-encoder that weighs the negatives: a folder, a hub id, or `minilm`, with the start's tokenizer.
    Released code: the unsupervised SimCSE of the same base model."""
    complement_pooling: Pooling | None = None
    """Pooling of `complement`; None: its own, mean for a plain model, as released SimCSE models are, which want cls."""
    pooling: Pooling | None = "cls"
    """Pooling in training and at test (paper: the raw [CLS] at test). None: the start's own."""
    projector: bool = True
    """A linear layer and tanh on the embeddings while training, gone at test. Released code: for base models, on top of
    the pretrained pooler, where ours is on the pooling."""
    temperature: float = 0.05
    """Of the softmax over cosines, above 0 (paper)."""
    threshold: float = 0.9
    """A negative whose cosine to the sentence is above it in `complement` is left out. Released code: BERT 0.9,
    RoBERTa 0.85."""
    noise_ratio: float = 1.0
    """Noise vectors for each sentence of the batch; 0: none. Released code: BERT-base 1, RoBERTa-base 2.5,
    BERT-large 3, RoBERTa-large 5."""
    n_noise_steps: int = 4
    """Steps up the loss's gradient that make the noise hard (released code)."""
    noise_step_size: float = 1e-3
    """Length of each step (released code)."""
    loss_form: Literal["weighted", "elementwise"] = "weighted"
    """The paper's weighted InfoNCE, or the released code's element-wise cross-entropy, which made the published
    numbers. Its missing attention masks are not followed."""
    fit: DCLRFit = field(default_factory=DCLRFit)
    """How the encoder is trained."""

    def __post_init__(self) -> None:
        """Refuse contradictions."""
        super().__post_init__()
        check_temperature(self.temperature, "the paper's is 0.05")
        check_fit_dropout(self)
        for name in ("noise_ratio", "n_noise_steps", "noise_step_size"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 0 and finite")
        if not -1.0 <= self.threshold <= 1.0:
            raise InputError(f"threshold is {self.threshold}; it is a cosine, from -1 to 1")

    @property
    def helpers(self) -> tuple[str, ...]:
        """The frozen model."""
        return ("complement",)

    @property
    def relative_cost(self) -> float:
        """The student's, and a third of it for one view through the frozen model."""
        return 1 + 1 / 6

    def loss(self, student: SentenceTransformer) -> nn.Module:
        """Weighted InfoNCE with noise."""
        from transencoder.encoders import load_bi
        from transencoder.losses import WeightedInfoNCELoss, tanh_projector

        folder = self.fetch_helper("complement")
        complement = load_bi(
            folder, max_length=self.fit.max_length, pooling=self.complement_pooling, device=str(student.device)
        )
        check_dropout(self, student)
        dimension = student.get_embedding_dimension()
        assert dimension is not None, "every model here has embeddings of one size"
        return WeightedInfoNCELoss(
            student,
            complement,
            self.temperature,
            threshold=self.threshold,
            noise_ratio=self.noise_ratio,
            n_noise_steps=self.n_noise_steps,
            noise_step_size=self.noise_step_size,
            form=self.loss_form,
            projector=tanh_projector(dimension) if self.projector else None,
        )
