"""DeCLUTR (Giorgi et al., ACL 2021): a span of a document finds those near it, and guesses its masked words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transencoder import configs

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class DeCLUTR(configs.EncoderConfig):
    """DeCLUTR: spans of one document that lie near each other mean alike."""

    about = (
        "Spans are drawn from each document; a span must find the spans near it among those of other places "
        "and documents, and guess its own masked words (DeCLUTR)."
    )
    inputs = ("documents",)
    reads_whole_texts = False

    documents: str | Dataset = configs.source()
    """Unlabelled documents: a TXT (one a line), TSV, CSV, JSONL or Parquet file, `-`, or a hub id."""
    pooling: configs.Pooling | None = "mean"
    """Pooling in training and at test (paper: mean). None: the base model's own."""
    document_words: int = 2048
    """Words that every document must have; two or three characters are one where a script sets no spaces. The longest
    span has `document_words / (2 n_anchors)` tokens, the shortest a sixteenth of that (paper: 2048, so 512 and 32).
    Paper: so many tokens, and thus some shorter documents too. For small corpora: 128."""
    n_anchors: int = 2
    """Anchors a document (paper, section 4.1: 2)."""
    n_positives: int = 2
    """Positives an anchor, whose embeddings are averaged (paper: 2)."""
    relation: configs.Relation = "any"
    """Where positives lie: anywhere within reach of the anchor, right beside it, or inside it (paper: any)."""
    n_samples: int = 1
    """Times that each document is drawn from. Paper: 1; more for small corpora."""
    temperature: float = configs.above_zero(0.05, ", the paper's is 0.05")
    """Of the softmax over cosines, above 0 (paper)."""
    mask_ratio: float = configs.share(0.15, " of the tokens")
    """Share of the anchors' tokens to guess (paper); 0: none, and the base model needs no language-modelling head."""
    fit: configs.FitConfig = (
        configs.fit_defaults(  # the released code's, but for AdamW's epsilon (1e-6) and bias correction (none)
            learning_rate=(5e-5, "Peak learning rate of AdamW (paper, section 4.1)."),
            batch_size=(4, "Documents a step and device. Paper: 16 on four GPUs, so 4."),
            epochs=(1, "Passes over the documents. Paper: 1, small 3."),
            max_length=(512, "Tokens of a span; the rest is cut off."),
            warmup_ratio=(0.1, "Share of the steps with rising rate (paper: slanted triangles, a tenth)."),
            weight_decay=(0.1, "AdamW weight decay, not on biases and LayerNorm (paper)."),
            bucket_batches=(
                1,
                "Batches in a window that is sorted by length. 1, since a batch's other spans are the negatives.",
            ),
        )
    )
    """How the encoder is trained."""

    def contradictions(self) -> configs.Contradictions:
        """Yield what fields say against each other."""
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
        yield from self.spans.contradictions()  # which refuses numbers that make no spans

    @property
    def spans(self) -> configs.SpanRows:
        """The spans that are drawn from each document."""
        return configs.SpanRows(
            document_words=self.document_words,
            n_anchors=self.n_anchors,
            n_positives=self.n_positives,
            relation=self.relation,
            n_samples=self.n_samples,
        )

    @property
    def rows(self) -> configs.TrainingRows:
        """Several spans of a document a row, their length by words against the 32 tokens a pair is reckoned with."""
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
        """The head that guesses masked words."""
        return (configs.Helper(field="start", form="head", otherwise="mask_ratio 0"),) if self.mask_ratio else ()

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Make the contrast between spans, and the masked words of the anchors."""
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
