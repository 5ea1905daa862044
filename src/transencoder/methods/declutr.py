"""DeCLUTR (Giorgi et al., ACL 2021): contrastive learning of nearby spans, with masked language modelling."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from transencoder import configs

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class DeCLUTR(configs.SpanFields, configs.EncoderConfig):
    """DeCLUTR: contrastive learning of nearby spans of a document, with masked language modelling."""

    about = (
        "Spans are drawn from each document; a span must find the spans near it among those of other places "
        "and documents, and guess its own masked words (DeCLUTR)."
    )
    inputs = ("documents",)
    reads_whole_texts = False

    documents: str | Dataset = configs.source()
    """Unlabelled documents: a TXT (one per line), TSV, CSV, JSONL or Parquet file, `-` (stdin), or a hub id."""
    pooling: configs.Pooling | None = "mean"
    """Pooling in training and at test (paper: mean). None: the base model's own."""
    temperature: float = configs.above_zero(0.05, ", the paper's is 0.05")
    """Temperature of the softmax over cosines, above 0 (paper)."""
    mask_ratio: float = configs.share(0.15, " of the tokens")
    """Share of the anchors' tokens to predict (paper); 0: none, and the base model needs no language-modelling head."""
    fit: configs.FitConfig = configs.fit_defaults(  # released code, but for its AdamW (parity: `bert_adam`)
        learning_rate=(5e-5, "Peak learning rate of AdamW (paper, section 4.1)."),
        batch_size=(4, "Number of documents per step and device. Paper: 16 on four GPUs, so 4."),
        epochs=(1, "Number of passes over the documents. Paper: 1, small 3."),
        max_length=(512, "Maximum number of tokens of a span; the rest is cut off."),
        warmup_ratio=(0.1, "Share of the steps in which the learning rate rises (paper: slanted triangles, a tenth)."),
        weight_decay=(0.1, "AdamW weight decay, not on biases and LayerNorm (paper)."),
        bucket_batches=(
            1,
            "Number of batches in a window that is sorted by length. 1, since a batch's other spans are the negatives.",
        ),
    )
    """Training settings of the encoder."""

    def contradictions(self) -> configs.Contradictions:
        """Yield an error message for each contradiction between fields."""
        if len(self.columns) > 1:
            yield f"columns names {len(self.columns)} columns; documents have one"
        yield from super().contradictions()
        if self.exclude_test_sentences:
            yield "exclude_test_sentences is for sentences; documents are not searched for them"
        if self.mask_ratio and self.prune_vocabulary:
            yield (
                "prune_vocabulary would part the student from the head that guesses masked words; leave it out, or "
                "give mask_ratio 0"
            )
        yield from self.spans.contradictions()

    @property
    def spans(self) -> configs.SpanRows:
        """The spans that are drawn from each document."""
        return configs.SpanRows(**{each.name: getattr(self, each.name) for each in fields(configs.SpanFields)})

    @property
    def rows(self) -> configs.TrainingRows:
        """Rows of several spans of a document; their length is relative to the 32 tokens assumed for a pair."""
        spans = self.spans
        return configs.TrainingRows(
            text=configs.Text(
                source=self.documents,
                kind="documents",
                columns=self.columns,
                least_rows=1 if self.n_samples > 1 else 2,
                least_words=self.document_words,
            ),
            made=spans,
            per_text=self.n_samples,
            name="row",
            relative_length=spans.n_columns * (spans.longest + spans.shortest) / 2 / 32,
        )

    @property
    def helpers(self) -> tuple[configs.Helper, ...]:
        """The base model's language-modelling head, unless `mask_ratio` is 0."""
        return (configs.Helper(field="start", form="head", otherwise="mask_ratio 0"),) if self.mask_ratio else ()

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Build the contrastive loss between spans, with masked language modelling of the anchors."""
        from transencoder.losses import DeCLUTRLoss

        if not self.mask_ratio:
            return DeCLUTRLoss(student, self.n_positives, self.temperature)
        head, tokenizer = given.helpers["start"]
        return DeCLUTRLoss(
            student,
            self.n_positives,
            self.temperature,
            head=head,
            mask_token_id=tokenizer.mask_token_id,
            special_ids=tokenizer.all_special_ids,
            mask_ratio=self.mask_ratio,
        )
