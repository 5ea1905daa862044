"""DvBERT (Cheng, SIGIR 2021): a bi-encoder from labelled pairs and from cross-encoders that learned them first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self

from transencoder.config import FitConfig, Pooling, Texts
from transencoder.errors import InputError
from transencoder.methods.checks import check_score_range
from transencoder.methods.start import StartMethod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class DvBERTFit(FitConfig):
    """How bi- and cross-encoders learn labels: the paper's values (section 3.2), for STS-B 4 epochs."""

    learning_rate: float | None = 2e-5
    """Peak learning rate of AdamW (paper: Adam)."""
    batch_size: int | None = 16
    """Pairs a step and device (paper)."""
    epochs: int | None = 1
    """Passes over the pairs (paper: 1 of NLI, 4 of STS-B)."""
    max_length: int | None = 128
    """Tokens of a sentence; of a pair for the cross-encoders. The paper does not say; SBERT: 128."""
    warmup_ratio: float | None = 0.1
    """Share of the steps with rising rate (paper)."""


@dataclass(frozen=True, kw_only=True)
class DvBERT(StartMethod):
    """A bi-encoder from labelled pairs, alone (SBERT) or with cross-encoders as teachers (DvBERT)."""

    about = "A bi-encoder learns labelled pairs (SBERT)."

    labelled: str | Dataset
    """Labelled pairs: a TSV, CSV, JSONL or Parquet file, a hub id, `id:config` too, or a task, whose train split it is.
    With classes (a column `label`, by name or number) or with scores (a column `score`)."""
    more_labelled: tuple[str, ...] = ()
    """More such sources, with the same classes or scores: SNLI and MultiNLI."""
    label_kind: Literal["classes", "scores"] = "classes"
    """`classes`: softmax(W [u, v, |u - v|]), W in training only; `scores`: the cosine, by squared error (section 3.4).
    """
    class_names: tuple[str, ...] = ()
    """The classes in the order of their numbers; empty: what the data set says, else what occurs, in order."""
    label_column: str | None = None
    """Name of the column of classes or scores; None: `label`, `labels` or `gold_label`, or `score`."""
    score_range: tuple[float, ...] = (0.0, 1.0)
    """Lowest and highest score of files, which become 0 and 1: `0 5` of STS."""
    n_labelled: int | None = None
    """Train on so many of the labelled pairs, drawn with the seed; None: on all."""
    teacher: tuple[str, ...] = ()
    """Cross-encoders that teach: pretrained models, which learn the labels first, or cross-encoders that have learned
    such labels already. Paper: BERT and RoBERTa. None: SBERT."""
    new_head: bool = False
    """Give the teachers a new head and let them learn the labels, whatever they had learned before: NLI, then STS-B."""
    soft_share: float | None = None
    """With teachers: fixed weight of their losses, 0 to 1, beside 1 less it of the loss to gold (Figure 3); None: the
    share of gold in the targets grows in a line from 0 to 1 (teacher annealing, section 2.3)."""
    pooling: Pooling | None = "mean"
    """Pooling in training and at test (paper: mean). None: the start's own."""
    fit: DvBERTFit = field(default_factory=DvBERTFit)
    """How the bi-encoder is trained."""
    cross: DvBERTFit = field(default_factory=DvBERTFit)
    """How the teachers are trained."""

    def __post_init__(self) -> None:
        """Refuse contradictions."""
        super().__post_init__()
        if self.columns and len(self.columns) != 2:
            raise InputError(f"columns names {len(self.columns)} column; labelled pairs have two of text")
        check_score_range(self.score_range)
        if self.label_kind == "scores" and self.class_names:
            raise InputError("class_names are of classes, and label_kind is scores; leave one of them out")
        if self.label_kind == "classes" and self.score_range != (0.0, 1.0):
            raise InputError("score_range is of scores, and label_kind is classes; leave one of them out")
        if self.soft_share is not None and not self.teacher:
            raise InputError("soft_share is the weight of teachers; give a teacher, or leave it out")
        if self.soft_share is not None and not 0.0 <= self.soft_share <= 1.0:
            raise InputError(f"soft_share is {self.soft_share}; it is a weight, 0 to 1")
        if self.new_head and not self.teacher:
            raise InputError("new_head is of teachers; give a teacher, or leave it out")
        if self.n_labelled is not None and self.n_labelled < 1:
            raise InputError(f"n_labelled is {self.n_labelled}; it must be at least 1")
        if self.prune_vocabulary:
            raise InputError("prune_vocabulary is for unlabelled text; leave it out")

    @property
    def account(self) -> str:
        """With or without teachers."""
        if not self.teacher:
            return self.about
        how = "whose share of each target grows" if self.soft_share is None else "with a weight of their own"
        return (
            "Cross-encoders learn labelled pairs, and a bi-encoder learns from them and from the labels, "
            f"{how} (DvBERT)."
        )

    @property
    def is_paired(self) -> bool:
        """Labelled rows are pairs."""
        return True

    @property
    def text(self) -> tuple[Texts, str | Dataset]:
        """The labelled pairs."""
        return "sentences", self.labelled

    @property
    def text_fields(self) -> tuple[str, ...]:
        """What is read, and how."""
        return ("labelled", "more_labelled", "label_column", "score_range", "n_labelled", "columns")

    @property
    def teacher_fields(self) -> tuple[str, ...]:
        """Which they are, and how they are trained: in their stages' keys."""
        return ("teacher", "cross", "new_head")

    @property
    def cross_teachers(self) -> tuple[str, ...]:
        """The teachers."""
        return self.teacher

    @property
    def classes(self) -> tuple[str, ...]:
        """By number."""
        return self.class_names

    def informed(self, classes: Sequence[str]) -> Self:
        """With the names of all classes."""
        return replace(self, class_names=tuple(classes))

    def loss(self, student: SentenceTransformer) -> nn.Module:
        """Divergence of classes, or squared error of cosines, from gold and the teachers."""
        from transencoder.losses import CosineRegressionLoss, DualViewLoss

        if self.label_kind == "classes":
            return DualViewLoss(student, len(self.class_names), soft_share=self.soft_share)
        return CosineRegressionLoss(student, soft_share=self.soft_share)
