"""Options of commands: frozen dataclasses, whose fields are flags and whose docstrings are the help.

A command is such a dataclass that can be called. Its docstring's first line says what it does, and a field's type and
default say which values are allowed. A field that is a dataclass itself is a part that several commands share; its
flags are listed among the others. `train` uses a method's config in the same way; its flags override a recipe.
"""

import argparse
import copy
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from transencoder.errors import InputError
from transencoder.recipes import store, value_from_text
from transencoder.settings import Setting, help_of, nested_settings, settings_of

Options = TypeVar("Options")
Commands = Any
"""What `argparse.ArgumentParser.add_subparsers` returns; the class has no public name."""

_PREFIX = "config:"
_METAVARS = {str: "TEXT", int: "N", float: "X"}


def option(
    default: Any = MISSING,
    *,
    metavar: str | tuple[str, ...] | None = None,
    flag: str | tuple[str, ...] | None = None,
    one_of: str | None = None,
    is_repeated: bool = False,
) -> Any:
    """Declare an option that has more than a type and a default.

    Args:
        default: Default value; without one the option is required.
        metavar: Placeholder for the value in the help.
        flag: The flag, if it differs from the field's name; several flags are alternatives.
        one_of: Name that mutually exclusive options share. If it ends in `!`, one of them must be given.
        is_repeated: Whether a list takes one item per flag: `--set a=1 --set b=2`.
    """
    return field(
        default=default, metadata={"metavar": metavar, "flag": flag, "one_of": one_of, "is_repeated": is_repeated}
    )


def argument(metavar: str, default: Any = MISSING) -> Any:
    """Declare a value that is typed without a flag."""
    return field(default=default, metadata={"metavar": metavar, "is_positional": True})


def part(title: str, description: str | None = None) -> Any:
    """Declare a part whose options are listed under their own title in the help."""
    return field(metadata={"title": title, "description": description})


@dataclass(frozen=True, kw_only=True)
class Logs:
    """Options that all commands have."""

    verbose: bool = False
    """log details too, also those of other libraries"""
    quiet: bool = False
    """log warnings and errors only, show no progress"""


def add_command(commands: Commands, name: str, command: type, description: str = "") -> argparse.ArgumentParser:
    """Add a command with its options and the common ones. Default description: the first line of its docstring."""
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
    """Build a command's options from the parsed arguments."""
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
            names = extra.get("flag") or flag_of(name)
            names = [names] if isinstance(names, str) else names
            group.add_argument(*names, dest=name, **_keywords(setting), **required)


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


def add_config_flags(parser: argparse.ArgumentParser, config: Any, usual: Collection[str]) -> None:
    """Add a flag for each field of a method's config; flags override a recipe.

    The flag of a field of a nested config has a dot: `--bi.epochs`. Nested configs of the same class share the help of
    their fields. Fields of a list of configs, such as members, have no dot: each `--start` begins a new config, to
    which the flags after it belong.

    Args:
        parser: The parser of the method's command.
        config: The method's config class, or a config whose values are shown where a default is None.
        usual: Fields that `--help` shows besides the required ones; `--help-all` shows all.
    """
    settings = settings_of(config if isinstance(config, type) else type(config))
    required = [name for name, setting in settings.items() if setting.is_required]
    parser.formatter_class = partial(_ShortHelp, shown=frozenset(map(flag_of, (*required, *usual, "start"))))
    parser.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all settings and exit")
    own, nested = parser.add_argument_group("settings"), dict[type, list[str]]()
    for name, setting in settings.items():
        if not setting.is_nested:
            _add_config_flag(own, {name: setting})
        elif setting.is_list:
            group = parser.add_argument_group(_title(name, setting))
            for inner in settings_of(setting.kind).values():
                shown = inner
                if inner.is_required and not isinstance(config, type):
                    first = next(iter(getattr(config, name)), None)
                    shown = replace(inner, is_required=False, default=getattr(first, inner.name, None))
                _add_config_flag(group, {inner.name: shown}, list_name=name)
        else:
            nested.setdefault(setting.kind, []).append(name)
    for names in nested.values():
        group = parser.add_argument_group("; ".join(_title(name, settings[name]) for name in names))
        for field_name in settings[names[0]].inner:
            both = {f"{name}.{field_name}": _filled(settings[name], field_name, config) for name in names}
            _add_config_flag(group, both)


def _title(name: str, setting: Setting) -> str:
    return f"{name}: {help_of(setting).rstrip('.')}"


def _filled(setting: Setting, inner: str, config: Any) -> Setting:
    """Return a nested config's setting; if its default is None, the config's value becomes the default."""
    found = setting.inner[inner]
    value = getattr(getattr(config, setting.name), inner)
    return replace(found, default=value) if found.default is None else found


class _ShortHelp(argparse.RawDescriptionHelpFormatter):
    """Help formatter that shows only the settings that people usually change, and all that is not a setting."""

    def __init__(self, prog: str, shown: Set[str]) -> None:
        super().__init__(prog)
        self._shown = shown

    def add_argument(self, action: argparse.Action) -> None:
        if not action.dest.startswith(_PREFIX) or not self._shown.isdisjoint(action.option_strings):
            super().add_argument(action)


class _HelpAll(argparse.Action):
    """Action that shows the help of all settings."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        whole = copy.copy(parser)
        whole.formatter_class = argparse.RawDescriptionHelpFormatter
        whole.print_help()
        parser.exit()


class _Given(argparse.Action):
    """Action that stores a value under the setting whose flag was typed, as several settings may share a help entry."""

    def __call__(self, parser: argparse.ArgumentParser, args: argparse.Namespace, values: Any, flag: Any = "") -> None:
        name = _PREFIX + flag.removeprefix("--no-").removeprefix("--").replace("-", "_")
        if self.nargs == 0:
            values = not flag.startswith("--no-")
        elif self.nargs == "*":  # several after one flag, or the flag several times
            values = [*getattr(args, name, []), *values]
        setattr(args, name, values)


def put_flags(table: dict[str, Any], config_class: type, args: argparse.Namespace) -> None:
    """Put the given flags into a table of plain values, overriding what is there."""
    given = {name.removeprefix(_PREFIX): value for name, value in vars(args).items() if name.startswith(_PREFIX)}
    for name, setting in nested_settings(config_class).items():
        if name in given:
            value = given[name]
            plain = value if isinstance(value, bool) else value_from_text(setting, value, flag_of(name))
            parent, _, last = name.rpartition(".")
            store(table.setdefault(parent, {}) if parent else table, last, plain)
    for name, setting in settings_of(config_class).items():
        if setting.is_nested and setting.is_list and name in given:
            table[name] = _joined(name, table.get(name, []), setting.kind, given[name])


def _add_config_flag(group: Any, settings: Mapping[str, Setting], list_name: str = "") -> None:
    """Add the flags of settings that share a help entry: the same field of nested configs of the same class."""
    name, setting = next(iter(settings.items()))
    flags = [flag_of(each) for each in settings]
    keywords: dict[str, Any] = {"action": _Given, "dest": _PREFIX + (list_name or name), "default": argparse.SUPPRESS}
    keywords["help"] = (help_of(setting) + _default(settings)).replace("%", "%%")
    if setting.kind is bool:
        group.add_argument(*flags, *(flag.replace("--", "--no-", 1) for flag in flags), nargs=0, **keywords)
        return
    if setting.is_list:
        keywords["nargs"] = "*"
    if list_name:  # (field, value) of all members in the order they were typed
        keywords |= {"action": "append", "type": lambda text: (name, text)}
    metavar = f"{{{','.join(setting.choices)}}}" if setting.choices else _METAVARS[setting.kind]
    group.add_argument(*flags, metavar="|".join([metavar, *setting.words]), **keywords)


def _default(settings: Mapping[str, Setting]) -> str:
    """Describe the default of settings that share a help entry, or each default if they differ; nothing for none."""
    if next(iter(settings.values())).is_required:
        return " (required)"
    values = {name: _in_words(each.default) for name, each in settings.items()}
    if len(set(values.values())) > 1:
        return " (default: " + ", ".join(f"{name.partition('.')[0]} {value}" for name, value in values.items()) + ")"
    (value,) = set(values.values())
    return "" if value == "none" else f" (default: {value})"


def _in_words(default: Any) -> str:
    if default in (None, ()):
        return "none"
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _joined(list_name: str, tables: Any, config_class: type, given: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Group the given fields into tables, one for each `--start`; without any, override the recipe's only table."""
    settings = settings_of(config_class)
    first = next(iter(settings))
    if first not in [name for name, _ in given]:
        if not isinstance(tables, list) or len(tables) != 1 or not isinstance(tables[0], dict):
            raise InputError(
                f"{flag_of(given[0][0])} belongs to a {flag_of(first)}, and none is given. "
                f"Give {flag_of(first)} before it, or --set {list_name}.1.{given[0][0]}=..."
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
