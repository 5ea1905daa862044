"""Settings that papers and released codes give for encoders of some sizes, for encoders of any."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from transencoder.configs.encoder import EncoderConfig
from transencoder.errors import InputError

EncoderConfigT = TypeVar("EncoderConfigT", bound=EncoderConfig)


@dataclass(frozen=True)
class SizeRow:
    """Settings for encoders of about one size; a subclass adds a method's own, named as in its config."""

    n_parameters: float
    """All of the encoder's, embeddings included."""
    learning_rate: float
    """Peak learning rate."""


def fill_by_size(config: EncoderConfigT, rows: Iterable[SizeRow], n_parameters: float) -> EncoderConfigT:
    """Return the config with what is None in it taken from the row nearest in size.

    Args:
        config: With a learning rate in its `fit`.
        rows: At least one.
        n_parameters: Of the encoder. Nearest is by ratio: 20M lies nearer to 29M than to 11M.
    """
    row = min(rows, key=lambda row: abs(math.log(row.n_parameters / n_parameters)))
    own = {field.name for field in fields(row)} - {field.name for field in fields(SizeRow)}
    empty = {name: getattr(row, name) for name in own if getattr(config, name) is None}
    rate = row.learning_rate if config.fit.learning_rate is None else config.fit.learning_rate
    return replace(config, **empty, fit=replace(config.fit, learning_rate=rate))


def check_queue(queue_size: int, n_entering: int, otherwise: str = "") -> None:
    """Refuse a queue that a step would fill more than once.

    Args:
        queue_size: Embeddings in the queue.
        n_entering: Of all processes, in one step.
        otherwise: What else the message says: another value that is allowed, why so many enter: `, or be 0`.

    Raises:
        InputError: The batches of all processes do not fit.
    """
    if queue_size < n_entering:
        raise InputError(
            f"queue_size is {queue_size}; it must hold the batches of all processes, {n_entering}{otherwise}"
        )
