"""The fields of a config dataclass: name, type, default and the docstring under it, which is its help everywhere."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from transencoder.configs import nearest


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One field of a config."""

    name: str
    """The field's name."""
    kind: type
    """Type of the value, or of one item of a list: str, int, float, bool or another config dataclass."""
    choices: tuple[str, ...] = ()
    """The allowed values; empty where any value of the type is."""
    is_list: bool = False
    """Whether the value is a tuple of `kind`, an array in TOML."""
    n_items: int | None = None
    """How many items a list has; None: any number."""
    is_optional: bool = False
    """Whether None, which TOML does not have, is allowed."""
    is_required: bool = False
    """Whether there is no default."""
    default: Any = None
    """The default; for a nested config an instance."""
    help: str = ""
    """The docstring under the field, in one line."""
    inner: Mapping[str, "Setting"] = field(default_factory=dict)
    """The settings of a nested config by name, with the defaults, texts and choices that they have here."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What else the field was declared with."""

    @property
    def is_nested(self) -> bool:
        """Whether the value is a config of its own, or a list of them."""
        return is_dataclass(self.kind)

    @property
    def allowed(self) -> str:
        """Words for what may be given, for an error message."""
        words = _WORDS.get(self.kind, "a table")
        if self.choices:
            words = f"one of: {', '.join(self.choices)}"
        return f"a list, each {words}" if self.is_list else words


def settings_of(config_class: type) -> dict[str, Setting]:
    """Return a config dataclass's settings by name: those that it adds to its base, then those of the base."""
    return dict(_settings(config_class))


@cache
def _settings(config_class: type) -> Mapping[str, Setting]:
    hints = get_type_hints(config_class, localns={"Dataset": _Rows})
    lineage = [each for each in reversed(config_class.__mro__) if is_dataclass(each)]
    helps = {name: text for each in lineage for name, text in _docstrings(each).items()}
    own = {each.name: each for each in fields(config_class)}
    return {name: _setting(own[name], hints[name], helps.get(name, "")) for name in _in_order(lineage)}


def nested_settings(config_class: type) -> dict[str, Setting]:
    """Return the same with those of nested configs under dotted names such as `bi.epochs`; no lists of configs."""
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


def unknown_choice(setting: Setting, value: str, name: str) -> str:
    """Say that a value is none of a setting's choices."""
    return f"{name} is {value!r}. It must be {setting.allowed}; the nearest is {nearest(value, setting.choices)}."


def _in_order(lineage: list[type]) -> list[str]:
    """Return the field names of the last class of a line of descent."""
    names: list[str] = []
    for config_class in lineage:
        names = [each.name for each in fields(config_class) if each.name not in names] + names
    return names


class _Rows:
    """Stands for `datasets.Dataset`, which a recipe cannot hold."""


_WORDS: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def _setting(declared: "Field[Any]", hint: Any, docstring: str) -> Setting:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kind = next(option for option in options if option not in (type(None), _Rows))
    is_list = get_origin(kind) is tuple
    items = get_args(kind) if is_list else (kind,)
    choices = get_args(items[0]) if get_origin(items[0]) is Literal else ()
    has_factory = declared.default_factory is not MISSING
    default = declared.default_factory() if declared.default_factory is not MISSING else declared.default
    return Setting(
        name=declared.name,
        kind=str if choices else items[0],
        choices=choices,
        is_list=is_list,
        n_items=len(items) if is_list and Ellipsis not in items else None,
        is_optional=type(None) in options,
        is_required=declared.default is MISSING and not has_factory,
        default=None if default is MISSING else default,
        help=docstring,
        inner=_inner(items[0], default, declared.metadata) if is_dataclass(items[0]) else {},
        metadata=declared.metadata,
    )


def _inner(kind: Any, default: Any, own: Mapping[str, Any]) -> Mapping[str, Setting]:
    """Return a nested config's settings as the field that holds it has them: its default's values, its own texts."""
    inner = settings_of(kind)
    if not isinstance(default, kind):
        return inner
    helps, choices = own.get("helps", {}), own.get("choices", {})
    return {
        name: replace(
            each,
            default=getattr(default, name),
            help=helps.get(name, each.help),
            choices=choices.get(name, each.choices),
        )
        for name, each in inner.items()
    }


@cache
def _docstrings(config_class: type) -> Mapping[str, str]:
    """Return field -> the string that stands under it in the class's source, its lines joined."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(config_class)))
    assert isinstance(tree.body[0], ast.ClassDef)
    body = tree.body[0].body
    return {
        line.target.id: " ".join(text.value.value.split())
        for line, text in zip(body, body[1:], strict=False)
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
