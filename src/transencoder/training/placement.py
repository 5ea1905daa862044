"""Where a run computes and in what numbers, decided and checked before anything is read or trained."""

import re
from dataclasses import replace
from importlib.util import find_spec
from typing import TypeVar

import torch
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from transencoder.configs import Precision, nearest
from transencoder.configs.run import RunConfig
from transencoder.devices import checked_device, uses_bf16
from transencoder.errors import InputError
from transencoder.settings import expanded

_CHECKED_TRACKERS = ("tensorboard", "wandb", "trackio")
"""Those whose package has the tracker's name."""

Config = TypeVar("Config", bound=RunConfig)


def placed(config: Config) -> tuple[Config, Config]:
    """Decide device and precision.

    Args:
        config: A config as the user gave it.

    Returns:
        The config with its precision, and the same with its variables filled in and its device.

    Raises:
        InputError: A device that cannot be used here, a tracker that is not there, or a variable that is not set.
    """
    usable = expanded(config)
    _check_trackers(usable.report_to)
    device = _checked_device(usable.device) if usable.device else default_device()
    precision: Precision = "bf16" if uses_bf16(device, usable.precision) else "fp32"
    return replace(config, precision=precision), replace(usable, precision=precision, device=device)


def _checked_device(name: str) -> str:
    """A device that training can use; which GPU it takes is the environment's to say."""
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
