"""Every field of a method's config as a flag, and the flags that were given as values of a recipe."""

import argparse
from collections.abc import Sequence
from typing import Any

from transencoder.errors import InputError
from transencoder.settings import Setting, nested_settings, settings_of, value_from_text

_PREFIX = "config:"


def add_config_flags(parser: argparse.ArgumentParser, config_class: type) -> None:
    """Add a flag for each field, with the docstring under the field as help.

    A field of a nested config has a dot: `--bi.epochs`. Fields of a list of configs, such as members, have
    none: each `--start` begins a new one, to which the flags after it belong.
    """
    groups: dict[str, Any] = {"": parser.add_argument_group("settings")}
    for name, setting in settings_of(config_class).items():
        if setting.is_nested:
            groups[name] = parser.add_argument_group(name, setting.help)
        if setting.is_nested and setting.is_list:
            for inner in settings_of(setting.kind).values():
                _add_flag(groups[name], inner, inner.name, dest=_PREFIX + name, action=_AppendField)
    for name, setting in nested_settings(config_class).items():
        _add_flag(groups[name.rpartition(".")[0]], setting, name, dest=_PREFIX + name)


def put_flags(table: dict[str, Any], config_class: type, args: argparse.Namespace) -> None:
    """Put the flags that were given into a table of plain values, over what is there.

    Raises:
        InputError: A value of another type, or a member's field without a start to belong to.
    """
    given = {name.removeprefix(_PREFIX): value for name, value in vars(args).items() if name.startswith(_PREFIX)}
    for name, setting in nested_settings(config_class).items():
        if name in given:
            value = given[name]
            plain = value if isinstance(value, bool) else value_from_text(setting, value, flag(name))
            parent, _, last = name.rpartition(".")
            _put(table.setdefault(parent, {}) if parent else table, last, plain)
    for name, setting in settings_of(config_class).items():
        if setting.is_nested and setting.is_list and name in given:
            table[name] = _joined(table.get(name, []), setting.kind, given[name])


def flag(name: str) -> str:
    """The flag of a field: `bi.learning_rate` -> `--bi.learning-rate`."""
    return "--" + name.replace("_", "-")


def _add_flag(group: Any, setting: Setting, name: str, *, dest: str, action: Any = None) -> None:
    keywords: dict[str, Any] = {"dest": dest, "default": argparse.SUPPRESS, "help": _help(setting)}
    if setting.kind is bool:
        group.add_argument(flag(name), action=argparse.BooleanOptionalAction, **keywords)
        return
    if setting.is_list:  # several after one flag, or the flag several times
        keywords |= {"nargs": "*", "action": "extend"}
    if action is not None:
        keywords["action"] = action
    metavar = f"{{{','.join(setting.choices)}}}" if setting.choices else _METAVARS[setting.kind]
    group.add_argument(flag(name), metavar=metavar, **keywords)


_METAVARS = {str: "TEXT", int: "N", float: "X"}


def _help(setting: Setting) -> str:
    if setting.is_required:
        default = "required"
    elif setting.default is None or setting.default == ():
        default = "default: none"
    else:
        default = f"default: {setting.default}"
    return f"{setting.help} ({default})".replace("%", "%%")


class _AppendField(argparse.Action):
    """Collects (field, value) of the members in the order they were typed."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        field = str(option_string).removeprefix("--").replace("-", "_")
        setattr(namespace, self.dest, [*getattr(namespace, self.dest, []), (field, values)])


def _joined(tables: Any, config_class: type, given: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """The given fields as tables, one for each `--start`; without any, over the recipe's only one."""
    settings = settings_of(config_class)
    first = next(iter(settings))
    if first not in [field for field, _ in given]:
        if not isinstance(tables, list) or len(tables) != 1 or not isinstance(tables[0], dict):
            raise InputError(
                f"{flag(given[0][0])} belongs to a {flag(first)}, and none is given. "
                f"Give {flag(first)} before it, or --set members.1.{given[0][0]}=..."
            )
        joined = [dict(tables[0])]
    else:
        joined = [{} for field, _ in given if field == first]
    position, seen = 0, set[str]()
    for field, text in given:
        if field == first and first in seen:
            position, seen = position + 1, set()
        if field in seen:
            raise InputError(f"{flag(field)} is given twice for one {flag(first)}. Give it once for each.")
        seen.add(field)
        _put(joined[position], field, value_from_text(settings[field], text, flag(field)))
    return joined


def _put(table: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value
