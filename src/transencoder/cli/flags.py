"""The one way to a command's options: a frozen dataclass, whose fields are flags and whose docstrings are their help.

A command is such a dataclass that can be called: its docstring's first line says what it does, and a field's type and
default say what may be typed. A field that is a dataclass itself is a part that commands share: its flags stand among
the others. `train` has a method's config in the same way, over a recipe.
"""

import argparse
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field
from functools import partial
from typing import Any, TypeVar

from transencoder.errors import InputError
from transencoder.recipes import store, value_from_text
from transencoder.settings import Setting, nested_settings, settings_of

Options = TypeVar("Options")
Commands = Any
"""What `argparse.ArgumentParser.add_subparsers` returns; the class has no public name."""

_PREFIX = "config:"
_METAVARS = {str: "TEXT", int: "N", float: "X"}


def option(
    default: Any = MISSING,
    *,
    metavar: str | tuple[str, ...] | None = None,
    flag: str | None = None,
    one_of: str | None = None,
    is_repeated: bool = False,
) -> Any:
    """Declare an option that has more than a type and a default.

    Args:
        default: Without it the option is required.
        metavar: What stands for the value in the help.
        flag: What is typed, where it is not the field's name.
        one_of: A name that options share which exclude each other. If it ends in `!`, one of them must be given.
        is_repeated: The items of a list come one after each flag: `--set a=1 --set b=2`.
    """
    return field(
        default=default, metadata={"metavar": metavar, "flag": flag, "one_of": one_of, "is_repeated": is_repeated}
    )


def argument(metavar: str, default: Any = MISSING) -> Any:
    """Declare a value that is typed without a flag."""
    return field(default=default, metadata={"metavar": metavar, "is_positional": True})


def part(title: str, description: str | None = None) -> Any:
    """Declare a part whose options stand below a title of their own in the help."""
    return field(metadata={"title": title, "description": description})


@dataclass(frozen=True, kw_only=True)
class Logs:
    """Options of all commands."""

    verbose: bool = False
    """log details too, also those of other libraries"""
    quiet: bool = False
    """log warnings and errors only, show no progress"""


def add_command(commands: Commands, name: str, command: type, description: str = "") -> argparse.ArgumentParser:
    """Add a command with its options and those of all; default description: the first line of its docstring."""
    if not description:
        text = str(command.__doc__).partition("\n")[0].rstrip(".")
        description = text[:1].lower() + text[1:]
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=description.partition("\n")[0], description=description, allow_abbrev=False
    )
    parser.set_defaults(parser=parser, run=lambda args: options_from(command, args)())
    exclusive: dict[str, Any] = {}
    for each in (Logs, command):
        _add_options(parser, each, exclusive)
    return parser


def options_from(options_class: type[Options], args: argparse.Namespace) -> Options:
    """Build a command's options of what was typed."""
    values: dict[str, Any] = {}
    for name, setting in settings_of(options_class).items():
        value = options_from(setting.kind, args) if setting.is_nested else getattr(args, name)
        values[name] = tuple(value) if isinstance(value, list) else value
    return options_class(**values)


def flag_of(name: str) -> str:
    """Return the flag of a field: `bi.learning_rate` -> `--bi.learning-rate`."""
    return "--" + name.replace("_", "-")


def _add_options(parser: Any, options_class: type, exclusive: dict[str, Any]) -> None:
    for name, setting in settings_of(options_class).items():
        extra = setting.metadata
        if setting.is_nested:
            title = extra.get("title")
            group = parser.add_argument_group(title, extra["description"]) if title else parser
            _add_options(group, setting.kind, exclusive)
            continue
        group, one_of = parser, extra.get("one_of")
        if one_of:
            group = exclusive.get(one_of) or parser.add_mutually_exclusive_group(required=one_of.endswith("!"))
            exclusive[one_of] = group
        if extra.get("is_positional"):
            group.add_argument(name, **_keywords(setting))
        else:
            required = {"required": True} if setting.is_required else {}
            group.add_argument(extra.get("flag") or flag_of(name), dest=name, **_keywords(setting), **required)


def _keywords(setting: Setting) -> dict[str, Any]:
    extra, default = setting.metadata, setting.default
    is_told = isinstance(default, str | int | float) and setting.kind is not bool
    keywords = {"help": f"{setting.help} (default: {default})" if is_told else setting.help, "default": default}
    if setting.kind is bool:
        return keywords | {"action": argparse.BooleanOptionalAction if setting.is_optional else "store_true"}
    keywords |= {"type": setting.kind, "choices": setting.choices or None}
    keywords["metavar"] = extra.get("metavar") or (None if setting.kind is str else _METAVARS[setting.kind])
    if setting.is_list:
        keywords["default"] = None if default is None else list(default)
        if extra.get("is_repeated"):
            keywords["action"] = "append"
        else:
            may_be_empty = extra.get("is_positional") and not setting.is_required
            keywords["nargs"] = setting.n_items or ("*" if may_be_empty else "+")
    elif extra.get("is_positional") and not setting.is_required:
        keywords["nargs"] = "?"
    return keywords


def add_config_flags(parser: argparse.ArgumentParser, config_class: type) -> None:
    """Add a flag for each field of a method's config, over what a recipe has.

    A field of a nested config has a dot: `--bi.epochs`. Fields of a list of configs, such as members, have
    none: each `--start` begins a new one, to which the flags after it belong.
    """
    groups: dict[str, Any] = {"": parser.add_argument_group("settings")}
    for name, setting in settings_of(config_class).items():
        if setting.is_nested:
            groups[name] = parser.add_argument_group(name, setting.help)
        if setting.is_nested and setting.is_list:
            for inner in settings_of(setting.kind).values():
                _add_config_flag(groups[name], inner, inner.name, dest=_PREFIX + name, is_of_list=True)
    for name, setting in nested_settings(config_class).items():
        _add_config_flag(groups[name.rpartition(".")[0]], setting, name, dest=_PREFIX + name)


def put_flags(table: dict[str, Any], config_class: type, args: argparse.Namespace) -> None:
    """Put the flags that were given into a table of plain values, over what is there."""
    given = {name.removeprefix(_PREFIX): value for name, value in vars(args).items() if name.startswith(_PREFIX)}
    for name, setting in nested_settings(config_class).items():
        if name in given:
            value = given[name]
            plain = value if isinstance(value, bool) else value_from_text(setting, value, flag_of(name))
            parent, _, last = name.rpartition(".")
            store(table.setdefault(parent, {}) if parent else table, last, plain)
    for name, setting in settings_of(config_class).items():
        if setting.is_nested and setting.is_list and name in given:
            table[name] = _joined(table.get(name, []), setting.kind, given[name])


def _add_config_flag(group: Any, setting: Setting, name: str, *, dest: str, is_of_list: bool = False) -> None:
    default = "default: none" if setting.default in (None, ()) else f"default: {setting.default}"
    text = f"{setting.help} ({'required' if setting.is_required else default})".replace("%", "%%")
    keywords: dict[str, Any] = {"dest": dest, "default": argparse.SUPPRESS, "help": text}
    if setting.kind is bool:
        group.add_argument(flag_of(name), action=argparse.BooleanOptionalAction, **keywords)
        return
    if setting.is_list:  # several after one flag, or the flag several times
        keywords |= {"nargs": "*", "action": "extend"}
    if is_of_list:  # (field, value) of all members in the order they were typed
        keywords |= {"action": "append", "type": partial(_named, name)}
    metavar = f"{{{','.join(setting.choices)}}}" if setting.choices else _METAVARS[setting.kind]
    metavar = "|".join([metavar, *setting.words])
    group.add_argument(flag_of(name), metavar=metavar, **keywords)


def _named(name: str, text: str) -> tuple[str, str]:
    return name, text


def _joined(tables: Any, config_class: type, given: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Join the given fields into tables, one for each `--start`; without any, over the recipe's only one."""
    settings = settings_of(config_class)
    first = next(iter(settings))
    if first not in [name for name, _ in given]:
        if not isinstance(tables, list) or len(tables) != 1 or not isinstance(tables[0], dict):
            raise InputError(
                f"{flag_of(given[0][0])} belongs to a {flag_of(first)}, and none is given. "
                f"Give {flag_of(first)} before it, or --set members.1.{given[0][0]}=..."
            )
        joined = [dict(tables[0])]
    else:
        joined = [{} for name, _ in given if name == first]
    position, seen = 0, set[str]()
    for name, text in given:
        if name == first and first in seen:
            position, seen = position + 1, set()
        if name in seen:
            raise InputError(f"{flag_of(name)} is given twice for one {flag_of(first)}. Give it once for each.")
        seen.add(name)
        store(joined[position], name, value_from_text(settings[name], text, flag_of(name)))
    return joined
