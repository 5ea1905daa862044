"""Contrastive Tension (Carlsson et al., ICLR 2021): contrastive learning between two copies of one encoder."""

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
    """Source of the negatives: random pairs of different sentences (paper), or the other sentences of the batch, with a
    learned temperature (sentence-transformers)."""
    n_negatives: int = configs.at_least(1, 7, ", the paper's is 7")
    """Number of random negative pairs for each sentence (paper: 7)."""
    fit: configs.FitConfig = configs.fit_defaults(
        learning_rate=(
            1e-5,
            "Peak learning rate. Released code: it falls from 1e-5 to 2e-6 in steps over 2,000 batches; here it "
            "falls linearly to 0.",
        ),
        batch_size=(
            16,
            "Number of pairs per step and device: 2 positive and 14 negative ones on average (released code).",
        ),
        epochs=(1, "Number of passes over the sentences. Released code: 5,000 batches, which take 10,000 sentences."),
        max_length=(75, "Maximum number of tokens of a sentence (released code)."),
        warmup_ratio=(0.0, "Share of the steps in which the learning rate rises (released code: none)."),
        dropout=(
            0.0,
            "Dropout probability in training. The official code trains without: the tension comes from the two "
            "copies. sentence-transformers: 0.1.",
        ),
        optimizer=(
            "rmsprop",
            "The official code: RMSProp (its decay rate 0.9, torch's 0.99). sentence-transformers: AdamW.",
        ),
        weight_decay=(0.0, "The official code has none; in RMSProp it would pull words that never occur towards 0."),
        max_grad_norm=(0.0, "Gradients are clipped to this norm; 0: not at all (official code)."),
        bucket_batches=(
            1,
            "Number of batches in a window that is sorted by length. More would separate positive pairs from negative "
            "ones, whose longer side is longer.",
        ),
    )
    """Training settings of the encoders."""

    def contradictions(self) -> configs.Contradictions:
        """Yield an error message for each contradiction between fields."""
        yield from super().contradictions()
        if self.is_paired:
            yield "columns names two; Contrastive Tension makes its pairs itself: name one, or none"

    @property
    def rows(self) -> configs.TrainingRows:
        """Each sentence paired with itself and, for random negatives, pairs of different sentences."""
        if self.negatives == "in_batch":
            return configs.TrainingRows(text=self.text)
        made = configs.RandomNegatives(n_negatives=self.n_negatives)
        return configs.TrainingRows(text=self.text, made=made, per_text=1 + self.n_negatives)

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Build the loss, which contains the second copy."""
        from transencoder.losses import ContrastiveTensionLoss, InBatchContrastiveTensionLoss

        return (InBatchContrastiveTensionLoss if self.negatives == "in_batch" else ContrastiveTensionLoss)(student)

    def cost(self, width: int, dimension: int | None) -> configs.MethodCost:
        """Return the cost of both copies; in a step, each copy encodes one sentence of each pair."""
        return configs.MethodCost(n_encoders=2)

    def candidates(self, loss: nn.Module) -> tuple[SentenceTransformer, ...]:
        """Return the second copy, which is kept if it scores better on dev."""
        return (loss.twin,)  # type: ignore[return-value]
