"""Allowed values of config fields: choices, ranges declared on the field, and the base class that checks them.

A field declares its range together with its default: `epochs: int | None = at_least(1, None)`. None is always allowed.
Choices need no declaration: they are the annotation, a `Literal`.
"""

import difflib
import math
import numbers
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import PurePath
from typing import Any, Literal, TypeVar

from transencoder.errors import InputError, shorten
from transencoder.in_memory import as_source

Form = Literal["bi", "cross", "mlm"]
Precision = Literal["auto", "bf16", "fp32"]
Pooling = Literal["mean", "cls", "max", "pooler"]
Head = Literal["pooler", "linear"]
Texts = Literal["sentences", "documents"]
LabelPolicy = Literal["clip", "affine", "quantile", "raw"]
BiLabels = Literal["cosine", "tokens"]
CrossLoss = Literal["bce", "mse"]
BiLoss = Literal["mse", "log_cosh", "bce", "bce_clipped"]
OfEmbeddings = Literal["self_retrieval", "alignment", "uniformity", "alignment_and_uniformity", "effective_rank"]
Criterion = Literal["teacher_agreement", "start_agreement", "member_agreement", "view_preference", OfEmbeddings]
Selection = Literal["auto", "last", Criterion]

Contradictions = Iterator[str]
"""Error messages for the user about fields that contradict each other."""


@dataclass(frozen=True)
class Config:
    """Base class of all config dataclasses, which refuses values out of range and contradictions between fields.

    Error messages name fields as users type them. Paths are also accepted instead of strings, lists instead of tuples,
    dicts instead of configs and, in fields of rows, the Python objects that `transencoder.in_memory` reads.
    """

    def __post_init__(self) -> None:
        """Check each field, then contradictions between fields.

        Raises:
            InputError: A value is not allowed, or two contradict each other.
        """
        for each in fields(self):
            value = _as_held(each, getattr(self, each.name))
            object.__setattr__(self, each.name, value)  # frozen from here on
            if "is_allowed" in each.metadata and not _is_in_range(each, value):
                raise InputError(f"{each.name} is {shorten(value)}; {each.metadata['otherwise']}")
        for message in self.contradictions():
            raise InputError(message)

    def contradictions(self) -> Contradictions:
        """Yield an error message for each contradiction between fields; the first one is raised."""
        yield from ()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is no field, such as a loaded model: another process loads its own."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def source(default: Any = MISSING) -> Any:
    """Declare a field of rows: the name of a file or data set, or a value that `in_memory.as_source` accepts."""
    return field(default=default, metadata={"is_rows": True})


def at_least(low: float, default: Any, source: str = "") -> Any:
    """Declare a field of numbers of at least `low`; `source` is appended to the error message: `, the paper's is 7`."""
    return _checked(default, lambda value: value >= low, f"it must be at least {low}{source}")


def finite_from_zero(default: Any, source: str = "") -> Any:
    """Declare a field of finite numbers of at least 0."""
    return _checked(default, lambda value: 0 <= value < math.inf, f"it must be at least 0 and finite{source}")


def above_zero(default: Any, source: str = "") -> Any:
    """Declare a field of finite numbers above 0, such as temperatures, which are divisors."""
    return _checked(default, lambda value: 0 < value < math.inf, f"it must be above 0 and finite{source}")


def share(default: Any, of: str = "") -> Any:
    """Declare a field of shares from 0 to below 1; `of` names the whole in the error message: ` of the steps`."""
    return _checked(default, lambda value: 0 <= value < 1, f"it is a share{of}, 0 to below 1")


def share_of_tokens(default: Any) -> Any:
    """Declare a field of shares of the tokens, above 0 and below 1."""
    return _checked(default, lambda value: 0 < value < 1, "it is a share of the tokens, above 0 and below 1")


def between(low: float, high: float, default: Any, words: str) -> Any:
    """Declare a field of numbers from `low` to `high`; `words` go into the message: `it is a cosine, from -1 to 1`."""
    return _checked(default, lambda value: low <= value <= high, words)


def score_range() -> Any:
    """Declare a field of the lowest and the highest score of a file, by default 0 and 1."""
    return _checked(
        (0.0, 1.0),
        lambda value: len(value) == 2 and -math.inf < value[0] < value[1] < math.inf,
        "give the lowest and the highest score, such as 0 5",
    )


_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}


def seconds_of(text: str) -> float:
    """Convert a time such as `90s`, `20m` or `1.5h` to seconds; anything else gives NaN."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|m|min|h)", text)
    return float(found[1]) * _SECONDS[found[2]] if found else math.nan


def time_span() -> Any:
    """Declare a field of times, such as `20m`, with default None."""
    return _checked(None, lambda value: 0 < seconds_of(value) < math.inf, "give a time such as 90s, 20m or 1.5h")


NO_URL = "it is written on this machine: give a path, and copy what is there to the URL afterwards"


def path_to_write(default: str) -> Any:
    """Declare a field that names a folder to write."""
    return _checked(default, lambda value: "://" not in value, NO_URL)


ConfigT = TypeVar("ConfigT", bound=Config)


def filled(config: ConfigT, values: Mapping[str, Any]) -> ConfigT:
    """Return the config with its None fields filled from a table of values."""
    return replace(config, **{name: value for name, value in values.items() if getattr(config, name) is None})


def nearest(name: str, allowed: Sequence[str]) -> str:
    """Return the allowed name most similar to `name`, or the one whose initials are `name`."""
    short_for = next((each for each in allowed if _initials(each) == name.lstrip("-")), None)
    if short_for is not None:
        return short_for
    plain = {re.sub(r"[-_]", "", each): each for each in reversed(allowed)}
    return plain[difflib.get_close_matches(re.sub(r"[-_]", "", name), plain, 1, 0.0)[0]]


def _initials(name: str) -> str | None:
    """Turn `bi.learning_rate` or `--bi.learning-rate` into `bi.lr`; None for a single word."""
    parent, dot, last = name.lstrip("-").rpartition(".")
    words = re.split(r"[-_]", last)
    return parent + dot + "".join(word[:1] for word in words) if len(words) > 1 else None


def _as_held(declared: Field[Any], value: Any) -> Any:
    """Convert a value given in Python, such as a list or a path, to the type that the field holds."""
    if value is not None and declared.metadata.get("is_rows"):
        return as_source(value, declared.name)
    if isinstance(value, PurePath) and "Path" not in str(declared.type):
        value = str(value)
    if isinstance(value, list):
        return tuple(str(item) if isinstance(item, PurePath) else item for item in value)
    if isinstance(value, numbers.Number) and hasattr(value, "item"):  # a NumPy scalar
        return value.item()
    if isinstance(value, str) and "tuple[str, ...]" in str(declared.type):
        return (value,)
    if isinstance(value, Mapping) and isinstance(declared.default, Config):
        return with_values(declared.default, value, f"{declared.name}.")
    return value


def _is_in_range(declared: Field[Any], value: Any) -> bool:
    if value is None or (value == "auto" and "'auto'" in str(declared.type)):
        return True
    try:
        return bool(declared.metadata["is_allowed"](value))
    except TypeError:  # a string instead of a number
        return False


def with_values(config: ConfigT, values: Mapping[str, Any], prefix: str = "") -> ConfigT:
    """Return the config with some fields changed; `prefix` is put before field names in error messages."""
    known = [each.name for each in fields(config)]
    for name in values:
        if name not in known:
            raise InputError(f"there is no setting {prefix}{name}; the nearest is {prefix}{nearest(str(name), known)}")
    return replace(config, **values)


def listed(given: Any, kind: type[ConfigT], setting: str, key: str) -> tuple[ConfigT, ...]:  # noqa: ANN401
    """Convert a list of configs, models or dicts, or a single one of these, to a tuple of configs.

    Args:
        given: Value to convert.
        kind: Class of the configs.
        setting: Name of the list in error messages.
        key: Field of the config that names the model.

    Raises:
        InputError: An item is none of these, or has an unknown field.
    """

    def one(item: Any, number: int) -> ConfigT:  # noqa: ANN401
        if isinstance(item, kind):
            return item
        if isinstance(item, str | PurePath):
            return kind(**{key: str(item)})
        if isinstance(item, Mapping) and key in item:
            return with_values(kind(**{key: str(item[key])}), item, f"{setting}.{number}.")
        raise InputError(
            f"{setting}.{number} is {shorten(item)}; give a model, such as 'minilm' or a folder, or "
            f"{kind.__name__}({key}='minilm')"
        )

    items = given if isinstance(given, list | tuple) else [given]
    return tuple(one(item, number) for number, item in enumerate(items, 1))


def _checked(default: Any, is_allowed: Callable[[Any], bool], otherwise: str) -> Any:
    return field(default=default, metadata={"is_allowed": is_allowed, "otherwise": otherwise})
