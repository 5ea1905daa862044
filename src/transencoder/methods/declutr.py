"""DeCLUTR (Giorgi et al., ACL 2021): a span of a document finds those near it, and guesses its masked words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from transencoder.configs.choices import Pooling
from transencoder.configs.encoder import EncoderConfig
from transencoder.configs.fit import FitConfig, fit_defaults
from transencoder.configs.parts import Given, Helper, Text, TrainingRows
from transencoder.configs.ranges import Contradictions, above_zero, share
from transencoder.errors import InputError
from transencoder.scripts import split_words

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from transencoder.views import Spans


@dataclass(frozen=True, kw_only=True)
class DeCLUTR(EncoderConfig):
    """DeCLUTR: spans of one document that lie near each other mean alike."""

    about = (
        "Spans of words are drawn from each document; a span must find the spans near it among those of other places "
        "and documents, and guess its own masked words (DeCLUTR)."
    )
    inputs: ClassVar[tuple[str, ...]] = ("documents",)

    documents: str | Dataset
    """Unlabelled documents: a TXT (one a line), TSV, CSV, JSONL or Parquet file, `-`, or a hub id."""
    pooling: Pooling | None = "mean"
    """Pooling in training and at test (paper: mean). None: the start's own."""
    document_words: int = 2048
    """Words that every document must have; two or three characters are one where a script sets no spaces. The longest
    span has `document_words / (2 n_anchors)` of them, the shortest a sixteenth of that (paper: 2048, so 512 and 32).
    For small corpora: 128."""
    n_anchors: int = 2
    """Anchors a document (paper, section 4.1: 2)."""
    n_positives: int = 2
    """Positives an anchor, whose embeddings are averaged (paper: 2)."""
    relation: Literal["any", "adjacent", "subsumed"] = "any"
    """Where positives lie: anywhere within reach of the anchor, right beside it, or inside it (paper: any)."""
    n_samples: int = 1
    """Times that each document is drawn from. Paper: 1; more for small corpora."""
    temperature: float = above_zero(0.05, ", the paper's is 0.05")
    """Of the softmax over cosines, above 0 (paper)."""
    mask_ratio: float = share(0.15, " of the tokens")
    """Share of the anchors' tokens to guess (paper); 0: none, and the start needs no language-modelling head."""
    fit: FitConfig = fit_defaults(  # the released code's, but for AdamW's epsilon (1e-6) and bias correction (none)
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
    """How the encoder is trained."""

    def contradictions(self) -> Contradictions:
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
        self._spans()  # which refuses numbers that make no spans

    @property
    def rows(self) -> TrainingRows:
        """Several spans of a document a row, their length by words against the 32 tokens a pair is reckoned with."""
        spans = self._spans()
        return TrainingRows(
            text=Text(
                source=self.documents,
                kind="documents",
                columns=self.columns,
                least_rows=1 if self.n_samples > 1 else 2,
                usable=self._long_enough,
            ),
            made=self._spans,
            per_text=self.n_samples,
            name="row",
            relative_length=spans.n_columns * (spans.longest + spans.shortest) / 2 / 32,
        )

    @property
    def helpers(self) -> tuple[Helper, ...]:
        """The head that guesses masked words."""
        return (Helper(field="start", form="head", otherwise="mask_ratio 0"),) if self.mask_ratio else ()

    def loss(self, student: SentenceTransformer, given: Given) -> nn.Module:
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

    def _spans(self) -> Spans:
        from transencoder.views import Spans

        names = ("document_words", "n_anchors", "n_positives", "relation", "n_samples")
        return Spans(**{name: getattr(self, name) for name in names})

    def _long_enough(self, texts: Dataset) -> Dataset:
        """Leave out the documents that are too short.

        Raises:
            InputError: Some are, and `skip_bad_rows` is off, or all are.
        """
        n_words = [
            len(split_words(text))
            for start in range(0, len(texts), 1024)
            for text in texts[start : start + 1024]["text"]
        ]
        short = [row for row, n in enumerate(n_words) if n < self.document_words]
        if short and (not self.skip_bad_rows or len(short) == len(texts)):
            raise InputError(
                f"{len(short)} of {len(texts)} documents have fewer than document_words, {self.document_words}; the "
                f"first is document {short[0] + 1}, with {n_words[short[0]]}, the shortest has {min(n_words)}. Give "
                "longer documents, a smaller document_words (spans shrink with it), or skip_bad_rows, which leaves "
                "these out"
            )
        return texts.select([row for row, n in enumerate(n_words) if n >= self.document_words]) if short else texts
