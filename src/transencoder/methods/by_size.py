"""Settings that papers and released codes give for encoders of some sizes, for encoders of any."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transencoder.methods.start import StartMethod

StartMethodT = TypeVar("StartMethodT", bound="StartMethod")


@dataclass(frozen=True)
class SizeRow:
    """Settings for encoders of about one size; a subclass adds a method's own, named as in its config."""

    n_parameters: float
    """All of the encoder's, embeddings included."""
    learning_rate: float
    """Peak learning rate."""


def fill_by_size(config: StartMethodT, rows: Iterable[SizeRow], n_parameters: float) -> StartMethodT:
    """The config with what is None in it taken from the row nearest in size.

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
