"""Recipes: TOML files that hold one run's whole config; one per row of a paper's table."""

import itertools
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transencoder.configs import nearest
from transencoder.configs.run import RunConfig
from transencoder.errors import InputError
from transencoder.methods import METHODS
from transencoder.settings import build, put, recipe_toml

__all__ = ["Recipe", "chained", "find_recipe", "list_recipes", "load_recipe", "read_recipe", "recipe_toml", "variants"]

_FOLDERS = (Path(__file__).parent / "_recipes", Path(__file__).parents[2] / "recipes")
"""Of an installed wheel, and of the source tree."""


@dataclass(frozen=True)
class Recipe:
    """What a recipe's file says, not yet checked."""

    method: str
    table: dict[str, Any]
    """Fields of the method's config."""
    vary: dict[str, list[str]]
    """Setting -> values, as they are typed: the recipe is one run for each combination; mostly empty."""
    after: list[str]
    """Recipes that run before it, whose folders it may start from."""
    parity: dict[str, str]
    """Setting -> value, as it is typed, of the paper's released code where it is not what the paper says."""


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a recipe into its method's config.

    Args:
        path: A TOML file: `method`, then the fields of the method's config. Relative paths in it are relative
            to the current directory.
        overrides: `name=value` each, such as `bi.epochs=3`; they win over the file.

    Returns:
        The config; what the recipe leaves out has its default. Of a recipe that varies settings, what its runs share.

    Raises:
        InputError: No such file, not TOML, an unknown method or setting, or a value that does not fit.
    """
    recipe = read_recipe(path)
    for override in overrides:
        put(recipe.table, METHODS[recipe.method], override)
    return build(METHODS[recipe.method], recipe.table, str(path))


def variants(vary: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The runs that varied settings make: each combination's name, fit for a folder, and its overrides.

    Args:
        vary: Setting -> values: `{"seed": ["1", "2"]}` gives `seed-1` and `seed-2`.

    Raises:
        InputError: Two combinations have one name.
    """
    combinations = itertools.product(*([(name, value) for value in values] for name, values in vary.items()))
    runs: dict[str, list[str]] = {}
    for each in combinations:
        name = ",".join(f"{name}-{value}" for name, value in each).replace("/", "-")
        if name in runs:
            raise InputError(f"two of the varied runs would lie in one folder, {name}; give each value once")
        runs[name] = [f"{name}={value}" for name, value in each]
    return runs


def read_recipe(path: str | Path) -> Recipe:
    """Read a recipe, its values not yet checked.

    Raises:
        InputError: No such file, not TOML, an unknown method, or a table of the recipe's own that is not of its form.
    """
    try:
        table = tomllib.loads(Path(path).read_text("utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: the recipe cannot be read ({error.strerror}). Give a TOML file.") from error
    except ValueError as error:
        raise InputError(f"{path}: not TOML: {error}. Correct the file at that place.") from error
    method = table.pop("method", None)
    if method not in METHODS:
        found = "method is not set" if method is None else f"method is {method!r}"
        hint = f"; the nearest is {nearest(method, list(METHODS))}" if isinstance(method, str) else ""
        raise InputError(f"{path}: {found}. It must be one of: {', '.join(METHODS)}{hint}.")
    return Recipe(
        method,
        table,
        vary=_varied(table.pop("vary", {}), path),
        after=_after(table.pop("after", []), path),
        parity=_parity(table.pop("parity", {}), path),
    )


def chained(path: Path, waiting: Sequence[Path] = ()) -> list[Path]:
    """A recipe and, before it, those that it comes after, and theirs.

    Args:
        path: Its file.
        waiting: Recipes that come after it.

    Raises:
        InputError: One is not to be had, or waits for itself.
    """
    if path in waiting:
        raise InputError(f"{path} comes after itself; mend its after = [...]")
    before = (chained(find_recipe(name), (*waiting, path)) for name in read_recipe(path).after)
    return list(dict.fromkeys([*itertools.chain.from_iterable(before), path]))


def _after(after: Any, path: str | Path) -> list[str]:
    if not isinstance(after, list) or not all(isinstance(name, str) for name in after):
        raise InputError(
            f'{path}: after is {after!r}. It must be a list of recipes, such as after = ["simcse/plm-mini"].'
        )
    return after


def _parity(parity: Any, path: str | Path) -> dict[str, str]:
    if not isinstance(parity, dict):
        raise InputError(f'{path}: parity is {parity!r}. It must be a table of settings, such as label_policy = "raw".')
    return {name: _typed(value) for name, value in parity.items()}


def _varied(vary: Any, path: str | Path) -> dict[str, list[str]]:
    if not isinstance(vary, dict) or not all(isinstance(values, list) and values for values in vary.values()):
        raise InputError(
            f"{path}: vary is {vary!r}. It must be a table of lists, such as seed = [1, 2, 3], or, in quotes, "
            '"bi.epochs" = [5, 10].'
        )
    return {name: [_typed(value) for value in values] for name, values in vary.items()}


def _typed(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def list_recipes() -> dict[str, Path]:
    """The recipes that come with the project: `<method>/<row>` -> file, sorted by name."""
    found = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for folder in _FOLDERS
        for path in folder.glob("*/*.toml")
    }
    return dict(sorted(found.items()))


def find_recipe(name: str) -> Path:
    """The file of a recipe: a path that exists, or the name of one that comes with the project.

    Raises:
        InputError: There is neither, or several recipes have that name.
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
