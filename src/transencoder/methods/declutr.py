"""DeCLUTR (Giorgi et al., ACL 2021): a span of a document finds those near it, and guesses its masked words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from transencoder.config import FitConfig, Pooling, Texts
from transencoder.errors import InputError
from transencoder.methods.checks import check_temperature
from transencoder.methods.start import StartMethod
from transencoder.scripts import split_words

if TYPE_CHECKING:
    from pathlib import Path

    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from transencoder.views import Spans


@dataclass(frozen=True, kw_only=True)
class DeCLUTRFit(FitConfig):
    """How DeCLUTR trains: the released code's values, but for AdamW's epsilon (1e-6) and bias correction (none)."""

    learning_rate: float | None = 5e-5
    """Peak learning rate of AdamW (paper, section 4.1)."""
    batch_size: int | None = 4
    """Documents a step and device. Paper: 16 on four GPUs, so 4."""
    epochs: int | None = 1
    """Passes over the documents. Paper: 1, small 3."""
    max_length: int | None = 512
    """Tokens of a span; the rest is cut off."""
    warmup_ratio: float | None = 0.1
    """Share of the steps with rising rate (paper: slanted triangles, a tenth)."""
    weight_decay: float = 0.1
    """AdamW weight decay, not on biases and LayerNorm (paper)."""
    bucket_batches: int = 1
    """Batches in a window that is sorted by length. 1, since a batch's other spans are the negatives."""


@dataclass(frozen=True, kw_only=True)
class DeCLUTR(StartMethod):
    """DeCLUTR: spans of one document that lie near each other mean alike."""

    about = (
        "Spans of words are drawn from each document; a span must find the spans near it among those of other places "
        "and documents, and guess its own masked words (DeCLUTR)."
    )

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
    temperature: float = 0.05
    """Of the softmax over cosines, above 0 (paper)."""
    mask_ratio: float = 0.15
    """Share of the anchors' tokens to guess (paper); 0: none, and the start needs no language-modelling head."""
    fit: DeCLUTRFit = field(default_factory=DeCLUTRFit)
    """How the encoder is trained."""

    def __post_init__(self) -> None:
        """Refuse contradictions."""
        super().__post_init__()
        if len(self.columns) > 1:
            raise InputError(f"columns names {len(self.columns)} columns; documents have one")
        check_temperature(self.temperature, "the paper's is 0.05")
        if not 0.0 <= self.mask_ratio < 1.0:
            raise InputError(f"mask_ratio is {self.mask_ratio}; it is a share of the tokens, 0 to below 1")
        if self.exclude_test_sentences:
            raise InputError("exclude_test_sentences is for sentences; documents are not searched for them")
        self.pair_maker(None)

    @property
    def text(self) -> tuple[Texts, str | Dataset]:
        """The documents."""
        return "documents", self.documents

    def usable(self, texts: Dataset) -> Dataset:
        """The documents that are long enough.

        Raises:
            InputError: Some are not, and `skip_bad_rows` is off, or none is.
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

    @property
    def rows_per_text(self) -> int:
        """Rows of a document."""
        return self.n_samples

    @property
    def row_name(self) -> str:
        """A row has several spans."""
        return "row"

    @property
    def relative_length(self) -> float:
        """By words: a row's spans against the 32 tokens that a pair is reckoned with."""
        spans = self.pair_maker(None)
        return spans.n_columns * (spans.longest + spans.shortest) / 2 / 32

    def pair_maker(self, mask_token: str | None) -> Spans:
        """Spans of documents."""
        from transencoder.views import Spans

        names = ("document_words", "n_anchors", "n_positives", "relation", "n_samples")
        return Spans(**{name: getattr(self, name) for name in names})

    def check_start(self, folder: Path) -> None:
        """Refuse a start without a language-modelling head where words are masked."""
        from transencoder.encoders import load_masked

        if self.mask_ratio and self.prune_vocabulary:
            raise InputError(
                "prune_vocabulary would part the student from the head that guesses masked words; leave it out, or "
                "give mask_ratio 0"
            )
        if self.mask_ratio:
            try:
                load_masked(folder)
            except InputError as error:
                raise InputError(f"{error} as start, or mask_ratio 0") from error

    def loss(self, student: SentenceTransformer) -> nn.Module:
        """The contrast between spans, and the masked words of the anchors."""
        from transencoder.encoders import fetch, language_model_head
        from transencoder.losses import DeCLUTRLoss

        if not self.mask_ratio:
            return DeCLUTRLoss(student, self.n_positives, self.temperature)
        start = fetch(self.start, form="bi", revision=self.revision, token=self.token, cache_folder=self.cache_dir)
        head, tokenizer = language_model_head(start, student)
        return DeCLUTRLoss(
            student,
            self.n_positives,
            self.temperature,
            head=head,
            mask_token_id=tokenizer.mask_token_id,
            special_ids=tokenizer.all_special_ids,
            mask_ratio=self.mask_ratio,
        )
