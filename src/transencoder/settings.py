"""Config fields as settings: name, type, default, and the docstring below as the help text; and configs as TOML."""

import ast
import inspect
import json
import numbers
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from transencoder.configs import nearest
from transencoder.errors import InputError, shorten

Config = TypeVar("Config")

ROWS_MARK = "rows:"
"""Prefix of the value of a field that held a `datasets.Dataset`; the rows' fingerprint follows."""

_SECRETS = ("token",)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_WORDS: dict[type, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One field of a config."""

    name: str
    """Name of the field."""
    kind: type
    """Type of the value, or of one item of a list: str, int, float, bool or another config dataclass."""
    choices: tuple[str, ...] = ()
    """Allowed values; empty if any value of the type is allowed."""
    words: tuple[str, ...] = ()
    """Strings that are allowed in addition to values of the type, such as `auto` instead of a number."""
    is_list: bool = False
    """Whether the value is a tuple of `kind`, an array in TOML."""
    n_items: int | None = None
    """Number of items in a list; None: any number."""
    is_optional: bool = False
    """Whether None, which TOML does not have, is allowed."""
    is_required: bool = False
    """Whether there is no default."""
    default: Any = None
    """Default value; for a nested config an instance."""
    help: str = ""
    """Docstring below the field, in one line."""
    inner: Mapping[str, "Setting"] = field(default_factory=dict)
    """Settings of a nested config by name, with the defaults and help texts that this field gives them."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata with which the field was declared."""

    @property
    def is_nested(self) -> bool:
        """Whether the value is a config of its own, or a list of them."""
        return is_dataclass(self.kind)

    @property
    def allowed(self) -> str:
        """Description of the allowed values, for an error message."""
        words = f"one of: {', '.join(self.choices)}" if self.choices else _WORDS.get(self.kind, "a table")
        words = " or ".join([*self.words, words])
        return f"a list, each {words}" if self.is_list else words


def settings_of(config_class: type) -> Mapping[str, Setting]:
    """Return a config dataclass's settings by name: those that it adds to its base, then those of the base."""
    return _settings(config_class)  # for mypy, a class of frozen dataclasses is no Hashable, which `cache` asks for


@cache
def _settings(config_class: type) -> Mapping[str, Setting]:
    hints = get_type_hints(config_class, localns={"Dataset": _Rows})
    names: list[str] = []
    helps: dict[str, str] = {}
    for each in reversed(config_class.__mro__):
        if is_dataclass(each):
            names = [own.name for own in fields(each) if own.name not in names] + names
            helps |= _docstrings(each)
    own = {each.name: each for each in fields(config_class)}
    return {name: _setting(own[name], hints[name], helps.get(name, "")) for name in names}


class _Rows:
    """A placeholder for `datasets.Dataset`, which a recipe cannot hold."""


def nested_settings(config_class: type) -> dict[str, Setting]:
    """Return all settings, with those of nested configs under dotted names such as `bi.epochs`; no lists of configs."""
    found: dict[str, Setting] = {}
    for name, setting in settings_of(config_class).items():
        if not setting.is_nested:
            found[name] = setting
        elif not setting.is_list:
            found |= {f"{name}.{inner}": value for inner, value in setting.inner.items()}
    return found


def dotted_names(config_class: type) -> tuple[str, ...]:
    """Return every name that a recipe may hold, such as `bi`, `bi.epochs`, `members` and `members.1.start`."""
    found: list[str] = []
    for name, setting in settings_of(config_class).items():
        prefix = f"{name}.1" if setting.is_list else name
        inner = dotted_names(setting.kind) if setting.is_nested else ()
        found += [name, *(f"{prefix}.{each}" for each in inner)]
    return tuple(found)


def check_values(config: Any, prefix: str = "") -> None:
    """Refuse values that a config's fields cannot hold, such as a string instead of a number, which Python allows.

    Raises:
        InputError: A value has another type, or is not one of the choices.
    """
    for name, setting in settings_of(type(config)).items():
        value = getattr(config, name)
        is_given = value is not None or not setting.is_optional
        is_held = isinstance(value, tuple) if setting.is_list else setting.metadata.get("is_rows") is None
        if is_given and setting.is_list and not is_held:
            raise refusal(setting, value, prefix + name)
        for each in (value if setting.is_list else (value,)) if is_given and is_held else ():
            if setting.is_nested and isinstance(each, setting.kind):
                check_values(each, f"{prefix}{name}.")
            elif not (isinstance(each, str) and each in setting.words):
                check_kind(setting, each, prefix + name)


def check_kind(setting: Setting, value: Any, name: str) -> None:
    """Refuse a value, or an item of a list, that has another type than a setting, or is not one of its choices.

    Raises:
        InputError: The value is not allowed. True and False do not count as numbers.
    """
    kinds: Any = {float: numbers.Real, int: numbers.Integral}.get(setting.kind, setting.kind)
    if not isinstance(value, kinds) or (isinstance(value, bool) and setting.kind is not bool):
        raise refusal(setting, value, name)
    check_choice(setting, value, name)


def refusal(setting: Setting, value: Any, name: str) -> InputError:
    """Return the error for a value that a setting does not allow."""
    return InputError(f"{name} is {shorten(value)}. It must be {setting.allowed}.")


def check_choice(setting: Setting, value: Any, name: str) -> None:
    """Refuse a value that is not one of a setting's choices.

    Raises:
        InputError: It is not one of the choices; the message names the nearest.
    """
    if setting.choices and value not in setting.choices:
        closest = nearest(str(value), setting.choices)
        raise InputError(f"{name} is {shorten(value)}. It must be {setting.allowed}; the nearest is {closest}.")


def _setting(declared: "Field[Any]", hint: Any, docstring: str) -> Setting:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    given: list[Any] = [option for option in options if option not in (type(None), _Rows)]
    words = [option for option in given if get_origin(option) is Literal][: len(given) - 1]  # beside another type
    (kind,) = (option for option in given if option not in words)
    is_list = get_origin(kind) is tuple
    items = get_args(kind) if is_list else (kind,)
    choices = get_args(items[0]) if get_origin(items[0]) is Literal else ()
    default = declared.default if declared.default_factory is MISSING else declared.default_factory()
    return Setting(
        name=declared.name,
        kind=str if choices else items[0],
        choices=choices,
        words=tuple(word for each in words for word in get_args(each)),
        is_list=is_list,
        n_items=len(items) if is_list and Ellipsis not in items else None,
        is_optional=type(None) in options,
        is_required=default is MISSING,
        default=None if default is MISSING else default,
        help=docstring,
        inner=_inner(items[0], default, declared.metadata) if is_dataclass(items[0]) else {},
        metadata=declared.metadata,
    )


def _inner(kind: Any, default: Any, own: Mapping[str, Any]) -> Mapping[str, Setting]:
    """Return a nested config's settings, with the defaults and help texts of the field that holds it."""
    inner = settings_of(kind)
    if not isinstance(default, kind):
        return inner
    helps = own.get("helps", {})
    return {
        name: replace(each, default=getattr(default, name), help=helps.get(name, each.help))
        for name, each in inner.items()
    }


@cache
def _docstrings(config_class: type) -> Mapping[str, str]:
    """Return field -> the string below it in the class's source, with its lines joined."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(config_class)))
    assert isinstance(tree.body[0], ast.ClassDef)
    body = tree.body[0].body
    return {
        line.target.id: " ".join(text.value.value.split())
        for line, text in zip(body, body[1:], strict=False)
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def recipe_toml(config: Any) -> str:
    """Write a method's config as a recipe, every default included.

    TOML has no null: a field that is None is a comment. A `datasets.Dataset` is written as its fingerprint,
    and such a recipe cannot be loaded as it is. The token is never written.

    Returns:
        TOML that `load_recipe` turns into an equal config.
    """
    return "\n".join([f'method = "{method_name(type(config))}"', *_lines(config, "")]) + "\n"


def method_name(config_class: type) -> str:
    """Return the method's name: the name of its module, which has one method only, with dashes."""
    return config_class.__module__.rpartition(".")[2].replace("_", "-")


def _lines(config: Any, prefix: str) -> Iterator[str]:
    settings = settings_of(type(config)).values()
    for setting in settings:
        if not setting.is_nested:
            yield from _field(setting.name, getattr(config, setting.name))
    for setting in settings:
        if setting.is_nested:
            name, value = f"{prefix}{setting.name}", getattr(config, setting.name)
            if value == ():
                yield from ("", f"# {name}: none")
            for table in value if setting.is_list else (value,):
                yield from ("", f"[[{name}]]" if setting.is_list else f"[{name}]")
                yield from _lines(table, f"{name}.")


def _field(name: str, value: Any) -> Iterator[str]:
    if name in _SECRETS:
        yield f"# {name}: never written"
    elif value is None:
        yield f"# {name}: not set"
    elif isinstance(value, str | bool | int | float | tuple | list):
        yield f"{name} = {_toml(value)}"
    else:
        from transencoder.pairs import fingerprint

        yield f"# {name}: {len(value)} rows given in Python; give a file to load this recipe"
        yield f"{name} = {_toml(ROWS_MARK + fingerprint(value))}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, tuple | list) else repr(value)


def expanded(config: Config) -> Config:
    """Return a config with `~`, `$NAME` and `${NAME}` expanded in its strings; the token is left as it is.

    Raises:
        InputError: An environment variable is not set.
    """
    return with_texts(config, _filled)


def with_texts(config: Config, change: Callable[[str, str], str], prefix: str = "") -> Config:
    """Return a config with changed strings, also in its lists and nested configs; the token is left as it is.

    `change` takes a string and its dotted name, such as `members.1.start`, and returns the new string.
    """
    assert is_dataclass(config) and not isinstance(config, type)

    def changed(value: Any, name: str) -> Any:
        if isinstance(value, str):
            return change(value, name)
        if isinstance(value, tuple):
            return tuple(changed(item, f"{name}.{number}") for number, item in enumerate(value, 1))
        return with_texts(value, change, f"{name}.") if is_dataclass(value) else value

    names = [name for name in settings_of(type(config)) if name not in _SECRETS]
    return replace(config, **{name: changed(getattr(config, name), f"{prefix}{name}") for name in names})


def _filled(text: str, name: str) -> str:
    def variable(match: re.Match[str]) -> str:
        found = os.environ.get(match[1] or match[2])
        if found is None:
            unset = match[1] or match[2]
            raise InputError(
                f"{name} is {text!r}, but the environment has no {unset}. Set it, or give the path itself."
            )
        return found

    return os.path.expanduser(_VARIABLE.sub(variable, text))


_REFERENCE = re.compile(
    r"(?<!`)\b([Pp]apers?|et al|Tables?|Figures?|[Ss]ections?|[Ee]quations?|[Aa]ppendix|[Rr]eleased code)\b"
)


def plain_help(text: str) -> str:
    """Return a setting's help without brackets and sentences about papers and their code, which belong in the docs."""
    brackets = re.sub(r" ?\([^()]*\)", lambda found: "" if _REFERENCE.search(found[0]) else found[0], text)
    sentences = re.split(r"(?<=\.) (?=[A-Z`])", brackets)
    return " ".join(each for each in sentences if not _REFERENCE.search(each)) or text


def help_of(setting: Setting) -> str:
    """Return a setting's help for people: what is said of None is said of the default, or of the word `none`."""
    first, later = ("Default", "default") if setting.default in (None, ()) else ("`none`", "`none`")
    text = re.sub(r"(^|\. )None: ", rf"\g<1>{first}: ", plain_help(setting.help))
    return re.sub(r"; None: ", f"; {later}: ", text)
