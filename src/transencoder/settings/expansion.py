"""`~` and environment variables in a config's texts, filled in when a run uses them, not in its recipe."""

import os
import re
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

from transencoder.errors import InputError
from transencoder.settings.fields import settings_of

Config = TypeVar("Config")

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def expanded(config: Config) -> Config:
    """Return a config whose texts have `~`, `$NAME` and `${NAME}` filled in; the token is left as it is.

    Args:
        config: A method's config, as the user gave it.

    Raises:
        InputError: An environment variable is not set.
    """
    return _expanded_config(config, "")


def _expanded_config(config: Config, prefix: str) -> Config:
    assert is_dataclass(config) and not isinstance(config, type)
    values = {
        name: _expanded(getattr(config, name), f"{prefix}{name}")
        for name in settings_of(type(config))
        if name != "token"
    }
    return replace(config, **values)


def _expanded(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return os.path.expanduser(_VARIABLE.sub(lambda match: _variable(match, value, name), value))
    if isinstance(value, tuple):
        return tuple(_expanded(item, f"{name}.{number}") for number, item in enumerate(value, 1))
    return _expanded_config(value, f"{name}.") if is_dataclass(value) else value


def _variable(match: re.Match[str], text: str, name: str) -> str:
    variable = match[1] or match[2]
    if variable not in os.environ:
        raise InputError(f"{name} is {text!r}, but the environment has no {variable}. Set it, or give the path itself.")
    return os.environ[variable]
