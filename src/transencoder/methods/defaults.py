"""Table 16 of the Trans-Encoder paper, and what else a config leaves to the run."""

from dataclasses import replace

from transencoder.config import FitConfig
from transencoder.errors import InputError
from transencoder.methods.trans_encoder import TransEncoder

LARGE_PARAMETERS = 200_000_000
"""From here on a model counts as large: BERT-base has 110M, BERT-large 340M."""


def fill(config: TransEncoder, n_parameters: int) -> TransEncoder:
    """Fill every field left empty with Table 16's value for the kind of task and the model's size.

    Where the paper is silent on warm-up, the released code's: 10 % of the steps for the cross-encoder, none for the
    bi-encoder.

    Args:
        config: A config as the user gave it.
        n_parameters: Parameters of the largest start.

    Raises:
        InputError: Fewer cycles than members that learn in turn.
    """
    is_binary = config.task_kind == "binary"
    is_large = n_parameters >= LARGE_PARAMETERS
    cross = FitConfig(learning_rate=2e-5, batch_size=32, epochs=3 if is_binary else 1, max_length=64, warmup_ratio=0.1)
    bi = FitConfig(
        learning_rate=5e-5,
        batch_size=64 if is_large else 128,
        epochs=15 if is_binary else 10,
        max_length=32,
        warmup_ratio=0.0,
    )
    cycles = config.cycles or (5 if is_binary else 3)
    if config.alternate_members and cycles < len(config.members):
        raise InputError(f"{cycles} cycles are too few for {len(config.members)} members in turn; give one for each")
    return replace(
        config,
        cycles=cycles,
        cross=_filled(config.cross, cross),
        bi=_filled(config.bi, bi),
    )


def _filled(given: FitConfig, table: FitConfig) -> FitConfig:
    names = ("learning_rate", "batch_size", "epochs", "max_length", "warmup_ratio")
    return replace(given, **{name: getattr(table, name) for name in names if getattr(given, name) is None})
