"""A table of plain values, as TOML gives it, becomes a config; what does not fit is refused by name."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from transencoder.configs.names import nearest
from transencoder.errors import InputError
from transencoder.settings.fields import Setting, dotted_names, settings_of, unknown_choice
from transencoder.settings.writing import ROWS_MARK

Config = TypeVar("Config")


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
    if not _is_exactly(value, setting.kind):
        raise _refusal(setting, value, origin, name)
    if setting.choices and value not in setting.choices:
        raise InputError(f"{origin}: {unknown_choice(setting, value, name)}")
    if setting.kind is str and value.startswith(ROWS_MARK):
        raise InputError(
            f"{origin}: {name} was rows given in Python ({value}), which a recipe cannot hold. "
            "Write them to a file and give its path."
        )
    return value


def _is_exactly(value: Any, kind: type) -> bool:
    """Whether a value is of a type itself: True is no whole number here."""
    return type(value) is kind


def _refusal(setting: Setting, value: Any, origin: str, name: str) -> InputError:
    return InputError(f"{origin}: {name} is {value!r}. It must be {setting.allowed}.")
