"""DvBERT (Cheng, SIGIR 2021): a bi-encoder learns labelled pairs, and from cross-encoders that learned them first."""

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
    "batch_size": (16, "Number of pairs per step and device (paper)."),
    "epochs": (1, "Number of passes over the pairs (paper: 1 of NLI, 4 of STS-B)."),
    "max_length": (
        128,
        "Maximum number of tokens of a sentence; of a pair for the cross-encoders. The paper does not say; SBERT: 128.",
    ),
    "warmup_ratio": (0.1, "Share of the steps in which the learning rate rises (paper)."),
}
"""Training settings of the paper (section 3.2), for bi- and cross-encoders."""


@dataclass(frozen=True, kw_only=True)
class DvBERT(configs.EncoderConfig):
    """A bi-encoder trained on labelled pairs, alone (SBERT) or with cross-encoders as teachers (DvBERT)."""

    about = "A bi-encoder learns labelled pairs (SBERT)."
    inputs = (
        *("labelled", "more_labelled", "label_column", "score_range", "n_labelled"),
        *("teacher", "cross", "new_head"),
    )

    labelled: str | Dataset = configs.source()
    """Labelled pairs: a TSV, CSV, JSONL or Parquet file, a hub id (also `id:config`), or a task, whose train split is
    used. They have classes (column `label`, names or numbers) or scores (column `score`)."""
    more_labelled: tuple[str, ...] = ()
    """Further sources of labelled pairs with the same classes or scores, such as MultiNLI in addition to SNLI. A hub id
    may name its split, such as `stanfordnlp/snli[test]`: the paper also trains on the test sets of SNLI and MultiNLI,
    which then no longer serve as tests."""
    label_kind: Literal["classes", "scores"] = "classes"
    """Kind of the labels: `classes`, learned by softmax(W [u, v, |u - v|]) with W in training only, or `scores`,
    learned by the cosine with squared error (section 3.4)."""
    class_names: tuple[str, ...] = ()
    """Names of the classes in the order of their numbers; empty: the data set's own, else those that occur, sorted."""
    label_column: str | None = None
    """Name of the column of classes or scores; None: `label`, `labels` or `gold_label`, or `score`."""
    score_range: tuple[float, ...] = configs.score_range()
    """Lowest and highest score in files, which are mapped to 0 and 1: `0 5` for STS."""
    n_labelled: int | None = configs.at_least(1, None)
    """Number of labelled pairs to train on, sampled with the seed; None: all."""
    teacher: tuple[str, ...] = ()
    """Cross-encoders that are the teachers: pretrained models, which learn the labels first, or cross-encoders that
    have already learned such labels. Paper: BERT and RoBERTa. Without a teacher: SBERT."""
    new_head: bool = False
    """Whether to give the teachers a new head and train them on the labels, even if they have learned others before,
    such as NLI before STS-B."""
    soft_share: float | None = configs.between(0, 1, None, "it is a weight, 0 to 1")
    """Fixed weight of the teachers' losses, 0 to 1; the loss on gold labels has the rest, 1 minus this weight (Figure
    3). None: the share of gold in the targets grows linearly from 0 to 1 (teacher annealing, section 2.3)."""
    pooling: configs.Pooling | None = "mean"
    """Pooling in training and at test (paper: mean). None: the base model's own."""
    fit: configs.FitConfig = configs.fit_defaults(_FIT)
    """Training settings of the bi-encoder."""
    cross: configs.FitConfig = configs.fit_defaults(_FIT)
    """Training settings of the teachers."""

    def contradictions(self) -> configs.Contradictions:
        """Yield an error message for each contradiction between fields."""
        yield from super().contradictions()
        yield from self.cross.of_bi_encoders()
        is_chosen = self.dev is not None and self.label_kind == "scores"
        yield from self.cross.of_patience("cross", is_chosen=is_chosen, remedy="dev and labels that are scores")
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
        """Return a copy whose bi-encoder reads at most `text` tokens of a text, its teachers `pair` of a pair."""
        return replace(super().with_lengths(text, pair), cross=replace(self.cross, max_length=pair))

    @property
    def description(self) -> str:
        """Description of the method, with or without teachers."""
        if not self.teacher:
            return self.about
        how = "whose share of each target grows" if self.soft_share is None else "with a weight of their own"
        return (
            "Cross-encoders learn labelled pairs, and a bi-encoder learns from them and from the labels, "
            f"{how} (DvBERT)."
        )

    @property
    def is_paired(self) -> bool:
        """Whether each row is a pair; labelled rows always are."""
        return True

    @property
    def rows(self) -> configs.TrainingRows:
        """The labelled pairs, and the teachers that also label them."""
        labels = configs.LabelledRows(
            kind=self.label_kind,
            sources=(self.labelled, *self.more_labelled),
            class_names=self.class_names,
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
        """Build the loss on gold and the teachers' labels: divergence of classes, or squared error of cosines."""
        from transencoder.losses import CosineLoss, DualViewLoss

        if self.label_kind == "classes":
            return DualViewLoss(student, len(self.class_names), soft_share=self.soft_share)
        return CosineLoss(student, soft_share=self.soft_share)
