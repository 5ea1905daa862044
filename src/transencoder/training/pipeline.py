"""What every kind of run has in common: a config is prepared, its data read, the graph of its stages built."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from transencoder.configs import FitConfig, Precision, nearest
from transencoder.configs.run import RunConfig
from transencoder.context import Context
from transencoder.devices import checked_device, uses_bf16
from transencoder.errors import InputError, plural
from transencoder.runs import Cost, Executor, Planner
from transencoder.settings import expanded
from transencoder.training.result import Outcome

ConfigT = TypeVar("ConfigT", bound=RunConfig)
ContextT = TypeVar("ContextT", bound=Context[Any])


class Pipeline(ABC, Generic[ConfigT, ContextT]):
    """One kind of run; to make one checks its config and models, before any data is read."""

    given: ConfigT
    """The config with every default written out."""
    config: ConfigT
    """The same with its variables filled in, and its device."""
    recipe: ConfigT
    """What the run folder's recipe holds: the first, but for what is chosen once the run has begun."""
    n_workers: int = 1
    """How many processes train."""
    cut: str = ""
    """Which share of the texts training does not read to their end, once the data are read."""

    @abstractmethod
    def __init__(self, config: ConfigT) -> None:
        """Fill in every default, and look at the models."""

    @abstractmethod
    def open(self, executor: Executor, run_folder: Path | None) -> ContextT:
        """Read the data and return what the stages are built with.

        Skipped bad rows go to the run folder; None: nowhere.
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

    @abstractmethod
    def extra_cost(self, context: ContextT, planner: Planner) -> Cost:
        """Return what a run takes and leaves on disk besides the stages of its plan."""


def settings_in_words(config: FitConfig) -> str:
    """Return what matters most of how an encoder is trained."""
    return (
        f"learning rate {config.learning_rate:g}, batches of {config.batch_size}, "
        f"{plural(config.epochs or 1, 'epoch')}, {config.max_length} tokens"
    )


_CHECKED_TRACKERS = ("tensorboard", "wandb", "trackio")
"""Those whose package has the tracker's name."""


def placed(config: ConfigT) -> tuple[ConfigT, ConfigT]:
    """Decide device and precision.

    Returns:
        The config with its precision, and the same with its variables filled in and its device.

    Raises:
        InputError: A device that cannot be used here, a tracker that is not there, or a variable that is not set.
    """
    usable = expanded(config)
    _check_trackers(usable.report_to)
    if isinstance(config.max_length, int):
        config, usable = (each.with_lengths(config.max_length, 2 * config.max_length) for each in (config, usable))
    device = _checked_device(usable.device) if usable.device else default_device()
    precision: Precision = "bf16" if uses_bf16(device, usable.precision) else "fp32"
    return replace(config, precision=precision), replace(usable, precision=precision, device=device)


def _checked_device(name: str) -> str:
    """Return a device that training can use; which GPU it takes is the environment's to say."""
    if (other := re.fullmatch(r"cuda:([1-9]\d*)", name)) is not None:
        raise InputError(
            f"device is {name}, but training runs on the first GPU that it sees: leave device out and set "
            f"CUDA_VISIBLE_DEVICES={other[1]}"
        )
    return checked_device(name)


def _check_trackers(names: tuple[str, ...]) -> None:
    """Refuse, before anything is trained, trackers that the trainer does not know or that are not installed."""
    for name in names:
        if name not in INTEGRATION_TO_CALLBACK:
            raise InputError(
                f"report_to has {name!r}; the nearest tracker is {nearest(name, list(INTEGRATION_TO_CALLBACK))}"
            )
        packages = {"tensorboard": ("tensorboard", "tensorboardX")}.get(name, (name,))
        if name in _CHECKED_TRACKERS and not any(find_spec(package) for package in packages):
            raise InputError(f"report_to has {name}, which is not installed; pip install {name}, or leave it out")


def default_device() -> str:
    """Return the device that is taken where none is named: the present GPU, else the CPU."""
    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"
