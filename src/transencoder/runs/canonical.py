"""One JSON form per value, so that a key depends on what a config says and not on how it was written."""

import dataclasses
import hashlib
import json
import math
import numbers
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import PurePath
from typing import TypeAlias

from transencoder.errors import InputError

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


def stage_key(name: str, config: Mapping[str, object], inputs: Sequence[str] = ()) -> str:
    """Return the address of a stage: the sha256 (64 hex digits) of its name, config and inputs.

    Args:
        name: the stage's name, for instance `cycle-1/cross`.
        config: everything that changes the stage's outcome, the version of the code that matters included.
        inputs: keys of earlier stages and fingerprints of data, in a fixed order.

    Raises:
        InputError: when the config holds something that has no JSON form, a NaN for instance.
    """
    text = canonical_json({"name": name, "config": config, "inputs": list(inputs)})
    return hashlib.sha256(text.encode()).hexdigest()


def stage_seed(seed: int, name: str) -> int:
    """Derive a stage's own seed, in [0, 2**31), from the run's seed and the stage's name."""
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % 2**31


def canonical_json(value: object, what: str = "") -> str:
    """Return the one JSON text of a value: sorted names, no spaces, ASCII.

    `1` and `1.0` stay two values: a config should hold the type that its field declares.

    Raises:
        InputError: when a part has no JSON form; the message names the part, `what` being its root.
    """
    return json.dumps(plain(value, what), sort_keys=True, separators=(",", ":"), allow_nan=False)


def plain(value: object, where: str = "") -> Json:
    """Turn a value into dict, list, str, int, float, bool and None, keeping the order of names.

    Tuples become lists, paths their text, numpy scalars Python numbers, dataclasses and enums their content.

    Args:
        value: what to turn.
        where: how an error names the value, for instance `config.learning_rate`.

    Raises:
        InputError: for NaN, infinities, names that are not strings, and objects of any other type.
    """
    value = _unwrapped(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | PurePath):
        return str(value) if isinstance(value, str) else value.as_posix()
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else _finite(float(value), where)
    if isinstance(value, Mapping):
        return {_name(name, where): plain(part, f"{where}.{name}".strip(".")) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, f"{where}[{position}]") for position, part in enumerate(value)]
    raise InputError(
        f"{where or 'the value'} is a {type(value).__name__} ({value!r:.80}); only text, numbers, booleans, "
        "None, paths, lists and mappings can be recorded; turn it into one of these."
    )


def readable(value: object) -> Json:
    """Turn a value into JSON parts for the log, which never refuses: what has no JSON form becomes text."""
    value = _unwrapped(value)
    if isinstance(value, Mapping):
        return {str(name): readable(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [readable(part) for part in value]
    try:
        return plain(value)
    except InputError:
        return str(value)


def _unwrapped(value: object) -> object:
    """Take a numpy scalar, an enum or a dataclass down to what it holds."""
    numpy = sys.modules.get("numpy")  # whoever holds a numpy scalar has imported numpy
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    if isinstance(value, Enum):
        return _unwrapped(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value


def _finite(number: float, where: str) -> float:
    if not math.isfinite(number):
        raise InputError(f"{where or 'the value'} is {number}; only finite numbers can be recorded; correct it.")
    return number + 0.0  # -0.0 and 0.0 are one number


def _name(name: object, where: str) -> str:
    if not isinstance(name, str):
        raise InputError(
            f"{where or 'the mapping'} has the name {name!r} ({type(name).__name__}); names must be strings; "
            f"write {str(name)!r}."
        )
    return str(name)
