"""DvBERT (Cheng, SIGIR 2021): a bi-encoder from labelled pairs and from cross-encoders that learned them first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from transencoder import configs

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn

_FIT: dict[str, configs.Default] = {
    "learning_rate": (2e-5, "Peak learning rate of AdamW (paper: Adam)."),
    "batch_size": (16, "Pairs a step and device (paper)."),
    "epochs": (1, "Passes over the pairs (paper: 1 of NLI, 4 of STS-B)."),
    "max_length": (
        128,
        "Tokens of a sentence; of a pair for the cross-encoders. The paper does not say; SBERT: 128.",
    ),
    "warmup_ratio": (0.1, "Share of the steps with rising rate (paper)."),
}
"""The paper's values (section 3.2), of bi- and cross-encoders."""


@dataclass(frozen=True, kw_only=True)
class DvBERT(configs.EncoderConfig):
    """A bi-encoder from labelled pairs, alone (SBERT) or with cross-encoders as teachers (DvBERT)."""

    about = "A bi-encoder learns labelled pairs (SBERT)."
    inputs = (
        *("labelled", "more_labelled", "label_column", "score_range", "n_labelled"),
        *("teacher", "cross", "new_head"),
    )

    labelled: str | Dataset = configs.source()
    """Labelled pairs: a TSV, CSV, JSONL or Parquet file, a hub id, `id:config` too, or a task, whose train split it is.
    With classes (a column `label`, by name or number) or with scores (a column `score`)."""
    more_labelled: tuple[str, ...] = ()
    """More such sources, with the same classes or scores: SNLI and MultiNLI. A hub id may name its split, such as
    `stanfordnlp/snli[test]`: the paper trains on SNLI's and MultiNLI's tests too, which are no tests then."""
    label_kind: Literal["classes", "scores"] = "classes"
    """`classes`: softmax(W [u, v, |u - v|]), W in training only; `scores`: the cosine, by squared error (section 3.4).
    """
    class_names: tuple[str, ...] = ()
    """The classes in the order of their numbers; empty: what the data set says, else what occurs, in order."""
    label_column: str | None = None
    """Name of the column of classes or scores; None: `label`, `labels` or `gold_label`, or `score`."""
    score_range: tuple[float, ...] = configs.rising_pair(0.0, 1.0)
    """Lowest and highest score of files, which become 0 and 1: `0 5` of STS."""
    n_labelled: int | None = configs.at_least(1, None)
    """Train on so many of the labelled pairs, drawn with the seed; None: on all."""
    teacher: tuple[str, ...] = ()
    """Cross-encoders that teach: pretrained models, which learn the labels first, or cross-encoders that have learned
    such labels already. Paper: BERT and RoBERTa. None: SBERT."""
    new_head: bool = False
    """Give the teachers a new head and let them learn the labels, whatever they had learned before: NLI, then STS-B."""
    soft_share: float | None = configs.between(0, 1, None, "it is a weight, 0 to 1")
    """With teachers: fixed weight of their losses, 0 to 1, beside 1 less it of the loss to gold (Figure 3); None: the
    share of gold in the targets grows in a line from 0 to 1 (teacher annealing, section 2.3)."""
    pooling: configs.Pooling | None = "mean"
    """Pooling in training and at test (paper: mean). None: the base model's own."""
    fit: configs.FitConfig = configs.fit_defaults(_FIT)
    """How the bi-encoder is trained."""
    cross: configs.FitConfig = configs.fit_defaults(_FIT)
    """How the teachers are trained."""

    def contradictions(self) -> configs.Contradictions:
        """Yield what fields say against each other."""
        yield from super().contradictions()
        yield from self.cross.of_bi_encoders("cross")
        if len(self.columns) == 1:
            yield f"columns names {len(self.columns)} column; labelled pairs have two of text"
        if self.label_kind == "scores" and self.class_names:
            yield "class_names are of classes, and label_kind is scores; leave one of them out"
        if self.label_kind == "classes" and self.score_range != (0.0, 1.0):
            yield "score_range is of scores, and label_kind is classes; leave one of them out"
        if self.label_kind == "scores" and self.fit.head_learning_rate is not None:
            yield (
                f"fit.head_learning_rate is {self.fit.head_learning_rate}, and scores are learned without a "
                "classifier; leave it out"
            )
        if self.soft_share is not None and not self.teacher:
            yield "soft_share is the weight of teachers; give a teacher, or leave it out"
        if self.new_head and not self.teacher:
            yield "new_head is of teachers; give a teacher, or leave it out"
        if self.prune_vocabulary:
            yield "prune_vocabulary is for unlabelled text; leave it out"

    def with_lengths(self, text: int, pair: int) -> Self:
        """Return it with so many tokens that the bi-encoder reads of a text, and the teachers of a pair."""
        return replace(super().with_lengths(text, pair), cross=replace(self.cross, max_length=pair))

    @property
    def description(self) -> str:
        """What is learned, with or without teachers."""
        if not self.teacher:
            return self.about
        how = "whose share of each target grows" if self.soft_share is None else "with a weight of their own"
        return (
            "Cross-encoders learn labelled pairs, and a bi-encoder learns from them and from the labels, "
            f"{how} (DvBERT)."
        )

    @property
    def is_paired(self) -> bool:
        """Whether rows are pairs: labelled ones are."""
        return True

    @property
    def rows(self) -> configs.TrainingRows:
        """The labelled pairs, and what else labels them."""
        labels = configs.LabelledRows(
            kind=self.label_kind,
            sources=(self.labelled, *self.more_labelled),
            class_names=self.class_names,
            classes_field="class_names",
            column=self.label_column,
            score_range=self.score_range,
            n_rows=self.n_labelled,
            teachers=self.teacher,
            teachers_fit=self.cross,
            new_head=self.new_head,
        )
        return configs.TrainingRows(
            text=configs.Text(source=self.labelled, columns=self.columns, is_paired=True, labels=labels)
        )

    def loss(self, student: SentenceTransformer, given: configs.Given) -> nn.Module:
        """Make the divergence of classes, or the squared error of cosines, from gold and the teachers."""
        from transencoder.losses import CosineRegressionLoss, DualViewLoss

        if self.label_kind == "classes":
            return DualViewLoss(student, len(self.class_names), soft_share=self.soft_share)
        return CosineRegressionLoss(student, soft_share=self.soft_share)
