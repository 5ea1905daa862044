"""Contrastive Tension (Carlsson et al., ICLR 2021): two copies of one encoder pull on each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from transencoder import configs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ContrastiveTension(configs.SentenceEncoder):
    """Contrastive Tension: two copies agree on the same sentence and disagree on different ones; the better is kept."""

    about = (
        "Two copies of the encoder learn to give the same sentence embeddings of a high dot product and different "
        "sentences of a low one; the copy that is better on dev is kept, without dev the first (Contrastive Tension)."
    )

    pooling: configs.Pooling | None = "mean"
    """Pooling in training and at test (paper). None: the base model's own."""
    negatives: Literal["random", "in_batch"] = "random"
    """Random pairs of other sentences (paper), or the batch's other sentences with a learned temperature
    (sentence-transformers)."""
    n_negatives: int = configs.at_least(1, 7, ", the paper's is 7")
    """Random negative pairs for each sentence (paper: 7)."""
    fit: configs.FitConfig = configs.fit_defaults(
        learning_rate=(
            1e-5,
            "Peak learning rate. Released code: falls from 1e-5 to 2e-6 in steps over 2,000 batches, here in a line to "
            "0.",
        ),
        batch_size=(16, "Pairs a step and device: 2 positive and 14 negative ones on average (released code)."),
        epochs=(1, "Passes over the sentences. Released code: 5,000 batches, which take 10,000 sentences."),
        max_length=(75, "Tokens of a sentence (released code)."),
        warmup_ratio=(0.0, "Share of the steps with rising rate (released code: none)."),
        dropout=(
            0.0,
            "The official code trains without dropout: the tension comes from the two copies. sentence-transformers: "
            "0.1.",
        ),
        optimizer=(
            "rmsprop",
            "The official code: RMSProp (its decay rate 0.9, torch's 0.99). sentence-transformers: AdamW.",
        ),
        weight_decay=(0.0, "The official code has none; in RMSProp it would pull words that never occur towards 0."),
        max_grad_norm=(0.0, "Gradients are clipped to this norm; 0: not at all (official code)."),
        bucket_batches=(
            1,
            "Batches in a window that is sorted by length. More would part positive pairs from negative ones, whose "
            "longer side is longer.",
        ),
    )
    """How the encoders are trained."""

    def contradictions(self) -> configs.Contradictions:
        """Yield what fields say against each other."""
        yield from super().contradictions()
        if self.is_paired:
            yield "columns names two; Contrastive Tension makes its pairs itself: name one, or none"

    @property
    def rows(self) -> configs.TrainingRows:
        """Each sentence with itself, and, for random negatives, pairs of different ones."""
        if self.negatives == "in_batch":
            return configs.TrainingRows(text=self.text)
        made = configs.RandomNegatives(n_negatives=self.n_negatives)
        return configs.TrainingRows(text=self.text, made=made, per_text=1 + self.n_negatives)

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Make the loss with the second copy."""
        from transencoder.losses import ContrastiveTensionLoss, InBatchContrastiveTensionLoss

        return (InBatchContrastiveTensionLoss if self.negatives == "in_batch" else ContrastiveTensionLoss)(student)

    def cost(self, width: int, dimension: int | None) -> configs.Cost:
        """Return the cost of both copies; a step takes one of each pair through either."""
        return configs.Cost(n_encoders=2)

    def candidates(self, loss: nn.Module) -> tuple[SentenceTransformer, ...]:
        """Return the second copy, which is kept where it does better on dev."""
        return (loss.twin,)  # type: ignore[return-value]
