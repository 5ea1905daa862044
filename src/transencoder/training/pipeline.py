"""What every kind of run has in common: a config is prepared, its data read, the graph of its stages built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Generic, TypeVar

from transencoder.configs import FitConfig
from transencoder.configs.run import RunConfig
from transencoder.context import Context
from transencoder.runs import Executor, Planner
from transencoder.training.result import Outcome
from transencoder.wording import plural

ConfigT = TypeVar("ConfigT", bound=RunConfig)
ContextT = TypeVar("ContextT", bound=Context[Any])


class Pipeline(ABC, Generic[ConfigT, ContextT]):
    """One kind of run; to make one checks its config and models, before any data is read."""

    given: ConfigT
    """The config with every default written out."""
    config: ConfigT
    """The same with its variables filled in, and its device."""
    n_workers: int = 1
    """How many processes train."""

    @abstractmethod
    def __init__(self, config: ConfigT) -> None:
        """Fill in every default, and look at the models."""

    @abstractmethod
    def open(self, executor: Executor, bad_rows_file: Path | None) -> ContextT:
        """Read the data and return what the stages are built with.

        Args:
            executor: Who computes the stages.
            bad_rows_file: Where bad rows of the training text go if they are skipped; None: nowhere.
        """

    @abstractmethod
    def train(self, context: ContextT) -> Any:
        """Build the stages up to the trained models: what a plan shows and `measure` takes."""

    @abstractmethod
    def measure(self, context: ContextT, trained: Any) -> Outcome:
        """Build the stages that measure what was trained."""

    @abstractmethod
    def lines(self, context: ContextT, planner: Planner) -> list[str]:
        """Return the plan as a person reads it, but for its last line, the cost."""

    def extra_disk_bytes(self, context: ContextT, planner: Planner) -> float:
        """Return what a run leaves on disk besides its stages."""
        return 0.0


def settings_in_words(config: FitConfig) -> str:
    """Return what matters most of how an encoder is trained."""
    return (
        f"learning rate {config.learning_rate:g}, batches of {config.batch_size}, "
        f"{plural(config.epochs or 1, 'epoch')}, {config.max_length} tokens"
    )
