"""The data sets that a run on pairs reads."""

from pathlib import Path

from transencoder import TransEncoder
from transencoder.context import Data
from transencoder.training.data import PairsReader


def read_data(config: TransEncoder, run_folder: Path | None = None) -> Data:
    """Return the data sets of a config that has pairs."""
    reader = PairsReader(config, run_folder)
    return reader.data(reader.drawn(reader.text()))
