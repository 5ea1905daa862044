"""Recipes: TOML files that hold one run's whole config, one per row of a paper's table; and overrides of values."""

import itertools
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from transencoder.configs import nearest
from transencoder.configs.run import RunConfig
from transencoder.errors import InputError, shorten
from transencoder.methods import METHODS
from transencoder.settings import ROWS_MARK, Setting, check_choice, check_kind, dotted_names, refusal, settings_of

Config = TypeVar("Config")

UNSET = "none"
"""Word to type to unset a field that may be None, or to empty a list."""

_READERS: dict[type, Any] = {int: int, float: float, bool: {"true": True, "false": False}.__getitem__}

_FOLDERS = (Path(__file__).parent / "_recipes", Path(__file__).parents[2] / "recipes")
"""Folders of recipes in an installed wheel, and in the source tree."""


@dataclass(frozen=True)
class Truncated:
    """A model that has some of another model's layers."""

    model: str
    layers: list[int]


@dataclass(frozen=True)
class Recipe:
    """The content of a recipe file, not yet checked."""

    method: str
    table: dict[str, Any]
    """Fields of the method's config."""
    vary: dict[str, list[str]]
    """Setting -> values, as typed: the recipe is one run for each combination; usually empty."""
    after: list[str]
    """Recipes that must run before this one, whose folders it may start from."""
    parity: dict[str, str]
    """Setting -> value, as typed, of the paper's released code where that differs from the paper."""
    truncate: dict[str, Truncated]
    """Folder -> the smaller model to write there before the run, if it is not there yet."""


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a recipe into its method's config.

    Args:
        path: A TOML file: `method`, then the fields of the method's config. Relative paths in it are relative
            to the current directory. Or the name of a recipe that comes with the project.
        overrides: `name=value` each, such as `bi.epochs=3`; they win over the file.

    Returns:
        The config, with defaults for what the recipe leaves out. If the recipe varies settings, only what its runs
        share is set.

    Raises:
        InputError: The file does not exist or is not TOML, the method or a setting is unknown, or a value is not
            allowed.
    """
    recipe = read_recipe(path if Path(path).suffix == ".toml" else find_recipe(str(path)))
    for override in overrides:
        put(recipe.table, METHODS[recipe.method], override)
    return build(METHODS[recipe.method], recipe.table, str(path))


def variants(vary: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the runs of varied settings: the name of each combination, usable for a folder, and its overrides.

    `{"seed": ["1", "2"]}` gives `seed-1` and `seed-2`.

    Raises:
        InputError: Two combinations have the same name.
    """
    runs: dict[str, list[str]] = {}
    for values in itertools.product(*vary.values()):
        name = ",".join(f"{name}-{value}" for name, value in zip(vary, values, strict=True)).replace("/", "-")
        if name in runs:
            raise InputError(f"two of the varied runs would lie in one folder, {name}; give each value once")
        runs[name] = [f"{name}={value}" for name, value in zip(vary, values, strict=True)]
    return runs


def read_recipe(path: str | Path) -> Recipe:
    """Read a recipe without checking its values.

    Raises:
        InputError: The file does not exist or is not TOML, the method is unknown, or a table such as `vary` or `after`
            has the wrong form.
    """
    try:
        table = _parsed(Path(path).read_text("utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: the recipe cannot be read ({error.strerror}). Give a TOML file.") from error
    except ValueError as error:
        raise InputError(f"{path}: not TOML: {error}. Correct the file at that place.") from error
    method = table.pop("method", None)
    if not isinstance(method, str) or method not in METHODS:
        found = "method is not set" if method is None else f"method is {shorten(method)}"
        hint = f"; the nearest is {nearest(method, list(METHODS))}" if isinstance(method, str) else ""
        raise InputError(f"{path}: {found}. It must be one of: {', '.join(METHODS)}{hint}.")
    return Recipe(
        method,
        table,
        vary=_varied(table.pop("vary", {}), path),
        after=_after(table.pop("after", []), path),
        parity=_parity(table.pop("parity", {}), path),
        truncate=_truncate(table.pop("truncate", {}), path),
    )


def _parsed(text: str) -> dict[str, Any]:
    """Parse TOML; raise a ValueError where the parser fails, or where arrays or tables are nested too deeply for it."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("arrays or tables are nested too deeply") from error


def chained(path: Path, waiting: Sequence[Path] = ()) -> list[Path]:
    """Return a recipe, preceded by all recipes that must run before it; `waiting` are those that run after it.

    Raises:
        InputError: A recipe does not exist, or comes after itself.
    """
    if path in waiting:
        raise InputError(f"{path} comes after itself; mend its after = [...]")
    before = (chained(find_recipe(name), (*waiting, path)) for name in read_recipe(path).after)
    return list(dict.fromkeys([*itertools.chain.from_iterable(before), path]))


def parity_of(recipe: Recipe) -> dict[str, str]:
    """Return a recipe's `parity` settings, with a `start` from a recipe before it replaced by that one's parity run."""
    settings = dict(recipe.parity)
    start = recipe.table.get("start")
    for before in (read_recipe(find_recipe(name)) for name in recipe.after):
        output = before.table.get("output")
        if recipe.parity and before.parity and isinstance(start, str) and start.startswith(f"{output}"):
            settings["start"] = f"{output}-parity{start.removeprefix(str(output))}"
    return settings


def _after(after: Any, path: str | Path) -> list[str]:
    if not isinstance(after, list) or not all(isinstance(name, str) for name in after):
        raise InputError(
            f'{path}: after is {shorten(after)}. It must be a list of recipes, such as after = ["simcse/plm-mini"].'
        )
    return after


def _parity(parity: Any, path: str | Path) -> dict[str, str]:
    if not isinstance(parity, dict):
        raise InputError(
            f'{path}: parity is {shorten(parity)}. It must be a table of settings, such as label_policy = "raw".'
        )
    return {name: _typed(value) for name, value in parity.items()}


def _truncate(truncate: Any, path: str | Path) -> dict[str, Truncated]:
    for each in truncate.values() if isinstance(truncate, dict) else [{}]:
        own = each if isinstance(each, dict) else {}
        layers = own.get("layers")
        are_layers = isinstance(layers, list) and layers and all(type(i) is int and i >= 0 for i in layers)
        if not (are_layers and isinstance(own.get("model"), str) and len(own) == 2):
            raise InputError(
                f"{path}: truncate is {shorten(truncate)}. It must be a table of folders, such as "
                '"runs/models/minilm-3" = { model = "minilm", layers = [0, 1, 2] }.'
            )
    return {folder: Truncated(**each) for folder, each in truncate.items()}


def _varied(vary: Any, path: str | Path) -> dict[str, list[str]]:
    if not isinstance(vary, dict) or not all(isinstance(values, list) and values for values in vary.values()):
        raise InputError(
            f"{path}: vary is {shorten(vary)}. It must be a table of lists, such as seed = [1, 2, 3], or, in quotes, "
            '"bi.epochs" = [5, 10].'
        )
    return {name: [_typed(value) for value in values] for name, values in vary.items()}


def _typed(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def list_recipes() -> dict[str, Path]:
    """Return the recipes that come with the project: `<method>/<row>` -> file, sorted by name."""
    files = (path for folder in _FOLDERS for path in folder.glob("*/*.toml"))
    return dict(sorted({f"{path.parent.name}/{path.stem}": path for path in files}.items()))


def find_recipe(name: str) -> Path:
    """Return the file of a recipe: a path that exists, or the name of one that comes with the project.

    Raises:
        InputError: There is no such file or recipe, or several recipes have that name.
    """
    recipes = list_recipes()
    if Path(name).is_file():
        return {path.resolve(): path for path in recipes.values()}.get(Path(name).resolve(), Path(name))
    found = [key for key in recipes if name in (key, key.rpartition("/")[2])]
    if len(found) == 1:
        return recipes[found[0]]
    if found:
        raise InputError(f"{name} is the name of several recipes: {', '.join(found)}. Give one of these.")
    hint = f" The nearest recipe is {nearest(name, list(recipes))};" if recipes else ""
    raise InputError(f"{name} is neither a file nor a recipe.{hint} `transencoder recipes list` shows all.")


def build(config_class: type[Config], table: Mapping[str, Any], origin: str) -> Config:
    """Build a config from a table of plain values; error messages begin with `origin`, the file's name, if any.

    Raises:
        InputError: A field is unknown, a value has another type, a required field is missing, or the config itself
            refuses the values.
    """
    try:
        return _built(config_class, table, "", settings_of(config_class), dotted_names(config_class))
    except InputError as error:
        raise InputError(f"{origin}: {error}" if origin else str(error)) from error


def _built(
    make: Callable[..., Config],
    table: Mapping[str, Any],
    prefix: str,
    settings: Mapping[str, Setting],
    names: tuple[str, ...],
) -> Config:
    for name in table:
        if name not in settings:
            raise InputError(
                f"{prefix}{name} is not a setting; the nearest is {nearest(prefix + name, names)}. "
                "Correct the name or take the line out."
            )
    values = {name: _value(settings[name], value, prefix + name, names) for name, value in table.items()}
    for name, setting in settings.items():
        if setting.is_required and name not in values:
            raise InputError(f"{prefix}{name} is not set. It must be {setting.allowed}: {setting.help}")
    try:
        return make(**values)
    except InputError as error:
        raise InputError(f"{prefix}{error}") from error


def _value(setting: Setting, value: Any, name: str, names: tuple[str, ...]) -> Any:
    if not setting.is_list:
        return _item(setting, value, name, names)
    if not isinstance(value, list | tuple):
        raise refusal(setting, value, name)
    return tuple(_item(setting, item, f"{name}.{number}", names) for number, item in enumerate(value, 1))


def _item(setting: Setting, value: Any, name: str, names: tuple[str, ...]) -> Any:
    if setting.is_nested:
        if not isinstance(value, Mapping):
            raise refusal(setting, value, name)
        make = setting.kind if setting.is_list else partial(replace, setting.default)
        return _built(make, value, f"{name}.", setting.inner, names)
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise InputError(f"{name} is {shorten(value)}. A whole number has at most 64 bits.")
    if setting.kind is float and type(value) is int:
        return float(value)
    if isinstance(value, str) and value in setting.words:
        return value
    check_kind(setting, value, name)
    if setting.kind is str and value.startswith(ROWS_MARK):
        raise InputError(
            f"{name} was rows given in Python ({value}), which a recipe cannot hold. "
            "Write them to a file and give its path."
        )
    return value


def put(table: dict[str, Any], config_class: type, override: str) -> None:
    """Put `name=value` into a config's table of plain values, such as `bi.epochs=3` or `members.1.pooling=cls`.

    The value is TOML, or a bare word, which is a string; `none` unsets the setting.

    Raises:
        InputError: There is no `=`, the setting does not exist, or the value has another type.
    """
    name, equals, text = (part.strip() for part in override.partition("="))
    if not equals:
        raise InputError(f"--set {override}: there is no '='. Give a setting and a value: --set bi.epochs=3")
    place, setting = _place(table, config_class, name)
    try:
        value = _parsed(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = None
    except ValueError as error:
        raise InputError(f"--set {name}: {error}. Correct the value.") from error
    if isinstance(value, str) and setting.kind is str:
        value = [value] if setting.is_list else value
    elif not isinstance(value, list):
        value = value_from_text(setting, text, name)
    store(place, setting.name, value)


def value_from_text(setting: Setting, text: str | Sequence[str], name: str) -> Any:
    """Convert the text typed after a flag to a plain value; None unsets the field.

    Numbers of a list may be separated by commas or spaces: `0,2,5` or `0 2 5`.

    Raises:
        InputError: The text is not a value of the setting's type.
    """
    if not setting.is_list:
        return None if setting.is_optional and text == UNSET else _scalar(setting, str(text), name)
    items = [text] if isinstance(text, str) else list(text)
    if items in ([UNSET], [""]):
        return []
    if setting.kind is not str:
        items = [item for part in items for item in part.rstrip(",").split(",")]
    return [_scalar(setting, item, name) for item in items]


def _scalar(setting: Setting, text: str, name: str) -> Any:
    check_choice(setting, text, name)
    if setting.kind is str or text in setting.words:
        return text
    try:
        return _READERS[setting.kind](text)
    except (KeyError, ValueError):
        raise refusal(setting, text, name) from None


def store(table: dict[str, Any], name: str, value: Any) -> None:
    """Store a value in a table; None removes the entry."""
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value


def _place(table: dict[str, Any], config_class: type, name: str) -> tuple[dict[str, Any], Setting]:
    """Return the table that holds a dotted name's last part, created if missing, and the setting of that part."""
    first, *rest = name.split(".")
    settings = settings_of(config_class)
    parent, last = settings.get(first), name
    if rest and parent is not None and parent.is_nested:
        inner: Any = table.setdefault(first, [] if parent.is_list else {})
        if parent.is_list:
            inner = _numbered(inner, rest.pop(0) if len(rest) > 1 else "", name)
        if not isinstance(inner, dict):
            raise InputError(f"{name}: the recipe's {first} is {shorten(inner)}, not a table. Correct it.")
        table, settings, last = inner, parent.inner, ".".join(rest)
    found = settings.get(last)
    if found is None or found.is_nested:
        closest = nearest(name, dotted_names(config_class))
        raise InputError(f"{name}: there is no such setting; the nearest is {closest}.")
    return table, found


def _numbered(tables: Any, number: str, name: str) -> Any:
    """Return the table with this number, counted from 1; the next number creates a new one."""
    n_tables = len(tables) if isinstance(tables, list) else 0
    if not isinstance(tables, list) or number not in map(str, range(1, n_tables + 2)):
        raise InputError(
            f"{name}: {number or 'no number'} given where {n_tables} are in the recipe. "
            f"Number them from 1 to {n_tables + 1}, such as members.1.start=minilm"
        )
    if int(number) > n_tables:
        tables.append({})
    return tables[int(number) - 1]
