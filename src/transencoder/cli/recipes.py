"""`recipes list|show|run`: the recipes that come with the project."""

import argparse
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from transencoder.cli.options import Commands, add_command
from transencoder.cli.sweeps import Variant, choose, tabulate
from transencoder.cli.terminal import show
from transencoder.cli.train import add_run_options, config_from, train_or_plan
from transencoder.configs.run import RunConfig
from transencoder.errors import InputError, RunInUseError
from transencoder.recipes import chained, find_recipe, list_recipes, load_recipe, read_recipe, recipe_toml, variants
from transencoder.runs import wait_until_free

logger = logging.getLogger(__name__)


def add(commands: Commands) -> None:
    """Add the commands."""
    summary = "list, show and run the recipes that come with the project"
    recipes = commands.add_parser("recipes", help=summary, description=summary)
    actions = recipes.add_subparsers(title="actions", metavar="ACTION", required=True)
    add_command(actions, "list", _list, "list the recipes, with the first line of each")
    parser = add_command(actions, "show", _show, "print a recipe")
    parser.add_argument("name", metavar="RECIPE", help="name, as `recipes list` shows it, or a TOML file")
    parser.add_argument("--full", action="store_true", help="write every default out")
    parser = add_command(actions, "run", _run, "train as recipes say, one after the other, or go on with their runs")
    parser.add_argument("names", metavar="RECIPE", nargs="+", help="name, as `recipes list` shows it, or a TOML file")
    parser.add_argument("--output", help="the run folder of a single recipe (default: the recipe's)")
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="NAME=A,B,C",
        help="one run for each value, in a folder of its own beside the output, and a table of them; repeatable",
    )
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="NAME=A,B,C",
        help="try each value with the tests off, choose the run whose bi-encoder is best on dev (of several members: "
        "whose best one is), and score the tests of that run alone; repeatable",
    )
    parser.add_argument(
        "--parity",
        action="store_true",
        help="do as the paper's released code where it is not what the paper says, in OUTPUT-parity",
    )
    add_run_options(parser)


def _list(args: argparse.Namespace) -> None:
    table = Table("recipe", "what")
    for name, path in list_recipes().items():
        first = path.read_text("utf-8").partition("\n")[0]
        table.add_row(name, first.removeprefix("#").strip() if first.startswith("#") else "")
    show(table)


def _show(args: argparse.Namespace) -> None:
    path = find_recipe(args.name)
    recipe = read_recipe(path)
    lines = [f"# after: {', '.join(recipe.after)}"] if recipe.after else []
    lines += [f"# varied: {name} = {', '.join(values)}" for name, values in recipe.vary.items()]
    lines += [f"# parity: {name} = {value}" for name, value in recipe.parity.items()]
    full = recipe_toml(load_recipe(path)) + "\n".join(lines)
    show((full if args.full else path.read_text("utf-8")).rstrip("\n"))


def _run(args: argparse.Namespace) -> None:
    if len(args.names) > 1 and (args.output is not None or args.set or args.vary or args.sweep):
        raise InputError(
            "--output, --set, --vary and --sweep belong to one recipe, and several are given. "
            "Give one, or leave them out."
        )
    if args.vary and args.sweep:
        raise InputError("--vary makes a table and --sweep a choice; give one of them")
    recipes = {path: name for name, path in list_recipes().items()}
    named = [find_recipe(name) for name in args.names]
    as_it_is = argparse.Namespace(**vars(args) | {"output": None, "set": [], "vary": [], "sweep": [], "parity": False})
    ways = {path: args if path in named else as_it_is for name in named for path in chained(name)}
    planned = [(path, _variants(path, way), way) for path, way in ways.items()]
    for i, (path, runs, way) in enumerate(planned):
        name = recipes.get(path) if _is_unchanged(path, way) else None
        if name and way.parity:
            name += " --parity"
        if way.dry_run:
            _plan([run.config for _, each, _ in planned[:i] for run in each], runs, way)
        elif way.sweep:
            choose(runs, way)
        elif runs[0].name:
            tabulate(runs, way, name)
        elif path in named:
            train_or_plan(runs[0].config, way, name)
        else:
            _train_before(runs[0].config, way, name)


def _train_before(config: RunConfig, args: argparse.Namespace, name: str | None) -> None:
    """Train what another recipe comes after; where another process is at it, wait, for its run is what is wanted."""
    while True:
        try:
            return train_or_plan(config, args, name)
        except RunInUseError as error:
            logger.info("waiting: %s", str(error).partition(";")[0])
            wait_until_free(Path(args.run_folder))


def _is_unchanged(path: Path, args: argparse.Namespace) -> bool:
    """Whether the runs are the recipe's own, all or some of those that it varies."""
    own = read_recipe(path).vary
    varied = _typed("--vary", args.vary)
    return not args.set and not args.sweep and all(set(values) <= set(own.get(n, ())) for n, values in varied.items())


def _plan(before: Sequence[RunConfig], runs: Sequence[Variant], args: argparse.Namespace) -> None:
    """The plans of a recipe's runs; one that starts from a run that is not there yet has none."""
    waits_for = [each.output for each in before if not Path(each.output).exists()]
    planned = {*waits_for, *(run.config.output for run in runs)}
    for config in (run.config for run in runs):
        if needed := [output for output in waits_for if f'"{output}"' in recipe_toml(replace(config, reuse_from=()))]:
            show(f"{config.output}: starts from {needed[0]}, which is not there yet; its plan needs that run")
        else:
            lenders = tuple(each for each in config.reuse_from if each not in planned)
            train_or_plan(replace(config, reuse_from=lenders), args)


def _variants(path: Path, args: argparse.Namespace) -> list[Variant]:
    """The runs of a recipe: one, called by the empty name, or one for each combination of varied settings.

    Each takes what it shares with those before it from them: a sweep of `bi.epochs` trains one cross-encoder.
    """
    recipe = read_recipe(path)
    args.recipe, args.method = str(path), recipe.method
    if recipe.vary and args.sweep:
        raise InputError(f"{path} varies {', '.join(recipe.vary)} itself, as a table; --sweep cannot choose among them")
    if args.parity and not recipe.parity:
        raise InputError(
            f"{path} has no table [parity], which says where a released code differs from the paper; leave --parity out"
        )
    if args.parity:
        parity = [f"{name}={value}" for name, value in recipe.parity.items()]
        args = argparse.Namespace(**vars(args) | {"set": [*parity, *args.set]})
    vary = recipe.vary | _typed("--vary", args.vary) | _typed("--sweep", args.sweep)
    flags = {} if args.output is None else {"output": args.output}
    runs: list[Variant] = []
    for name, overrides in variants(vary).items():
        config = config_from(args, flags, overrides)
        output = "-".join(part for part in (config.output, "parity" if args.parity else "", name) if part)
        before = tuple(run.config.output for run in runs)
        config = replace(config, output=output, reuse_from=(*config.reuse_from, *before))
        runs.append(Variant(name, overrides, config))
    return runs


def _typed(flag: str, given: Sequence[str]) -> dict[str, list[str]]:
    """`--vary seed=1,2` -> the setting and its values."""
    found: dict[str, list[str]] = {}
    for each in given:
        name, equals, values = each.partition("=")
        if not equals or not all(value.strip() for value in values.split(",")):
            raise InputError(f"{flag} {each}: give a setting and values: {flag} bi.epochs=3,5,10")
        if name.strip() in found:
            raise InputError(f"{flag} {name.strip()} is given twice. Give all values at once: {flag} seed=1,2,3")
        found[name.strip()] = [value.strip() for value in values.split(",")]
    return found
