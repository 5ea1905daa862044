"""What the configs of starting encoders have: unlabelled sentences, a pretrained model, two views and a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from transencoder.config import FitConfig, Pooling, Texts
from transencoder.errors import InputError
from transencoder.methods.method import Method

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import Tensor, nn

    from transencoder.views import PairMaker


@dataclass(frozen=True, kw_only=True)
class StartMethod(Method, ABC):
    """A bi-encoder from a pretrained model and unlabelled text."""

    pipeline = "encoder"

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
    fit: FitConfig = field(default_factory=FitConfig)
    """How the encoder is trained; a method has its paper's values, and leaves no field empty."""
    columns: tuple[str, ...] = ()
    """Name of the text column; empty: `text`, `sentence`, else the first. Two names, for methods of sentences: the rows
    are pairs, which are taken for two views of one meaning (pseudo-positives: Trans-Encoder, Table 9)."""

    def __post_init__(self) -> None:
        """Refuse contradictions, naming the field as the user typed it."""
        super().__post_init__()
        if len(self.columns) > 2:
            raise InputError(f"columns names {len(self.columns)} columns; give one of sentences, or two of pairs")

    @property
    def is_paired(self) -> bool:
        """Whether the rows of text are pairs, taken for two views of one meaning."""
        return len(self.columns) == 2

    @property
    def account(self) -> str:
        """What the method does with these settings, for reports."""
        if not self.is_paired:
            return self.about
        return (
            "The two texts of a pair are taken for views of one meaning: each must find its other one among those of "
            "the batch (contrastive tuning on pairs)."
        )

    @property
    @abstractmethod
    def text(self) -> tuple[Texts, str | Dataset]:
        """What the rows of text are, and where they come from."""

    def usable(self, texts: Dataset) -> Dataset:
        """The texts that can be trained on, checked before anything is; usually all.

        Args:
            texts: Rows of `text`, as they were read.

        Raises:
            InputError: One cannot, and bad rows are not to be skipped.
        """
        return texts

    def check_start(self, folder: Path) -> None:
        """Refuse a start that the method cannot use, before the text is read; usually any will do.

        Args:
            folder: The start.

        Raises:
            InputError: It cannot.
        """

    @property
    def text_fields(self) -> tuple[str, ...]:
        """Fields that say which texts are trained on, and nothing else."""
        return (self.text[0],)

    def filled(self, folder: Path) -> Self:
        """With the paper's values for a start of this size where it has several; usually as it is.

        Args:
            folder: The start.
        """
        return self

    def n_parameters(self, folder: Path) -> int:
        """Of the student, before its vocabulary is cut.

        Args:
            folder: The start.
        """
        from transencoder.encoders import count_parameters

        return count_parameters(folder, self.student_layers)

    @property
    def helpers(self) -> tuple[str, ...]:
        """Fields that name the models that the loss needs besides the start."""
        return ()

    def fetch_helper(self, field: str) -> Path:
        """The local folder of a helper.

        Args:
            field: One of `helpers`.
        """
        from transencoder.encoders import fetch

        return fetch(getattr(self, field), form="bi", token=self.token, cache_folder=self.cache_dir)

    @property
    def rows_per_text(self) -> int:
        """Rows to train on that are made of one text."""
        return 1

    @property
    def row_name(self) -> str:
        """What a row to train on is called."""
        return "pair"

    @property
    def relative_length(self) -> float:
        """Tokens of a row, those of a pair of sentences being 1."""
        return 1.0

    @property
    def relative_cost(self) -> float:
        """Floating-point operations of a step, the student's alone being 1."""
        return 1.0

    @property
    def n_encoders(self) -> int:
        """Encoders of the student's size that are trained, itself included."""
        return 1

    def pair_maker(self, mask_token: str | None) -> PairMaker | None:
        """What makes the training pairs of the sentences; here each sentence twice, of which dropout makes two views.

        None: each sentence stands alone.

        Args:
            mask_token: The start's, where it has one.
        """
        from transencoder.views import TwoViews, as_is

        return TwoViews(first=as_is, second=as_is)

    @abstractmethod
    def loss(self, student: SentenceTransformer) -> nn.Module:
        """The loss on the pairs, with what it trains besides the student.

        Args:
            student: The encoder to train.
        """

    @property
    def taught_by(self) -> str | None:
        """The model whose embeddings of the pairs the loss is given as labels; usually none."""
        return None

    @property
    def teacher_fields(self) -> tuple[str, ...]:
        """Fields that say which teacher, and nothing else."""
        return ()

    @property
    def cross_teachers(self) -> tuple[str, ...]:
        """Cross-encoders whose labels of the pairs the loss is given beside gold ones; usually none."""
        return ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that its rows are labelled with; usually none."""
        return ()

    def informed(self, classes: Sequence[str]) -> Self:
        """With the classes that the data turned out to have.

        Args:
            classes: Their names; none where rows have no classes.
        """
        return self

    @property
    def teacher_pooling(self) -> Pooling | None:
        """Its pooling; None: its own."""
        return None

    @property
    def n_held_out(self) -> int:
        """Rows on which nothing is trained, so that the teacher's embeddings of their first texts can fill a queue."""
        return 0

    def projected(self, student: SentenceTransformer, dimension: int) -> SentenceTransformer:
        """The student as a teacher trains it: with a projection that it keeps, where the method gives it one.

        Args:
            student: The encoder to train.
            dimension: Of the teacher's embeddings.
        """
        return student

    def distillation_loss(self, student: SentenceTransformer, dimension: int, queue: Tensor) -> nn.Module:
        """The loss where there is a teacher.

        Args:
            student: The encoder to train.
            dimension: Of the teacher's embeddings.
            queue: float32 (n_held_out, dimension), the teacher's embeddings of what nothing is trained on.
        """
        raise NotImplementedError(f"{type(self).__name__} has no teacher")

    def loss_operations(self, width: int, dimension: int | None) -> float:
        """Floating-point operations of the loss itself for one row, the encoder's left out; usually next to none.

        Args:
            width: Of the student's embeddings.
            dimension: Of the teacher's, where there is one.
        """
        return 0.0

    def loss_state(self, width: int, dimension: int | None) -> float:
        """Numbers that a checkpoint holds of the loss itself: queues, MLPs with Adam's moments; usually next to none.

        Args:
            width: Of the student's embeddings.
            dimension: Of the teacher's, where there is one.
        """
        return 0.0

    def rivals(self, loss: nn.Module) -> tuple[SentenceTransformer, ...]:
        """Other encoders that the loss trains, which are kept where they do better on dev; usually none."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Sentences:
    """What methods of sentences are given besides the start."""

    sentences: str | Dataset
    """Unlabelled sentences: a TXT (one a line), TSV, CSV, JSONL or Parquet file, `-`, or a hub id. With two `columns`:
    pairs, also of tasks."""
    n_sentences: int | None = None
    """Train on so many of them, drawn with the seed; None: on all."""

    def __post_init__(self) -> None:
        """Refuse a number that leaves nothing."""
        super().__post_init__()  # type: ignore[misc]
        if self.n_sentences is not None and self.n_sentences < 1:
            raise InputError(f"n_sentences is {self.n_sentences}; it must be at least 1")

    @property
    def text(self) -> tuple[Texts, str | Dataset]:
        """The sentences."""
        return "sentences", self.sentences
