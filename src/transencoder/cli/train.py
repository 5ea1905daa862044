"""`train <method>` and `demo`: a config from recipe, `--set` and flags; then training, or only its plan."""

import argparse
from dataclasses import dataclass
from typing import Any

from transencoder.cli.flags import Commands, add_config_flags, add_parser, option, options_from, put_flags
from transencoder.cli.terminal import goes_on_from, show
from transencoder.configs.encoder import SentenceEncoder
from transencoder.configs.ranges import Config
from transencoder.configs.run import RunConfig
from transencoder.errors import InputError
from transencoder.methods import METHODS
from transencoder.recipes import find_recipe, read_recipe
from transencoder.settings import build, expanded, put

_DETAILS = """Settings come from the recipe, then --set, then flags: the later wins. `none` unsets one.
A setting whose default is none is chosen when the run starts, as its help says."""

_INSTEAD = {"--views": "give two texts a row as --sentences FILE --columns a b, the names of their columns"}
"""What methods of sentences that take pairs have for options of other methods."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(Config):
    """Options of every command that trains."""

    overrides: tuple[str, ...] = option((), flag="--set", metavar="NAME=VALUE", is_repeated=True)
    """override the recipe, such as bi.epochs=3 or members.1.pooling=cls; repeatable"""
    dry_run: bool = False
    """only show the plan, the steps, and about how much time and disk"""


@dataclass(frozen=True, kw_only=True)
class Train(RunOptions):
    """Options of `train`, beside the settings of the method."""

    recipe: str | None = option(None, metavar="FILE")
    """recipe to begin from: a TOML file, or a name"""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Options of `demo`."""

    output: str = "demo-run"
    """the run folder"""


def add_methods(methods: Commands) -> None:
    """Add a command for each method, with every field of its config as a flag."""
    for name, config_class in METHODS.items():
        summary = str(config_class.__doc__).partition("\n")[0]
        parser = add_parser(methods, name, f"{summary}\n\n{_DETAILS}", Train)
        parser.usage = f"transencoder train {name} [--recipe FILE] [--set NAME=VALUE] [--dry-run] [SETTING ...]"
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        takes_pairs = issubclass(config_class, SentenceEncoder)
        parser.set_defaults(run=_run, method=name, instead=_INSTEAD if takes_pairs else {})
        add_config_flags(parser, config_class)


def _run(args: argparse.Namespace) -> None:
    options = options_from(Train, args)
    train_or_plan(_config(options, args), is_dry_run=options.dry_run)


def _config(options: Train, args: argparse.Namespace) -> RunConfig:
    """Build the config that recipe, `--set` and flags make together.

    Raises:
        InputError: The recipe is of another method or several runs, or a value does not fit.
    """
    config_class, table, origin = METHODS[args.method], dict[str, Any](), "options"
    if options.recipe is not None:
        path = find_recipe(options.recipe)
        recipe = read_recipe(path)
        table, origin = recipe.table, str(path)
        if recipe.vary:
            raise InputError(
                f"{path}: several runs, which vary {', '.join(recipe.vary)}. Use: transencoder recipes run"
            )
        if recipe.method != args.method:
            raise InputError(
                f"{path}: a recipe of {recipe.method}, not of {args.method}. Run: transencoder train {recipe.method}"
            )
    for override in options.overrides:
        put(table, config_class, override)
    put_flags(table, config_class, args)
    return build(config_class, table, origin)


def train_or_plan(config: RunConfig, *, is_dry_run: bool, recipe: str | None = None) -> None:
    """Train and print the score table, or print the plan; `recipe` is the name of the recipe that this is a run of."""
    if is_dry_run:
        from transencoder.training import plan

        show(str(plan(config)))
        return
    from transencoder.report.notes import notes_of
    from transencoder.report.scores import score_rows, summary_table, unlabelled_of
    from transencoder.report.verdict import verdict_of
    from transencoder.report.words import pretraining_line

    trained = train(config, recipe)
    if score_rows(trained.result):
        show(summary_table(trained.result))
    else:
        show("Nothing was measured with labels: no dev set, no tests.")
        if unlabelled := unlabelled_of(trained.result):
            show(unlabelled.terminal)
    if "mlm" not in trained.result["best"]:
        show(verdict_of(trained.result).sentence)
    for line in filter(None, (pretraining_line(trained.result), *notes_of(trained.result))):
        show(line)
    for form, best in trained.result["best"].items():
        show(f"{form}: {trained.folder / best['path']}")
    show(f"report: {trained.folder / 'report.html'}")


def train(config: RunConfig, recipe: str | None = None) -> Any:
    """Train; an interruption then names this run's folder."""
    from transencoder.training import train as train_config

    with goes_on_from(expanded(config).output):
        return train_config(config, recipe=recipe)


def demo(options: Demo) -> None:
    """Train on a small domain that comes along, in about three minutes."""
    from transencoder.demo import run_demo

    with goes_on_from(options.output):
        run_demo(options.output, show)
