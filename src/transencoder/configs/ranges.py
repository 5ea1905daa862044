"""What a config's field may hold, declared on the field; and the one place where configs are checked.

A field declares its range in the place of its default: `epochs: int | None = at_least(1, None)`. None always passes.
Choices need no declaration: they are the annotation, a `Literal`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import field, fields
from typing import Any

from transencoder.errors import InputError

Contradictions = Iterator[str]
"""What two or more fields say against each other, as messages to the user."""


class Config:
    """The base of all config dataclasses: refuses values out of range and contradictions, by the names users type."""

    def __post_init__(self) -> None:
        """Check the fields, then what they say together.

        Raises:
            InputError: A value is not allowed, or two contradict each other.
        """
        for each in fields(self):  # type: ignore[arg-type]
            value, is_allowed = getattr(self, each.name), each.metadata.get("is_allowed")
            if is_allowed is not None and value is not None and not is_allowed(value):
                raise InputError(f"{each.name} is {value}; {each.metadata['otherwise']}")
        for message in self.contradictions():
            raise InputError(message)

    def contradictions(self) -> Contradictions:
        """Yield what fields say against each other; the first is raised."""
        yield from ()


def at_least(low: float, default: Any, source: str = "") -> Any:
    """Declare a field of numbers from `low` on.

    Args:
        low: The least.
        default: The field's default.
        source: Added to the message: `, the paper's is 7`.
    """
    return _checked(default, lambda value: value >= low, f"it must be at least {low}{source}")


def finite_from_zero(default: Any, source: str = "") -> Any:
    """Declare a field of finite numbers from 0 on."""
    return _checked(default, lambda value: 0 <= value < math.inf, f"it must be at least 0 and finite{source}")


def above_zero(default: Any, source: str = "") -> Any:
    """Declare a field of finite numbers above 0, such as temperatures, which divide."""
    return _checked(default, lambda value: 0 < value < math.inf, f"it must be above 0 and finite{source}")


def share(default: Any, of: str = "") -> Any:
    """Declare a field of shares, 0 to below 1; `of` says of what: ` of the steps`."""
    return _checked(default, lambda value: 0 <= value < 1, f"it is a share{of}, 0 to below 1")


def share_above_zero(default: Any, of: str) -> Any:
    """Declare a field of shares above 0 and below 1."""
    return _checked(default, lambda value: 0 < value < 1, f"it is a share{of}, above 0 and below 1")


def between(low: float, high: float, default: Any, words: str) -> Any:
    """Declare a field of numbers from `low` to `high`; `words` are the message's: `it is a cosine, from -1 to 1`."""
    return _checked(default, lambda value: low <= value <= high, words)


def rising_pair(low: float, high: float) -> Any:
    """Declare a field of the lowest and the highest score of a file."""
    return _checked(
        (low, high),
        lambda value: len(value) == 2 and -math.inf < value[0] < value[1] < math.inf,
        "give the lowest and the highest score, such as 0 5",
    )


def _checked(default: Any, is_allowed: Callable[[Any], bool], otherwise: str) -> Any:
    return field(default=default, metadata={"is_allowed": is_allowed, "otherwise": otherwise})
