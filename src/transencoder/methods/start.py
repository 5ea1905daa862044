"""What the configs of starting encoders have: unlabelled sentences, a pretrained model, two views and a loss."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transencoder.config import FitConfig, Pooling
from transencoder.errors import InputError
from transencoder.methods.method import Method

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from transencoder.methods.start_planning import StartPlan
    from transencoder.methods.start_training import TrainedStart
    from transencoder.views import PairMaker


@dataclass(frozen=True, kw_only=True)
class StartMethod(Method["TrainedStart"]):
    """A bi-encoder from a pretrained model and unlabelled sentences."""

    sentences: str | Dataset
    """Unlabelled sentences: a TXT (one a line), TSV, CSV, JSONL or Parquet file, `-`, or a hub id. With two `columns`:
    pairs, also of tasks."""
    start: str
    """The pretrained model: a folder, a hub id, or `minilm` (the packaged all-MiniLM-L6-v2)."""
    revision: str | None = None
    """Hub revision of `start`."""
    columns: tuple[str, ...] = ()
    """Name of the text column in `sentences`; empty: `text`, `sentence`, else the first. Two names: the rows are pairs,
    which are taken for two views of one meaning (pseudo-positives: Trans-Encoder, Table 9)."""

    def __post_init__(self) -> None:
        """Refuse contradictions, naming the field as the user typed it."""
        super().__post_init__()
        if len(self.columns) > 2:
            raise InputError(f"columns names {len(self.columns)} columns; give one of sentences, or two of pairs")

    @property
    @abstractmethod
    def fitting(self) -> FitConfig:
        """How it is trained, no field empty."""

    @property
    @abstractmethod
    def start_pooling(self) -> Pooling | None:
        """Pooling of the trained model, in training and at test; None: the start's own."""

    @property
    def other_models(self) -> tuple[str, ...]:
        """Models that the loss needs besides the start: folders or hub ids."""
        return ()

    @abstractmethod
    def pair_maker(self, mask_token: str | None) -> PairMaker:
        """What makes the training pairs of the sentences.

        Args:
            mask_token: The start's, where it has one.
        """

    @abstractmethod
    def loss(self, student: SentenceTransformer) -> nn.Module:
        """The loss on the pairs, with what it trains besides the student.

        Args:
            student: The encoder to train.
        """

    def rivals(self, loss: nn.Module) -> tuple[SentenceTransformer, ...]:
        """Other encoders that the loss trains, which are kept where they do better on dev; usually none."""
        return ()

    def run(self, recipe: str | None = None) -> TrainedStart:
        """Train, or go on with a run that was interrupted."""
        from transencoder.methods.start_training import train_start

        return train_start(self, recipe=recipe)

    def plan(self) -> StartPlan:
        """What `run` would do and about what it would cost."""
        from transencoder.methods.start_planning import plan_start

        return plan_start(self)
