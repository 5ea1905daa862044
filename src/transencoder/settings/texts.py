"""Values that are typed as text, in `--set name=value` or as a flag, become plain values of a table."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from transencoder.configs.names import nearest
from transencoder.errors import InputError
from transencoder.settings.fields import Setting, dotted_names, settings_of, unknown_choice

UNSET = "none"
"""What is typed to unset a field that may be None, or to empty a list."""


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
    value = _parsed(setting, text.strip(), name.strip())
    _store(place, setting, value)


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


def _store(place: dict[str, Any], setting: Setting, value: Any) -> None:
    if value is None:
        place.pop(setting.name, None)
    else:
        place[setting.name] = value


def _place(table: dict[str, Any], config_class: type, name: str) -> tuple[dict[str, Any], Setting]:
    """The table that holds a dotted name's last part, made where it is absent, and that part's setting."""
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
    """The table of that number, from 1; the next number makes a new one."""
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
