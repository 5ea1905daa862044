"""Fits of tiny models: 64 pairs, 4 steps an epoch, 3 epochs; evaluated at 3, 4, 6, 8, 9, 12, saved at every second step."""

from collections.abc import Iterable
from typing import Any

import torch

from transencoder.encoders import load_bi, load_cross
from transencoder.losses import CosineLoss, LogitLoss
from transencoder.scorers import BiScorer, CrossScorer

CONFIG = {
    "learning_rate": 3e-3,
    "batch_size": 16,
    "epochs": 3,
    "max_length": 24,
    "warmup_ratio": 0.1,
    "eval_steps": 3,
    "checkpoint_steps": 2,
}
LOAD = {"bi": load_bi, "cross": load_cross}
LOSS = {"bi": CosineLoss, "cross": LogitLoss}
SCORER = {"bi": BiScorer, "cross": CrossScorer}


class Stopped(Exception):
    """Raised where a test stops a training."""


def scripted(values: Iterable[float], snapshots: list | None = None) -> Any:
    """A dev metric that says these values in turn, and keeps the weights it was shown."""
    values = iter(values)

    def dev(model):
        if snapshots is not None:
            snapshots.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return {"dev": next(values)}

    return dev


def stopping(values: Iterable[float]) -> Any:
    """A dev metric that says these values in turn, and then stops the training."""
    values = iter(values)

    def dev(model):
        value = next(values, None)
        if value is None:
            raise Stopped
        return {"dev": value}

    return dev


def same(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, others[name]) for name, tensor in weights.items())
