"""Common steps of all kinds of runs: prepare the config, read its data, build the graph of its stages."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from transencoder.configs import FitConfig, nearest
from transencoder.configs.run import RunConfig
from transencoder.context import Context, Model
from transencoder.devices import checked_device, computed_in
from transencoder.errors import InputError, plural
from transencoder.runs import Cost, Executor, Planner
from transencoder.settings import expanded
from transencoder.training.result import Measurements

ConfigT = TypeVar("ConfigT", bound=RunConfig)
ContextT = TypeVar("ContextT", bound=Context[Any])


@dataclass
class BaseContext(Context[ConfigT]):
    """Context of a run that trains one base model."""

    base: Model = field(kw_only=True)
    """Model that is trained: the base model, or the smaller or new one that a stage makes."""


class Pipeline(ABC, Generic[ConfigT, ContextT]):
    """Base class for a kind of run. Its constructor checks the config and the models, before any data is read."""

    given: ConfigT
    """Config with every default filled in."""
    config: ConfigT
    """The same config with environment variables expanded and the device set."""
    recipe: ConfigT
    """Config in the run folder's recipe: `given`, without the choices that are made after the run has begun."""
    n_workers: int = 1
    """Number of processes that train."""
    note_on_cuts: str = ""
    """Sentence with the share of texts that training does not read to their end; set once the data are read."""

    @abstractmethod
    def __init__(self, config: ConfigT) -> None:
        """Fill in every default, and check the models."""

    @abstractmethod
    def open(self, executor: Executor, run_folder: Path | None) -> ContextT:
        """Read the data and return the context that the stages are built with.

        Skipped bad rows are written to the run folder; None: they are not written.
        """

    @abstractmethod
    def train(self, context: ContextT) -> Any:
        """Build the stages up to the trained models, which a plan shows, and return the models for `measure`."""

    @abstractmethod
    def measure(self, context: ContextT, trained: Any) -> Measurements:
        """Build the stages that measure the trained models."""

    @abstractmethod
    def lines(self, context: ContextT, planner: Planner) -> list[str]:
        """Return the lines of the plan that the user sees, except the last one, the cost."""

    @abstractmethod
    def extra_cost(self, context: ContextT, planner: Planner) -> Cost:
        """Return the operations and the disk space of a run that the stages of its plan do not include."""

    def _settle(self, change: Callable[[ConfigT], ConfigT]) -> None:
        """Change the config, now that the text or a budget is known."""
        self.given, self.config = change(self.given), change(self.config)


def settings_in_words(config: FitConfig) -> str:
    """Return the most important training settings of an encoder, in words."""
    return (
        f"learning rate {config.learning_rate:g}, batches of {config.batch_size}, "
        f"{plural(config.epochs or 1, 'epoch')}, {config.max_length} tokens"
    )


_CHECKED_TRACKERS = ("tensorboard", "wandb", "trackio")
"""Trackers whose package has the same name."""


def placed(config: ConfigT) -> tuple[ConfigT, ConfigT]:
    """Choose the device and the precision.

    Returns:
        The config with the precision, and the same with environment variables expanded and the device set.

    Raises:
        InputError: A device cannot be used here, a tracker is not available, or an environment variable is not set.
    """
    usable = expanded(config)
    _check_trackers(usable.report_to)
    if isinstance(config.max_length, int):
        config, usable = (each.with_lengths(config.max_length, 2 * config.max_length) for each in (config, usable))
    device = _checked_device(usable.device) if usable.device else default_device()
    precision = computed_in(device, usable.precision)
    return replace(config, precision=precision), replace(usable, precision=precision, device=device)


def _checked_device(name: str) -> str:
    """Return a device that training can use; CUDA_VISIBLE_DEVICES chooses among several GPUs."""
    if (other := re.fullmatch(r"cuda:([1-9]\d*)", name)) is not None:
        raise InputError(
            f"device is {name}, but training runs on the first GPU that it sees: leave device out and set "
            f"CUDA_VISIBLE_DEVICES={other[1]}"
        )
    return checked_device(name)


def _check_trackers(names: tuple[str, ...]) -> None:
    """Raise an error, before training, for trackers that the trainer does not know or that are not installed."""
    for name in names:
        if name not in INTEGRATION_TO_CALLBACK:
            raise InputError(
                f"report_to has {name!r}; the nearest tracker is {nearest(name, list(INTEGRATION_TO_CALLBACK))}"
            )
        packages = {"tensorboard": ("tensorboard", "tensorboardX")}.get(name, (name,))
        if name in _CHECKED_TRACKERS and not any(find_spec(package) for package in packages):
            raise InputError(f"report_to has {name}, which is not installed; pip install {name}, or leave it out")


def default_device() -> str:
    """Return the device that is used if none is named: the current GPU, else the CPU."""
    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"
