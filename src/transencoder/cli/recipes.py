"""The commands `recipes list|show|run`: show recipes, and train their runs in order, with variations or a choice."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rich.table import Table

from transencoder import recipes
from transencoder.cli.flags import argument, option
from transencoder.cli.terminal import show
from transencoder.cli.train import RunOptions, show_plan, show_run, summary, train_and_show, train_quietly
from transencoder.configs.ranges import Contradictions
from transencoder.configs.run import RunConfig
from transencoder.errors import InputError, RunInUseError
from transencoder.methods import METHODS
from transencoder.runs import wait_until_free
from transencoder.settings import expanded, recipe_toml

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ListRecipes:
    """List the recipes by method, with the first line of each."""

    def __call__(self) -> None:
        table, of_method = Table("recipe", "what"), ""
        for name, path in recipes.list_recipes().items():
            if (method := name.partition("/")[0]) != of_method:
                of_method = method
                table.add_section()
                table.add_row(method, summary(METHODS[method]), style="bold")
            first = path.read_text("utf-8").partition("\n")[0]
            table.add_row(f"  {name}", first.removeprefix("#").strip() if first.startswith("#") else "")
        show(table)


@dataclass(frozen=True, kw_only=True)
class ShowRecipe:
    """Print a recipe."""

    name: str = argument("RECIPE")
    """name, as `recipes list` shows it, or a TOML file"""
    full: bool = False
    """write every default out"""

    def __call__(self) -> None:
        path = recipes.find_recipe(self.name)
        recipe = recipes.read_recipe(path)
        lines = [f"# after: {', '.join(recipe.after)}"] if recipe.after else []
        lines += [f"# varied: {name} = {', '.join(values)}" for name, values in recipe.vary.items()]
        lines += [f"# parity: {name} = {value}" for name, value in recipe.parity.items()]
        lines += [f"# truncated: {name}, {each.layers} of {each.model}" for name, each in recipe.truncate.items()]
        full = recipe_toml(recipes.load_recipe(path)) + "\n".join(lines)
        show((full if self.full else path.read_text("utf-8")).rstrip("\n"), as_it_is=True)


@dataclass(frozen=True, kw_only=True)
class RunRecipes(RunOptions):
    """Train the runs of recipes, one after the other, or resume them."""

    names: tuple[str, ...] = argument("RECIPE")
    """name, as `recipes list` shows it, or a TOML file"""
    output: str | None = None
    """the run folder of a single recipe (default: the recipe's)"""
    vary: tuple[str, ...] = option((), metavar="NAME=A,B,C", is_repeated=True)
    """train one run for each value, in its own folder beside the output, and show a table of them; repeatable"""
    sweep: tuple[str, ...] = option((), metavar="NAME=A,B,C", is_repeated=True)
    """train a run for each value with the tests off, choose the run whose bi-encoder is best on dev (of several
    members: the best one's), and score the tests of that run only; repeatable"""
    engine: Literal["here", "ray"] = "here"
    """where the runs of --vary, --sweep or a recipe's [vary] are trained: in this process, one after the other, or on a
    Ray cluster, side by side, with shared stages computed once (extra ray)"""
    parity: bool = False
    """follow the paper's released code where it differs from the paper, in the folder OUTPUT-parity; recipes that run
    before this one follow it too"""

    def contradictions(self) -> Contradictions:
        if len(self.names) > 1 and (self.output is not None or self.overrides or self.vary or self.sweep):
            yield (
                "--output, --set, --vary and --sweep belong to one recipe, and several are given. "
                "Give one, or leave them out."
            )
        if self.vary and self.sweep:
            yield "--vary makes a table and --sweep a choice; give one of them"

    def __call__(self) -> None:
        from transencoder import distributed

        named = [recipes.find_recipe(name) for name in self.names]
        without = [str(path) for path in named if self.parity and not recipes.read_recipe(path).parity]
        if without:
            raise InputError(
                f"{without[0]} has no table [parity], which says where a released code differs from the paper; leave "
                "--parity out"
            )
        as_it_is = replace(self, output=None, overrides=(), vary=(), sweep=())
        ways = {path: self if path in named else as_it_is for name in named for path in recipes.chained(name)}
        planned = {path: _variants(path, way) for path, way in ways.items()}
        if self.engine == "ray" and not any(runs[0].name for runs in planned.values()):
            raise InputError(
                "--engine ray trains several runs side by side, and there is one; vary settings, or leave it out"
            )
        if not self.dry_run:
            distributed.start()
        for path in ways:
            _truncate(recipes.read_recipe(path).truncate)
        if self.dry_run:
            show_plan([each.config for runs in planned.values() for each in runs])
            return
        for path, runs in planned.items():
            if ways[path].sweep:
                _choose(runs, self.engine)
            elif runs[0].name:
                from transencoder.report.scores import runs_table

                show(runs_table(_trained(runs, self.engine)))
            elif path in named:
                train_and_show(runs[0].config, runs[0].recipe)
            else:
                _train_before(runs[0])


def _truncate(models: Mapping[str, recipes.Truncated]) -> None:
    """Write the truncated models that a recipe starts from if they do not exist yet; a plan needs them too.

    Raises:
        InputError: The folder holds a model with another number of layers.
    """
    from transformers import AutoConfig

    from transencoder import distributed, encoders

    for folder, wanted in models.items():
        if distributed.rank() == 0 and not Path(folder).exists():
            try:
                encoders.truncate(encoders.fetch(wanted.model), wanted.layers, Path(folder))
            except InputError:
                if not Path(folder).exists():  # if it does, a recipe beside this one was quicker
                    raise
        distributed.barrier()
        found = AutoConfig.from_pretrained(folder).num_hidden_layers
        if found != len(wanted.layers):
            raise InputError(
                f"{folder} has {found} layers, and the recipe starts from {len(wanted.layers)} of {wanted.model}; move "
                "it away"
            )


@dataclass(frozen=True, kw_only=True)
class _Variant:
    """One of the runs of a recipe."""

    name: str
    """Name, such as `seed-1,bi.epochs-3`; empty for the only run."""
    recipe: str | None
    """Name of the recipe and options that make this run alone; None if the run is not one of the recipe itself."""
    config: RunConfig


def _variants(path: Path, options: RunRecipes) -> list[_Variant]:
    """Build the runs of a recipe: one, with an empty name, or one for each combination of varied settings.

    Each run reuses the stages that it shares with runs before it: a sweep of `bi.epochs` trains one cross-encoder.
    """
    recipe = recipes.read_recipe(path)
    if recipe.vary and options.sweep:
        raise InputError(f"{path} varies {', '.join(recipe.vary)} itself, as a table; --sweep cannot choose among them")
    varied = _varied("--vary", options.vary)
    are_own = all(set(values) <= set(recipe.vary.get(setting, ())) for setting, values in varied.items())
    names = {file: name for name, file in recipes.list_recipes().items()}
    own_name = names.get(path) if are_own and not options.overrides and not options.sweep else None
    parity = [f"{name}={value}" for name, value in recipes.parity_of(recipe).items()] if options.parity else []
    output = [] if options.output is None else [f"output={options.output}"]
    runs: list[_Variant] = []
    for name, overrides in recipes.variants(recipe.vary | varied | _varied("--sweep", options.sweep)).items():
        config = recipes.load_recipe(path, [*parity, *options.overrides, *overrides, *output])
        folder = "-".join(part for part in (config.output, "parity" if parity else "", name) if part)
        before = tuple(run.config.output for run in runs)
        config = replace(config, output=folder, reuse_from=(*config.reuse_from, *before))
        words = [own_name, "--parity" if parity else None, *(f"--vary {override}" for override in overrides)]
        runs.append(_Variant(name=name, recipe=own_name and " ".join(filter(None, words)), config=config))
    return runs


def _varied(flag: str, given: Sequence[str]) -> dict[str, list[str]]:
    """Read `--vary seed=1,2` as the setting and its values."""
    found: dict[str, list[str]] = {}
    for each in given:
        name, equals, values = each.partition("=")
        if not equals or not all(value.strip() for value in values.split(",")):
            raise InputError(f"{flag} {each}: give a setting and values: {flag} bi.epochs=3,5,10")
        if name.strip() in found:
            raise InputError(f"{flag} {name.strip()} is given twice. Give all values at once: {flag} seed=1,2,3")
        found[name.strip()] = [value.strip() for value in values.split(",")]
    return found


def _choose(runs: Sequence[_Variant], engine: str) -> None:
    """Train each run with its tests off, then score the tests of the run that is best on dev (the first, if equal)."""
    from transencoder.report.scores import runs_table

    configs = {run.name: run.config for run in runs}
    if any(config.dev is None for config in configs.values()):
        raise InputError("--sweep chooses on the dev set, and there is none; give one: --set dev=FILE, or take --vary")
    if any(config.test_every_eval for config in configs.values()):
        raise InputError("--sweep keeps the tests out of sight, and test_every_eval scores them; leave one of them out")
    results = _trained(
        [replace(run, recipe=None, config=replace(run.config, score_tests=False)) for run in runs], engine
    )
    show(runs_table(results))
    chosen = max(results, key=lambda name: _dev(results[name]))
    show(f"best on dev: {chosen}")
    best = _Variant(name=chosen, recipe=None, config=configs[chosen])
    show_run(best.config, _trained([best], engine)[chosen])


def _dev(result: Any) -> float:
    """Return the score to choose by: dev of the bi-encoder, which most users serve; of several members, the best's."""
    dev = (result["dev"] or {}).get("bi")
    return -math.inf if dev is None else dev


def _trained(runs: Sequence[_Variant], engine: str) -> dict[str, Any]:
    """Train each run, and return the results by name."""
    if engine == "here":
        return {each.name: train_quietly(each.config, each.recipe).result for each in runs}
    from transencoder.training.several import train_on_ray

    return dict(zip((each.name for each in runs), train_on_ray([(e.config, e.recipe) for e in runs]), strict=True))


def _train_before(run: _Variant) -> None:
    """Train a run that another recipe needs first. If another process is training it, wait and use its result."""
    while True:
        try:
            return train_and_show(run.config, run.recipe)
        except RunInUseError as error:
            from transencoder import distributed

            logger.info("waiting: %s", str(error).partition(";")[0])
            # By the first rank alone: another might see the lock that the first takes, and wait for ever.
            distributed.from_first(partial(wait_until_free, Path(expanded(run.config).output)))
