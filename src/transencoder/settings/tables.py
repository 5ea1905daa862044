"""A config as plain tables: made of a recipe's values and of what is typed, and written as TOML."""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import partial
from typing import Any, TypeVar

from transencoder.configs import nearest
from transencoder.errors import InputError
from transencoder.settings.fields import Setting, dotted_names, settings_of, unknown_choice

Config = TypeVar("Config")

ROWS_MARK = "rows:"
"""Begins the value of a field that held a `datasets.Dataset`; the rows' fingerprint follows."""

_SECRETS = ("token",)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
UNSET = "none"
"""What is typed to unset a field that may be None, or to empty a list."""


def build(config_class: type[Config], table: Mapping[str, Any], origin: str) -> Config:
    """Make a config of a table of plain values; what the table lacks takes its default.

    Args:
        config_class: The config's dataclass.
        table: Field -> text, number, truth value, list or table.
        origin: Where the values come from, such as the file's name; error messages begin with it.

    Returns:
        The config.

    Raises:
        InputError: An unknown field, a value of another type, a required field that is absent, or values that
            the config itself refuses.
    """
    return _built(config_class, table, origin, "", dotted_names(config_class), settings_of(config_class))


def _built(
    make: Callable[..., Config],
    table: Mapping[str, Any],
    origin: str,
    prefix: str,
    names: tuple[str, ...],
    settings: Mapping[str, Setting],
) -> Config:
    for name in table:
        if name not in settings:
            raise InputError(
                f"{origin}: {prefix}{name} is not a setting; the nearest is {nearest(prefix + name, names)}. "
                "Correct the name or take the line out."
            )
    values = {name: _value(settings[name], value, origin, prefix + name, names) for name, value in table.items()}
    for name, setting in settings.items():
        if setting.is_required and name not in values:
            raise InputError(f"{origin}: {prefix}{name} is not set. It must be {setting.allowed}: {setting.help}")
    try:
        return make(**values)
    except InputError as error:
        raise InputError(f"{origin}: {prefix}{error}") from error


def _value(setting: Setting, value: Any, origin: str, name: str, names: tuple[str, ...]) -> Any:
    if setting.is_list:
        if not isinstance(value, list | tuple):
            raise _refusal(setting, value, origin, name)
        return tuple(_item(setting, item, origin, f"{name}.{number}", names) for number, item in enumerate(value, 1))
    return _item(setting, value, origin, name, names)


def _item(setting: Setting, value: Any, origin: str, name: str, names: tuple[str, ...]) -> Any:
    if setting.is_nested:
        if not isinstance(value, Mapping):
            raise _refusal(setting, value, origin, name)
        make = setting.kind if setting.is_list else partial(replace, setting.default)
        return _built(make, value, origin, f"{name}.", names, setting.inner)
    if setting.kind is float and type(value) is int:
        return float(value)
    is_exact = type(value) is setting.kind  # True is no whole number here
    if not is_exact:
        raise _refusal(setting, value, origin, name)
    if setting.choices and value not in setting.choices:
        raise InputError(f"{origin}: {unknown_choice(setting, value, name)}")
    if setting.kind is str and value.startswith(ROWS_MARK):
        raise InputError(
            f"{origin}: {name} was rows given in Python ({value}), which a recipe cannot hold. "
            "Write them to a file and give its path."
        )
    return value


def _refusal(setting: Setting, value: Any, origin: str, name: str) -> InputError:
    return InputError(f"{origin}: {name} is {value!r}. It must be {setting.allowed}.")


def put(table: dict[str, Any], config_class: type, override: str) -> None:
    """Put `name=value` into a table of plain values, such as `bi.epochs=3` or `members.1.pooling=cls`.

    Args:
        table: A recipe's values; changed in place.
        config_class: The config that the table is for.
        override: A dotted name, `=`, and a TOML value; a bare word is a text, `none` unsets.

    Raises:
        InputError: There is no `=`, no such setting, or the value is of another type.
    """
    name, equals, text = override.partition("=")
    if not equals:
        raise InputError(f"--set {override}: there is no '='. Give a setting and a value: --set bi.epochs=3")
    place, setting = _place(table, config_class, name.strip())
    store(place, setting.name, _parsed(setting, text.strip(), name.strip()))


def value_from_text(setting: Setting, text: str | Sequence[str], name: str) -> Any:
    """Turn what was typed after a flag into a plain value; None where it unsets the field.

    Numbers of a list may have commas between them, or spaces: `0,2,5` or `0 2 5`.

    Raises:
        InputError: The text is no value of the setting's type.
    """
    if setting.is_list and not isinstance(text, str):
        if list(text) in ([UNSET], [""]):
            return []
        items = text if setting.kind is str else [item for part in text for item in part.rstrip(",").split(",")]
        return [_scalar(setting, item, name) for item in items]
    assert isinstance(text, str)
    return None if setting.is_optional and text == UNSET else _scalar(setting, text, name)


def store(table: dict[str, Any], name: str, value: Any) -> None:
    """Put a value into a table; None takes out what is there."""
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value


def _place(table: dict[str, Any], config_class: type, name: str) -> tuple[dict[str, Any], Setting]:
    """Return the table that holds a dotted name's last part, made where it is absent, and that part's setting."""
    *parents, last = name.split(".")
    settings: Mapping[str, Setting] = settings_of(config_class)
    while parents:
        setting = settings.get(parents.pop(0))
        if setting is None or not setting.is_nested:
            raise _unknown(name, config_class)
        inner: Any = table.setdefault(setting.name, [] if setting.is_list else {})
        if setting.is_list:
            inner = _numbered(inner, parents.pop(0) if parents else "", name)
        if not isinstance(inner, dict):
            raise InputError(f"{name}: the recipe's {setting.name} is {inner!r}, not a table. Correct it.")
        table, settings = inner, setting.inner
    found = settings.get(last)
    if found is None or found.is_nested:
        raise _unknown(name, config_class)
    return table, found


def _numbered(tables: Any, number: str, name: str) -> Any:
    """Return the table of that number, from 1; the next number makes a new one."""
    n_tables = len(tables) if isinstance(tables, list) else 0
    if not isinstance(tables, list) or not number.isdecimal() or not 1 <= int(number) <= n_tables + 1:
        raise InputError(
            f"{name}: {number or 'no number'} given where {n_tables} are in the recipe. "
            f"Number them from 1 to {n_tables + 1}, such as members.1.start=minilm"
        )
    if int(number) > n_tables:
        tables.append({})
    return tables[int(number) - 1]


def _unknown(name: str, config_class: type) -> InputError:
    closest = nearest(name, dotted_names(config_class))
    return InputError(f"{name}: there is no such setting; the nearest is {closest}.")


def _parsed(setting: Setting, text: str, name: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = None
    if isinstance(value, list) or (isinstance(value, str) and setting.kind is str and not setting.is_list):
        return value
    return value_from_text(setting, [text] if setting.is_list else text, name)


def _scalar(setting: Setting, text: str, name: str) -> Any:
    if setting.choices and text not in setting.choices:
        raise InputError(unknown_choice(setting, text, name))
    if setting.kind is str:
        return text
    try:
        return _READERS[setting.kind](text)
    except (KeyError, ValueError):
        raise InputError(f"{name} is {text!r}. It must be {setting.allowed}.") from None


_READERS: dict[type, Any] = {
    int: int,
    float: float,
    bool: lambda text: {"true": True, "false": False}[text],
}


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
