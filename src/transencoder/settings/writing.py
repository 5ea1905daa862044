"""A config becomes a recipe with every field written out; and what its texts stand for when it is used."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

from transencoder.errors import InputError
from transencoder.settings.fields import Setting, settings_of

Config = TypeVar("Config")

ROWS_MARK = "rows:"
"""Begins the value of a field that held a `datasets.Dataset`; the rows' fingerprint follows."""

_SECRETS = ("token",)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def recipe_toml(config: Any) -> str:
    """Write a method's config as a recipe, every default included.

    TOML has no null: a field that is None is a comment. A `datasets.Dataset` is written as its fingerprint,
    and such a recipe cannot be loaded as it is. The token is never written.

    Args:
        config: A method's config.

    Returns:
        TOML that `load_recipe` turns into an equal config.
    """
    return "\n".join([f'method = "{method_name(type(config))}"', *_lines(config, "")]) + "\n"


def method_name(config_class: type) -> str:
    """The method's name: that of its module, one paper a file, with dashes."""
    return config_class.__module__.rpartition(".")[2].replace("_", "-")


def _lines(config: Any, prefix: str) -> Iterator[str]:
    settings = settings_of(type(config)).values()
    for setting in settings:
        if not setting.is_nested:
            yield from _field(setting, getattr(config, setting.name))
    for setting in settings:
        if setting.is_nested:
            name, value = f"{prefix}{setting.name}", getattr(config, setting.name)
            for table in value if setting.is_list else (value,):
                yield from ("", f"[[{name}]]" if setting.is_list else f"[{name}]")
                yield from _lines(table, f"{name}.")


def _field(setting: Setting, value: Any) -> Iterator[str]:
    if setting.name in _SECRETS:
        yield f"# {setting.name}: never written"
    elif value is None:
        yield f"# {setting.name}: not set"
    elif isinstance(value, str | bool | int | float | tuple | list):
        yield f"{setting.name} = {_toml(value)}"
    else:
        from transencoder.pairs import fingerprint

        yield f"# {setting.name}: {len(value)} rows given in Python; give a file to load this recipe"
        yield f"{setting.name} = {_toml(ROWS_MARK + fingerprint(value))}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return repr(value)


def expanded(config: Config, prefix: str = "") -> Config:
    """Return a config whose texts have `~`, `$NAME` and `${NAME}` filled in; the token is left as it is.

    Args:
        config: A method's config, as the user gave it.
        prefix: What stands before its fields' names in messages, such as `bi.`.

    Raises:
        InputError: An environment variable is not set.
    """
    assert is_dataclass(config) and not isinstance(config, type)
    names = [name for name in settings_of(type(config)) if name not in _SECRETS]
    return replace(config, **{name: _expanded(getattr(config, name), f"{prefix}{name}") for name in names})


def _expanded(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return os.path.expanduser(_VARIABLE.sub(lambda match: _variable(match, value, name), value))
    if isinstance(value, tuple):
        return tuple(_expanded(item, f"{name}.{number}") for number, item in enumerate(value, 1))
    return expanded(value, f"{name}.") if is_dataclass(value) else value


def _variable(match: re.Match[str], text: str, name: str) -> str:
    variable = match[1] or match[2]
    if variable not in os.environ:
        raise InputError(f"{name} is {text!r}, but the environment has no {variable}. Set it, or give the path itself.")
    return os.environ[variable]
