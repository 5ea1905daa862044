"""What several methods refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transencoder.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from transencoder.methods.start import StartMethod


def check_temperature(temperature: float, papers: float) -> None:
    """Refuse a temperature that cannot divide cosines.

    Args:
        temperature: Of a softmax.
        papers: The paper's, for the message.

    Raises:
        InputError: It is not above 0.
    """
    if not temperature > 0:
        raise InputError(f"temperature is {temperature}; it must be above 0, the paper's is {papers}")


def check_fit_dropout(config: StartMethod) -> None:
    """Refuse a setting that would make both views of a sentence the same.

    Args:
        config: Of a method whose views differ by dropout alone.

    Raises:
        InputError: `fit.dropout` is 0, and the views are not two columns of pairs.
    """
    if config.fit.dropout == 0.0 and not config.is_paired:
        raise InputError("fit.dropout is 0, and then both views of a sentence are the same; leave it out")


def check_dropout(config: StartMethod, student: SentenceTransformer) -> None:
    """Refuse an encoder that would make both views of a sentence the same.

    Args:
        config: Of a method whose views differ by dropout alone.
        student: The encoder, its dropout set.

    Raises:
        InputError: It has no dropout, and the views are not two columns of pairs.
    """
    from torch import nn

    has_dropout = any(isinstance(module, nn.Dropout) and module.p > 0 for module in student.modules())
    if not has_dropout and not config.is_paired:
        raise InputError(
            f"{config.start} has no dropout, and then both views of a sentence are the same: give fit.dropout 0.1"
        )
