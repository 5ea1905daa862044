"""What several methods refuse."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from transencoder.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from transencoder.methods.start import StartMethod


def check_temperature(temperature: float | None, usual: str, name: str = "temperature") -> None:
    """Refuse a temperature that cannot divide cosines.

    Args:
        temperature: Of a softmax; None: it is left to the method, and passes.
        usual: The paper's, for the message: `the paper's is 0.05`.
        name: The setting's.

    Raises:
        InputError: It is not above 0 and finite.
    """
    if temperature is not None and not 0 < temperature < math.inf:
        raise InputError(f"{name} is {temperature}; it must be above 0 and finite, {usual}")


def check_score_range(score_range: tuple[float, ...]) -> None:
    """Refuse what is no range of scores.

    Raises:
        InputError: There are not two finite numbers, the lower one first.
    """
    if len(score_range) != 2 or not -math.inf < score_range[0] < score_range[1] < math.inf:
        raise InputError(f"score_range is {score_range}; give the lowest and the highest score, such as 0 5")


def check_queue(queue_size: int, n_entering: int, otherwise: str = "") -> None:
    """Refuse a queue that a step would fill more than once.

    Args:
        queue_size: Embeddings in the queue.
        n_entering: Of one process, in one step.
        otherwise: What else the message says: another value that is allowed, why so many enter: `, or be 0`.

    Raises:
        InputError: The batches of all processes do not fit.
    """
    from transencoder import distributed

    least = n_entering * distributed.world_size()
    if queue_size < least:
        raise InputError(f"queue_size is {queue_size}; it must hold the batches of all processes, {least}{otherwise}")


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
