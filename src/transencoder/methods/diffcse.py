"""DiffCSE (Chuang et al., NAACL 2022): SimCSE whose embeddings must also help to detect replaced words."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transencoder import configs
from transencoder.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class DiffCSE(configs.SentenceEncoder):
    """DiffCSE: SimCSE with a discriminator that detects replaced words with the help of the sentence's embedding."""

    about = (
        "Each sentence goes through the encoder twice and must find itself among the others of its batch; its "
        "embedding must also help to tell which of its words a masked language model has replaced (DiffCSE)."
    )
    inputs = ("generator",)

    generator: str
    """Frozen masked language model that edits sentences, with the base model's vocabulary: a folder or a hub id. Paper:
    `distilbert-base-uncased` for BERT, `distilroberta-base` for RoBERTa."""
    pooling: configs.Pooling | None = "cls"
    """Pooling in training and at test (paper: the raw [CLS] at test). None: the base model's own."""
    temperature: float = configs.above_zero(0.05, ", the paper's is 0.05")
    """Temperature of the softmax over cosines, above 0 (paper)."""
    detection_weight: float = configs.finite_from_zero(0.005, ", the paper's is 0.005")
    """Weight of replaced-token detection; the contrastive loss has weight 1 (paper, lambda: 0.005 for similarity, 0.05
    otherwise)."""
    mask_ratio: float = configs.share_of_tokens(0.3)
    """Share of a sentence's tokens that the generator predicts, above 0 and below 1. Paper: BERT 0.3, RoBERTa 0.2."""
    counts_padding: bool = False
    """Whether the mean of the detection loss includes padding (as in the released code)."""
    fit: configs.FitConfig = configs.fit_defaults(
        configs.SIMCSE_FIT,
        learning_rate=(7e-6, "Peak learning rate. Released code: BERT-base 7e-6, RoBERTa-base 1e-5."),
        batch_size=(64, "Number of sentences per step and device (released code)."),
        epochs=(2, "Number of passes over the sentences (released code: 2)."),
    )
    """Training settings of the encoder."""

    @property
    def helpers(self) -> tuple[configs.Helper, ...]:
        """The generator."""
        return (configs.Helper(field="generator", form="masked"),)

    def cost(self, width: int, dimension: int | None) -> configs.MethodCost:
        """Return the student's cost, the same for the discriminator, and a third for a generator of the same size."""
        return configs.MethodCost(relative=2 + 1 / 3, n_encoders=2)

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Build InfoNCE and replaced-token detection, through the projector.

        Raises:
            InputError: The discriminator, a copy of the student, cannot read the sentence's embedding.
        """
        from transencoder.losses import DiffCSELoss, batch_norm_projector

        generator, tokenizer = given.helpers["generator"]
        width, discriminator = configs.width_of(student), deepcopy(student.transformers_model)
        assert discriminator is not None, "every model here has a transformer"
        words = discriminator.get_input_embeddings()
        if "embeddings" not in dict(discriminator.named_children()) or words.embedding_dim != width:
            raise InputError(
                f"{self.start} cannot be DiffCSE's discriminator, which reads the sentence's embedding, of {width} "
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
            projector=batch_norm_projector(width),
            counts_padding=self.counts_padding,
        )
