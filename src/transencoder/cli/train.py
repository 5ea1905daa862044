"""`train <method>`: a config from recipe, `--set` and flags; then training, or only its plan."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from transencoder.cli.flags import add_config_flags, put_flags
from transencoder.cli.options import Commands, add_command
from transencoder.cli.terminal import show
from transencoder.errors import InputError
from transencoder.methods import METHODS, Method, train
from transencoder.methods.start import Sentences, StartMethod
from transencoder.recipes import find_recipe, read_recipe
from transencoder.settings import build, expanded, put


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "train models without labels, or go on with a run that was interrupted"
    parent = commands.add_parser("train", help=summary, description=summary)
    methods = parent.add_subparsers(title="methods", metavar="METHOD", required=True)
    for name, config_class in METHODS.items():
        summary = str(config_class.__doc__).partition("\n")[0]
        parser = add_command(methods, name, _run, f"{summary}\n\n{_DETAILS}")
        parser.usage = f"transencoder train {name} [--recipe FILE] [--set NAME=VALUE] [--dry-run] [SETTING ...]"
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        takes_pairs = issubclass(config_class, StartMethod) and issubclass(config_class, Sentences)
        parser.set_defaults(method=name, instead=_INSTEAD if takes_pairs else {})
        parser.add_argument("--recipe", metavar="FILE", help="recipe to begin from: a TOML file, or a name")
        add_run_options(parser)
        add_config_flags(parser, config_class)


_INSTEAD = {"--views": "give two texts a row as --sentences FILE --columns a b, the names of their columns"}
"""What methods of sentences that take pairs have for options of other methods."""

_DETAILS = """Settings come from the recipe, then --set, then flags: the later wins. `none` unsets one.
A setting whose default is none is chosen when the run starts, as its help says."""


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Options of every command that trains."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="override the recipe, such as bi.epochs=3 or members.1.pooling=cls; repeatable",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only show the plan, the steps, and about how much time and disk",
    )


def config_from(
    args: argparse.Namespace, flags: Mapping[str, Any] | None = None, overrides: Sequence[str] = ()
) -> Method[Any]:
    """The config that recipe, `--set` and flags make together.

    Args:
        args: With `method`, `recipe`, `set`, and the config's flags that were given.
        flags: More fields that win over the recipe.
        overrides: More of what `--set` takes.

    Raises:
        InputError: The recipe is of another method, or a value does not fit.
    """
    method, table, origin = args.method, dict[str, Any](), "options"
    if args.recipe is not None:
        path = find_recipe(args.recipe)
        recipe = read_recipe(path)
        method, table, origin = recipe.method, recipe.table, str(path)
        if recipe.vary and not overrides:
            raise InputError(
                f"{path}: several runs, which vary {', '.join(recipe.vary)}. Use: transencoder recipes run"
            )
    if method != args.method:
        raise InputError(f"{origin}: a recipe of {method}, not of {args.method}. Run: transencoder train {method}")
    for override in (*args.set, *overrides):
        put(table, METHODS[method], override)
    put_flags(table, METHODS[method], args)
    table |= flags or {}
    return build(METHODS[method], table, origin)


def train_or_plan(config: Method[Any], args: argparse.Namespace, recipe: str | None = None) -> None:
    """Train and print the score table, or print the plan; `recipe` is the name of the recipe that this is a run of."""
    if args.dry_run:
        show(str(config.plan()))
        return
    from transencoder.report.notes import notes_of
    from transencoder.report.scores import score_rows, summary_table, unlabelled_of
    from transencoder.report.verdict import verdict_of
    from transencoder.report.words import pretraining_line

    trained = train_for(args, config, recipe)
    if score_rows(trained.result):
        show(summary_table(trained.result))
    else:
        show("Nothing was measured with labels: no dev set, no tests.")
        if unlabelled := unlabelled_of(trained.result):
            show(unlabelled.terminal)
    if "mlm" not in trained.result["best"]:
        show(verdict_of(trained.result).sentence)
    if pretraining := pretraining_line(trained.result):
        show(pretraining)
    for note in notes_of(trained.result):
        show(note)
    for form, best in trained.result["best"].items():
        show(f"{form}: {trained.folder / best['path']}")
    show(f"report: {trained.folder / 'report.html'}")


def train_for(args: argparse.Namespace, config: Method[Any], recipe: str | None = None) -> Any:
    """Train; an interruption then names this run's folder."""
    args.run_folder = expanded(config).output
    return train(config, recipe=recipe)


def _run(args: argparse.Namespace) -> None:
    train_or_plan(config_from(args), args)
