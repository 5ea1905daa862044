"""Base configs of methods that train one bi-encoder, with text, views and teachers; settings by the encoder's size."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeVar

from transencoder.configs.fit import NEEDED, FitConfig
from transencoder.configs.ranges import Contradictions, Pooling, at_least, filled, source
from transencoder.configs.run import (
    EmbeddingTeacher,
    Given,
    Helper,
    MethodCost,
    Pipeline,
    RunConfig,
    SecondView,
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
    """Base config of methods that train a bi-encoder from a pretrained model and text.

    A method implements `rows` and `loss`. It overrides `description`, `distillation`, `helpers`, `cost`, `prepared` and
    `candidates` as needed.
    """

    pipeline: ClassVar[Pipeline] = "encoder"
    inputs: ClassVar[tuple[str, ...]] = ()
    """Names of the settings that refer to text and models. Stage keys contain their content instead of their value."""

    start: str
    """Base model: a folder, a hub id, or `minilm` (the packaged all-MiniLM-L6-v2)."""
    revision: str | None = None
    """Hub revision of `start`."""
    student_layers: tuple[int, ...] = ()
    """Layers of `start`, often the teacher, to keep in a smaller student, numbered from 0, such as 0 2 5; empty: all.
    """
    prune_vocabulary: bool = False
    """Whether to cut the vocabulary to the word pieces of the training text, special tokens and single characters."""
    pooling: Pooling | None = None
    """Pooling in training and at test; None: the base model's own, mean for a plain model."""
    test_length: int | None = at_least(1, None)
    """Maximum number of tokens per text in the final tests, also for the base model; None: as in training. Dev sets and
    `test_every_eval` always use the training length. SimCSE, DiffCSE and DCLR train at 32 and test at 512 (released
    code)."""
    fit: FitConfig = FitConfig()
    """Training settings of the encoder; each method has its paper's values as defaults and leaves no field empty."""
    columns: tuple[str, ...] = ()
    """Name of the text column; empty: `text`, `sentence`, else the only column with texts. For methods that train on
    sentences, two names are allowed: each row is then a pair, used as two views of the same meaning (pseudo-positives:
    Trans-Encoder, Table 9)."""

    def contradictions(self) -> Contradictions:
        """Yield an error message for each contradiction between fields."""
        yield from super().contradictions()
        if len(self.columns) > 2:
            yield f"columns names {len(self.columns)} columns; give one of sentences, or two of pairs"
        method = type(self)
        empty = [name for name in NEEDED if getattr(self.fit, name) is None and getattr(method.fit, name) is not None]
        if empty:
            yield (
                f"fit has no {' and no '.join(empty)}; give fit=dataclasses.replace({method.__name__}.fit, ...), which "
                "keeps the method's own values"
            )
        yield from self.fit.of_patience("fit", is_chosen=self.dev is not None)
        if self.fit.dropout == 0.0 and self.rows.need_dropout:
            yield "fit.dropout is 0, and then both views of a sentence are the same; leave it out"

    @property
    def needs_pooler(self) -> bool:
        """Whether the base model must have a pooler of its own."""
        return self.pooling == "pooler"

    def with_lengths(self, text: int, pair: int) -> Self:
        """Return a copy whose encoder reads at most `text` tokens of each text."""
        return replace(self, fit=replace(self.fit, max_length=text))

    @property
    def is_paired(self) -> bool:
        """Whether each row is a pair, used as two views of the same meaning."""
        return len(self.columns) == 2

    @property
    def description(self) -> str:
        """Description of the method with these settings, for reports."""
        return self.about

    @property
    @abstractmethod
    def rows(self) -> TrainingRows:
        """The training text, and how training rows are made from it."""

    @abstractmethod
    def loss(self, student: SentenceTransformer, given: Given) -> nn.Module:
        """Build the loss for a student from the given teacher and helpers, with any modules that it trains itself."""

    @property
    def distillation(self) -> EmbeddingTeacher | None:
        """The teacher whose embeddings of the rows are the labels of the loss; None by default."""
        return None

    @property
    def n_queued(self) -> int:
        """Number of rows left out of training, because the teacher's embeddings of them fill the queue at the start."""
        return 0 if self.distillation is None else self.distillation.n_queued

    @property
    def helpers(self) -> tuple[Helper, ...]:
        """The models that the loss needs besides the student; none by default."""
        return ()

    def cost(self, width: int, dimension: int | None) -> MethodCost:
        """Return the cost beyond training one encoder, from the embedding widths of the student and of a teacher."""
        return MethodCost()

    def prepared(self, n_parameters: int) -> Self:
        """Return the config with the paper's values for a student of this size, if they depend on the size.

        Args:
            n_parameters: Number of parameters of the student before its vocabulary is cut.
        """
        return self

    def candidates(self, loss: nn.Module) -> tuple[SentenceTransformer, ...]:
        """Return other encoders that the loss trains; one is kept if it scores better on dev. Empty by default."""
        return ()


@dataclass(frozen=True, kw_only=True)
class SentenceFields:
    """Settings of the text for methods that train on sentences."""

    sentences: str | Dataset = source()
    """Unlabelled sentences: a TXT (one per line), TSV, CSV, JSONL or Parquet file, `-` (stdin), or a hub id. With two
    `columns`: pairs, also from tasks."""
    n_sentences: int | None = at_least(1, None)
    """Number of sentences to train on, sampled with the seed; None: all."""


@dataclass(frozen=True, kw_only=True)
class SentenceEncoder(SentenceFields, EncoderConfig):
    """Base config of methods that train on sentences; by default, dropout makes two views of each sentence."""

    @property
    def description(self) -> str:
        """Description of the method, or of contrastive tuning if pairs are given."""
        if not self.is_paired:
            return self.about
        return (
            "The two texts of a pair are taken for views of one meaning: each must find its other one among those of "
            "the batch (contrastive tuning on pairs)."
        )

    @property
    def rows(self) -> TrainingRows:
        """Each sentence twice, or the given pairs."""
        return TrainingRows(text=self.text, need_dropout=not self.is_paired)

    @property
    def text(self) -> Text:
        """The sentences."""
        return Text(source=self.sentences, columns=self.columns, is_paired=self.is_paired, n_sentences=self.n_sentences)


@dataclass(frozen=True, kw_only=True)
class ViewEncoder(SentenceEncoder):
    """Base config of methods that train on two views of each sentence, either given or generated."""

    inputs: ClassVar[tuple[str, ...]] = ("views", "view_kind", "synonyms", "mlm")

    sentences: str | Dataset | None = source(None)
    """Unlabelled sentences, from which views are generated: a TXT (one per line), TSV, CSV, JSONL or Parquet file, `-`
    (stdin), or a hub id. Alternatively, give `views`."""
    views: str | Dataset | None = source(None)
    """Rows of two texts with the same meaning, such as two back-translations (paper): a TSV, CSV, JSONL or Parquet
    file, or a hub id. `transencoder views` writes such files."""
    view_kind: ViewKind = "as-is"
    """Kind of second view to generate from each of the `sentences`; `as-is`: dropout alone. SCT, Table 4: dropout,
    synonyms and a masked language model do worse than two back-translations."""
    synonyms: str | None = None
    """Source of the synonyms for view_kind `synonyms`: a file with lines word<TAB>synonym, or a folder with WordNet's
    data files."""
    mlm: str | None = None
    """Masked language model for view_kind `mlm`: a folder or a hub id; None: the base model."""

    def contradictions(self) -> Contradictions:
        """Yield an error message for each contradiction between fields."""
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
        """Whether the views are given, not generated."""
        return self.views is not None or super().is_paired

    @property
    def text(self) -> Text:
        """The sentences or the views."""
        source = self.sentences if self.views is None else self.views
        return replace(super().text, source=source)

    @property
    def rows(self) -> TrainingRows:
        """Each sentence and its second view, or the given views."""
        second = SecondView(kind=self.view_kind, synonyms=self.synonyms, model=self.mlm)
        return TrainingRows(text=self.text, made=second)


Projection = Literal["kept", "training", "auto"]


@dataclass(frozen=True, kw_only=True)
class TeacherFields:
    """Settings of the teacher for methods that distil from one."""

    inputs: ClassVar[tuple[str, ...]] = ("teacher", "teacher_pooling")

    teacher: str
    """Larger bi-encoder that the student learns from: a folder, a run, a hub id or `minilm`. Its embeddings of the
    texts are computed once; other runs on the same texts can reuse them (`reuse_from`)."""
    teacher_pooling: Pooling | None = None
    """Pooling of `teacher`; None: its own, mean for a plain model. Released SimCSE models are plain and need cls."""
    projection: Projection = "auto"
    """Linear layer from the student's width to the teacher's: `kept` as part of the student, whose embeddings then have
    the teacher's width; in `training` only; `auto`: in training if the widths differ, else none."""

    @property
    def distillation(self) -> EmbeddingTeacher:
        """The teacher, with the projection to its width."""
        return EmbeddingTeacher(
            model=self.teacher,
            pooling=self.teacher_pooling,
            projection="kept" if self.projection == "kept" else "training",
            is_always_projected=self.projection != "auto",
        )


@dataclass(frozen=True, kw_only=True)
class SentenceStudent(TeacherFields, SentenceEncoder):
    """Base config of methods that distil a teacher on single sentences; a row of two columns is two sentences."""

    @property
    def description(self) -> str:
        """Description of the method, the same for sentences and for rows of two columns."""
        return self.about

    @property
    def rows(self) -> TrainingRows:
        """Each sentence by itself, which has half the length of a pair."""
        rows = TrainingRows(text=self.text, made=None)
        return rows if self.is_paired else replace(rows, name="sentence", relative_length=0.5)


EncoderConfigT = TypeVar("EncoderConfigT", bound=EncoderConfig)


def fill_by_size(
    config: EncoderConfigT, table: Mapping[float, Mapping[str, float | None]], n_parameters: int
) -> EncoderConfigT:
    """Return the config with its None fields and, if it is None, `fit.learning_rate` filled from a paper's table.

    Args:
        config: Config of a method for encoders of any size.
        table: Number of parameters of an encoder, embeddings included -> setting -> value.
        n_parameters: Number of parameters of the encoder. The row with the nearest ratio is used: 20M is nearer to 29M
            than to 11M.
    """
    row = table[min(table, key=lambda size: abs(math.log(size / n_parameters)))]
    own = {name: value for name, value in row.items() if name != "learning_rate"}
    fit = filled(config.fit, {"learning_rate": row["learning_rate"]})
    return replace(filled(config, own), fit=fit)


def width_of(student: SentenceTransformer) -> int:
    """Return the width of an encoder's embeddings."""
    width = student.get_embedding_dimension()
    assert width is not None, "every model here has embeddings of one size"
    return width


def training_projector(teacher: EmbeddingTeacher, student: SentenceTransformer, given: Given) -> nn.Module | None:
    """Build the projection from the student's width to the teacher's that is used in training only; None if unused."""
    from torch import nn

    width, dimension = width_of(student), given.dimension
    assert dimension is not None, "the engine gives it where there is a teacher"
    if not teacher.has("training", width, dimension):
        return None
    linear = nn.Linear(width, dimension)
    return nn.Sequential(linear, nn.Tanh()) if teacher.has_tanh else linear
