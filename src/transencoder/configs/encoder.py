"""What the configs of single encoders have, and the eight places that such a method fills in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from transencoder.configs.choices import Pooling
from transencoder.configs.fit import FitConfig
from transencoder.configs.parts import Cost, Given, Helper, Teacher, Text, TrainingRows
from transencoder.configs.ranges import Contradictions, at_least
from transencoder.configs.run import Pipeline, RunConfig

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(RunConfig, ABC):
    """A bi-encoder from a pretrained model and text.

    A method fills in `rows` and `loss`, and of the others what it needs: `description`, `distillation`, `helpers`,
    `cost`, `prepared`, `candidates`.
    """

    pipeline: ClassVar[Pipeline] = "encoder"
    inputs: ClassVar[tuple[str, ...]] = ()
    """A method's settings that say what is read: text and models. Stages' keys hold the content in their place."""

    start: str
    """The pretrained model: a folder, a hub id, or `minilm` (the packaged all-MiniLM-L6-v2)."""
    revision: str | None = None
    """Hub revision of `start`."""
    student_layers: tuple[int, ...] = ()
    """Train a smaller model that has these layers of `start`, often the teacher, from 0, such as 0 2 5; empty: all."""
    prune_vocabulary: bool = False
    """Train a model that knows only the word pieces of the training text, special tokens and single characters."""
    pooling: Pooling | None = None
    """Pooling in training and at test; None: the start's own, mean for a plain model."""
    fit: FitConfig = FitConfig()
    """How the encoder is trained; a method has its paper's values, and leaves no field empty."""
    columns: tuple[str, ...] = ()
    """Name of the text column; empty: `text`, `sentence`, else the first. Two names, for methods of sentences: the rows
    are pairs, which are taken for two views of one meaning (pseudo-positives: Trans-Encoder, Table 9)."""

    def contradictions(self) -> Contradictions:
        """Yield what fields say against each other."""
        yield from super().contradictions()
        if len(self.columns) > 2:
            yield f"columns names {len(self.columns)} columns; give one of sentences, or two of pairs"
        method = type(self)
        empty = [name for name in _NEEDED if getattr(self.fit, name) is None and getattr(method.fit, name) is not None]
        if bool(empty):
            yield (
                f"fit has no {' and no '.join(empty)}; give fit=dataclasses.replace({method.__name__}.fit, ...), which "
                "keeps the method's own values"
            )
        if self.fit.dropout == 0.0 and self.rows.need_dropout:
            yield "fit.dropout is 0, and then both views of a sentence are the same; leave it out"

    @property
    def is_paired(self) -> bool:
        """Whether the rows of text are pairs, taken for two views of one meaning."""
        return len(self.columns) == 2

    @property
    def description(self) -> str:
        """What the method does with these settings, for reports."""
        return self.about

    @property
    @abstractmethod
    def rows(self) -> TrainingRows:
        """The text, and what is made of it to train on."""

    @abstractmethod
    def loss(self, student: SentenceTransformer, given: Given) -> nn.Module:
        """Make the loss, with what it trains besides the student.

        Args:
            student: The encoder to train.
            given: What is known of the teacher, and the helpers.
        """

    @property
    def distillation(self) -> Teacher | None:
        """The model whose embeddings of the rows the loss is given as labels; usually none."""
        return None

    @property
    def helpers(self) -> tuple[Helper, ...]:
        """The models that the loss needs besides the student; usually none."""
        return ()

    def cost(self, width: int, dimension: int | None) -> Cost:
        """Return what the method costs beyond one encoder's training.

        Args:
            width: Of the student's embeddings.
            dimension: Of the teacher's, where there is one.
        """
        return Cost()

    def prepared(self, n_parameters: int, n_processes: int) -> Self:
        """Return the config with its paper's values for a student of this size, where it has several.

        Args:
            n_parameters: Of the student, before its vocabulary is cut.
            n_processes: That train it together.

        Raises:
            InputError: A setting that does not fit such a student or so many processes.
        """
        return self

    def candidates(self, loss: nn.Module) -> tuple[SentenceTransformer, ...]:
        """Return other encoders that the loss trains, one of which is kept if it does better on dev; usually none."""
        return ()


_NEEDED = ("learning_rate", "batch_size", "epochs", "max_length", "warmup_ratio")


@dataclass(frozen=True, kw_only=True)
class SentenceFields:
    """What methods of sentences are given besides the base model."""

    sentences: str | Dataset
    """Unlabelled sentences: a TXT (one a line), TSV, CSV, JSONL or Parquet file, `-`, or a hub id. With two `columns`:
    pairs, also of tasks."""
    n_sentences: int | None = at_least(1, None)
    """Train on so many of them, drawn with the seed; None: on all."""


@dataclass(frozen=True, kw_only=True)
class SentenceEncoder(SentenceFields, EncoderConfig):
    """A bi-encoder from sentences: each twice, dropout making two views of it, unless a method says otherwise."""

    @property
    def description(self) -> str:
        """What the method does, or what comes of it on pairs that are given."""
        if not self.is_paired:
            return self.about
        return (
            "The two texts of a pair are taken for views of one meaning: each must find its other one among those of "
            "the batch (contrastive tuning on pairs)."
        )

    @property
    def rows(self) -> TrainingRows:
        """Each sentence twice."""
        return TrainingRows(text=self.text, need_dropout=not self.is_paired)

    @property
    def text(self) -> Text:
        """The sentences."""
        return Text(source=self.sentences, columns=self.columns, is_paired=self.is_paired, n_sentences=self.n_sentences)
