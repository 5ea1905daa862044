"""`recipes list|show|run`: the recipes that come with the project."""

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from transencoder.cli.options import Commands, add_command
from transencoder.cli.terminal import show
from transencoder.cli.train import add_run_options, config_from, train_or_plan
from transencoder.errors import InputError
from transencoder.methods import Method
from transencoder.recipes import find_recipe, list_recipes, load_recipe, read_recipe, recipe_toml


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
    add_run_options(parser)


def _list(args: argparse.Namespace) -> None:
    table = Table("recipe", "what")
    for name, path in list_recipes().items():
        first = path.read_text("utf-8").partition("\n")[0]
        table.add_row(name, first.removeprefix("#").strip() if first.startswith("#") else "")
    show(table)


def _show(args: argparse.Namespace) -> None:
    path = find_recipe(args.name)
    show((recipe_toml(load_recipe(path)) if args.full else path.read_text("utf-8")).rstrip("\n"))


def _run(args: argparse.Namespace) -> None:
    if len(args.names) > 1 and (args.output is not None or args.set):
        raise InputError("--output and --set belong to one recipe, and several are given. Give one, or leave them out.")
    recipes = {path: name for name, path in list_recipes().items()}
    configs = [(path, _config(path, args)) for path in map(find_recipe, args.names)]
    for i, (path, config) in enumerate(configs):
        waits_for = [each.output for _, each in configs[:i] if args.dry_run and not Path(each.output).exists()]
        if needed := [output for output in waits_for if f'"{output}"' in recipe_toml(config)]:
            show(f"{config.output}: starts from {needed[0]}, which is not there yet; its plan needs that run")
            continue
        train_or_plan(config, args, None if args.set else recipes.get(path))


def _config(path: Path, args: argparse.Namespace) -> Method[Any]:
    args.recipe = str(path)
    args.method, _ = read_recipe(path)
    return config_from(args, {} if args.output is None else {"output": args.output})
