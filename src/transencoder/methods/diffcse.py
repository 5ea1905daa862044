"""DiffCSE (Chuang et al., NAACL 2022): SimCSE whose embeddings must also tell an edited sentence from the sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transencoder.config import Pooling
from transencoder.errors import InputError
from transencoder.methods.checks import check_dropout, check_fit_dropout, check_temperature
from transencoder.methods.simcse import SimCSEFit
from transencoder.methods.start import Sentences, StartMethod

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class DiffCSEFit(SimCSEFit):
    """How DiffCSE trains: as SimCSE, but for the released code's values for BERT-base here."""

    learning_rate: float | None = 7e-6
    """Peak learning rate. Released code: BERT-base 7e-6, RoBERTa-base 1e-5."""
    batch_size: int | None = 64
    """Sentences a step and device (released code)."""
    epochs: int | None = 2
    """Passes over the sentences (released code: 2)."""


@dataclass(frozen=True, kw_only=True)
class DiffCSE(Sentences, StartMethod):
    """DiffCSE: SimCSE, and a discriminator that finds replaced words with the embedding's help."""

    about = (
        "Each sentence goes through the encoder twice and must find itself among the others of its batch; its "
        "embedding must also help to tell which of its words a masked language model has replaced (DiffCSE)."
    )

    generator: str
    """The frozen masked language model that edits sentences, with the start's vocabulary: a folder or a hub id. Paper:
    `distilbert-base-uncased` for BERT, `distilroberta-base` for RoBERTa."""
    pooling: Pooling | None = "cls"
    """Pooling in training and at test (paper: the raw [CLS] at test). None: the start's own."""
    temperature: float = 0.05
    """Of the softmax over cosines, above 0 (paper)."""
    detection_weight: float = 0.005
    """Weight of the replaced-token detection beside the contrast (paper, lambda: 0.005 for similarity, 0.05 else)."""
    mask_ratio: float = 0.3
    """Share of a sentence's tokens that the generator guesses, above 0 and below 1. Paper: BERT 0.3, RoBERTa 0.2."""
    counts_padding: bool = False
    """Count padding in the detection's mean, as the released code does."""
    fit: DiffCSEFit = field(default_factory=DiffCSEFit)
    """How the encoder is trained."""

    def __post_init__(self) -> None:
        """Refuse contradictions."""
        super().__post_init__()
        check_temperature(self.temperature, "the paper's is 0.05")
        check_fit_dropout(self)
        if not 0 <= self.detection_weight < math.inf:
            raise InputError(
                f"detection_weight is {self.detection_weight}; it must be at least 0 and finite, the paper's is 0.005"
            )
        if not 0.0 < self.mask_ratio < 1.0:
            raise InputError(f"mask_ratio is {self.mask_ratio}; it is a share of the tokens, above 0 and below 1")

    @property
    def helpers(self) -> tuple[str, ...]:
        """The generator."""
        return ("generator",)

    @property
    def relative_cost(self) -> float:
        """The student's, as much for the discriminator, and a third of it for a generator of the same size."""
        return 2 + 1 / 3

    @property
    def n_encoders(self) -> int:
        """The student and the discriminator."""
        return 2

    def loss(self, student: SentenceTransformer) -> nn.Module:
        """InfoNCE and the detection, through the projector.

        Raises:
            InputError: The discriminator, a copy of the start, has no place for the embedding.
        """
        from copy import deepcopy

        from transencoder.encoders import load_masked
        from transencoder.losses import DiffCSELoss, batch_norm_projector

        generator, tokenizer = load_masked(self.fetch_helper("generator"))
        check_dropout(self, student)
        dimension = student.get_embedding_dimension()
        assert dimension is not None, "every model here has embeddings of one size"
        discriminator = deepcopy(student.transformers_model)
        assert discriminator is not None, "every model here has a transformer"
        words = discriminator.get_input_embeddings()
        if "embeddings" not in dict(discriminator.named_children()) or words.embedding_dim != dimension:
            raise InputError(
                f"{self.start} cannot be DiffCSE's discriminator, which reads the sentence's embedding, of {dimension} "
                f"numbers, among those of its words, of {words.embedding_dim}; give a start such as BERT or RoBERTa"
            )
        return DiffCSELoss(
            student,
            generator,
            discriminator,
            mask_token_id=tokenizer.mask_token_id,
            special_ids=tokenizer.all_special_ids,
            temperature=self.temperature,
            weight=self.detection_weight,
            mask_ratio=self.mask_ratio,
            projector=batch_norm_projector(dimension),
            counts_padding=self.counts_padding,
        )
