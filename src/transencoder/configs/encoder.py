"""What the configs of single encoders have: sentences, views, a teacher, values by size, and what a method fills in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeVar

from transencoder.configs.fit import FitConfig
from transencoder.configs.ranges import Contradictions, Pooling, at_least, filled, source
from transencoder.configs.run import (
    Cost,
    Given,
    Helper,
    Pipeline,
    RunConfig,
    SecondView,
    Teacher,
    Text,
    TrainingRows,
    ViewKind,
)

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
    """Pooling in training and at test; None: the base model's own, mean for a plain model."""
    test_length: int | None = at_least(1, None)
    """Tokens of a text in the final tests, of the base model too; None: as in training, which dev sets and
    `test_every_eval` always are. SimCSE, DiffCSE and DCLR train at 32 and test at 512 (released code)."""
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
        if empty:
            yield (
                f"fit has no {' and no '.join(empty)}; give fit=dataclasses.replace({method.__name__}.fit, ...), which "
                "keeps the method's own values"
            )
        if self.fit.patience_epochs is not None and self.dev is None:
            yield f"fit.patience_epochs is {self.fit.patience_epochs}, and nothing chooses a checkpoint; give dev too"
        if self.fit.dropout == 0.0 and self.rows.need_dropout:
            yield "fit.dropout is 0, and then both views of a sentence are the same; leave it out"

    @property
    def needs_pooler(self) -> bool:
        """Whether the base model must have a pooler of its own."""
        return self.pooling == "pooler"

    def with_lengths(self, text: int, pair: int) -> Self:
        """Return it with so many tokens that its encoder reads of a text."""
        return replace(self, fit=replace(self.fit, max_length=text))

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
        """Make the loss for a student, with what it trains besides, of the teacher and the helpers that are given."""

    @property
    def distillation(self) -> Teacher | None:
        """The model whose embeddings of the rows the loss is given as labels; usually none."""
        return None

    @property
    def helpers(self) -> tuple[Helper, ...]:
        """The models that the loss needs besides the student; usually none."""
        return ()

    def cost(self, width: int, dimension: int | None) -> Cost:
        """Return what it costs beyond one encoder's training, by the width of its embeddings and of a teacher's."""
        return Cost()

    def prepared(self, n_parameters: int) -> Self:
        """Return the config with its paper's values for a student of this size, where it has several.

        Args:
            n_parameters: Of the student, before its vocabulary is cut.
        """
        return self

    def candidates(self, loss: nn.Module) -> tuple[SentenceTransformer, ...]:
        """Return other encoders that the loss trains, one of which is kept if it does better on dev; usually none."""
        return ()


_NEEDED = ("learning_rate", "batch_size", "epochs", "max_length", "warmup_ratio")


@dataclass(frozen=True, kw_only=True)
class SentenceFields:
    """What methods of sentences are given besides the base model."""

    sentences: str | Dataset = source()
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


@dataclass(frozen=True, kw_only=True)
class ViewEncoder(SentenceEncoder):
    """A bi-encoder from two views of each sentence, given or made."""

    inputs: ClassVar[tuple[str, ...]] = ("views", "view_kind", "synonyms", "mlm")

    sentences: str | Dataset | None = source(None)
    """Unlabelled sentences, of which views are made: a TXT (one a line), TSV, CSV, JSONL or Parquet file, `-`, or a hub
    id. Or give `views`."""
    views: str | Dataset | None = source(None)
    """Two texts of one meaning a row, such as two back-translations (paper): a TSV, CSV, JSONL or Parquet file, a hub
    id. `transencoder views` writes such files."""
    view_kind: ViewKind = "as-is"
    """What makes the second view of `sentences`; `as-is`: dropout alone. SCT, Table 4: dropout, synonyms and a masked
    language model do worse than two back-translations."""
    synonyms: str | None = None
    """For `synonyms`: a file of lines word<TAB>synonym, or a folder of WordNet's data files."""
    mlm: str | None = None
    """For `mlm`: the masked language model, a folder or a hub id; None: the base model."""

    def contradictions(self) -> Contradictions:
        """Yield what fields say against each other."""
        kind = self.view_kind
        if (self.sentences is None) == (self.views is None):
            yield "give either sentences, of which views are made (--sentences), or views, two texts a row (--views)"
        yield from super().contradictions()
        if self.views is not None and len(self.columns) == 1:
            yield f"columns is {' '.join(self.columns)}, but views have two; name both, or leave columns out"
        if self.is_paired and kind != "as-is":
            yield f"view_kind is {kind}, but the views are given; leave it out, or give sentences"
        if kind == "synonyms" and self.synonyms is None:
            yield "view_kind is synonyms; give synonyms, a file of words and synonyms or WordNet's folder"
        for name in ("synonyms", "mlm"):
            if getattr(self, name) is not None and kind != name:
                yield f"{name} is for view_kind {name}, which is {kind}; leave one of them out"
        if self.prune_vocabulary and kind in ("synonyms", "mlm"):
            yield (
                f"prune_vocabulary keeps the words of the text, and view_kind {kind} writes others; leave one of them "
                "out"
            )

    @property
    def is_paired(self) -> bool:
        """Whether the views are given."""
        return self.views is not None or super().is_paired

    @property
    def text(self) -> Text:
        """The sentences or the views."""
        source = self.sentences if self.views is None else self.views
        return replace(super().text, source=source)

    @property
    def rows(self) -> TrainingRows:
        """The sentence, and its view."""
        second = SecondView(kind=self.view_kind, synonyms=self.synonyms, model=self.mlm)
        return TrainingRows(text=self.text, made=second)


Projection = Literal["kept", "training", "auto"]


@dataclass(frozen=True, kw_only=True)
class TeacherFields:
    """What methods with a teacher are given besides the base model and the text."""

    inputs: ClassVar[tuple[str, ...]] = ("teacher", "teacher_pooling")

    teacher: str
    """A larger bi-encoder: a folder, a run, a hub id or `minilm`. Its embeddings of the texts are computed once; runs
    on the same texts can take them from each other (`reuse_from`)."""
    teacher_pooling: Pooling | None = None
    """Pooling of `teacher`; None: its own, mean for a plain model, as released SimCSE models are, which want cls."""
    projection: Projection = "auto"
    """A linear layer from the student's width to the teacher's: `kept`, a part of the student, whose embeddings are
    then of the teacher's width; in `training` only; `auto`: in training where the widths differ, else none."""

    @property
    def distillation(self) -> Teacher:
        """The teacher, and the projection to its width."""
        return Teacher(
            model=self.teacher,
            pooling=self.teacher_pooling,
            projection="kept" if self.projection == "kept" else "training",
            is_always_projected=self.projection != "auto",
        )


@dataclass(frozen=True, kw_only=True)
class SentenceStudent(TeacherFields, SentenceEncoder):
    """A method whose student learns each sentence by itself; a row of two columns is two sentences."""

    @property
    def description(self) -> str:
        """The same for sentences and for rows of two."""
        return self.about

    @property
    def rows(self) -> TrainingRows:
        """Each sentence alone, half as long as a pair."""
        rows = TrainingRows(text=self.text, made=None)
        return rows if self.is_paired else replace(rows, name="sentence", relative_length=0.5)


EncoderConfigT = TypeVar("EncoderConfigT", bound=EncoderConfig)


def fill_by_size(
    config: EncoderConfigT, table: Mapping[float, Mapping[str, float | None]], n_parameters: int
) -> EncoderConfigT:
    """Return the config with what is None in it, its fit's learning rate too, taken from a paper's table.

    Args:
        config: For an encoder of any size.
        table: The parameters of an encoder, embeddings included -> setting -> value.
        n_parameters: The encoder's. The nearest row is that by ratio: 20M lies nearer to 29M than to 11M.
    """
    row = table[min(table, key=lambda size: abs(math.log(size / n_parameters)))]
    own = {name: value for name, value in row.items() if name != "learning_rate"}
    fit = filled(config.fit, {"learning_rate": row["learning_rate"]})
    return replace(filled(config, own), fit=fit)


def width_of(student: SentenceTransformer) -> int:
    """Return how many numbers an encoder's embeddings have."""
    width = student.get_embedding_dimension()
    assert width is not None, "every model here has embeddings of one size"
    return width


def training_projector(teacher: Teacher, student: SentenceTransformer, given: Given) -> nn.Module | None:
    """Make the projection of training alone, from the student's width to the teacher's; None: there is none."""
    from torch import nn

    width, dimension = width_of(student), given.dimension
    assert dimension is not None, "the engine gives it where there is a teacher"
    if not teacher.has("training", width, dimension):
        return None
    linear = nn.Linear(width, dimension)
    return nn.Sequential(linear, nn.Tanh()) if teacher.has_tanh else linear
