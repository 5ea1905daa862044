"""`recipes list|show|run`: the recipes that come with the project, and several runs of one."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from transencoder.cli.flags import argument, option
from transencoder.cli.terminal import show
from transencoder.cli.train import RunOptions, train, train_or_plan
from transencoder.configs.ranges import Contradictions
from transencoder.configs.run import RunConfig
from transencoder.errors import InputError, RunInUseError
from transencoder.methods import TransEncoder
from transencoder.recipes import chained, find_recipe, list_recipes, load_recipe, read_recipe, recipe_toml, variants
from transencoder.runs import wait_until_free
from transencoder.settings import expanded

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class List:
    """Options of `recipes list`: none."""


def list_all(options: List) -> None:  # noqa: ARG001 - there are none
    """List the recipes, with the first line of each."""
    table = Table("recipe", "what")
    for name, path in list_recipes().items():
        first = path.read_text("utf-8").partition("\n")[0]
        table.add_row(name, first.removeprefix("#").strip() if first.startswith("#") else "")
    show(table)


@dataclass(frozen=True, kw_only=True)
class Show:
    """Options of `recipes show`."""

    name: str = argument("RECIPE")
    """name, as `recipes list` shows it, or a TOML file"""
    full: bool = False
    """write every default out"""


def show_one(options: Show) -> None:
    """Print a recipe."""
    path = find_recipe(options.name)
    recipe = read_recipe(path)
    lines = [f"# after: {', '.join(recipe.after)}"] if recipe.after else []
    lines += [f"# varied: {name} = {', '.join(values)}" for name, values in recipe.vary.items()]
    lines += [f"# parity: {name} = {value}" for name, value in recipe.parity.items()]
    full = recipe_toml(load_recipe(path)) + "\n".join(lines)
    show((full if options.full else path.read_text("utf-8")).rstrip("\n"))


@dataclass(frozen=True, kw_only=True)
class Run(RunOptions):
    """Options of `recipes run`."""

    names: tuple[str, ...] = argument("RECIPE")
    """name, as `recipes list` shows it, or a TOML file"""
    output: str | None = None
    """the run folder of a single recipe (default: the recipe's)"""
    vary: tuple[str, ...] = option((), metavar="NAME=A,B,C", is_repeated=True)
    """one run for each value, in a folder of its own beside the output, and a table of them; repeatable"""
    sweep: tuple[str, ...] = option((), metavar="NAME=A,B,C", is_repeated=True)
    """try each value with the tests off, choose the run whose bi-encoder is best on dev (of several members: whose best
    one is), and score the tests of that run alone; repeatable"""
    parity: bool = False
    """do as the paper's released code where it is not what the paper says, in OUTPUT-parity"""

    def contradictions(self) -> Contradictions:
        """Yield what does not go together."""
        if len(self.names) > 1 and (self.output is not None or self.overrides or self.vary or self.sweep):
            yield (
                "--output, --set, --vary and --sweep belong to one recipe, and several are given. "
                "Give one, or leave them out."
            )
        if self.vary and self.sweep:
            yield "--vary makes a table and --sweep a choice; give one of them"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One of the runs of a recipe."""

    name: str
    """Such as `seed-1,bi.epochs-3`; empty for the only run."""
    overrides: list[str]
    """What makes it: `seed=1`, `bi.epochs=3`."""
    config: RunConfig


def run(options: Run) -> None:
    """Train as recipes say, one after the other, or go on with their runs."""
    recipes = {path: name for name, path in list_recipes().items()}
    named = [find_recipe(name) for name in options.names]
    as_it_is = replace(options, output=None, overrides=(), vary=(), sweep=(), parity=False)
    ways = {path: options if path in named else as_it_is for name in named for path in chained(name)}
    planned = [(path, _variants(path, way), way) for path, way in ways.items()]
    if options.dry_run:
        _plan([each.config for _, runs, _ in planned for each in runs])
        return
    for path, runs, way in planned:
        name = recipes.get(path) if _is_unchanged(path, way) else None
        if name and way.parity:
            name += " --parity"
        if way.sweep:
            _choose(runs)
        elif runs[0].name:
            _tabulate(runs, name)
        elif path in named:
            train_or_plan(runs[0].config, is_dry_run=False, recipe=name)
        else:
            _train_before(runs[0].config, name)


def _variants(path: Path, options: Run) -> list[Variant]:
    """Build the runs of a recipe: one, called by the empty name, or one for each combination of varied settings.

    Each takes what it shares with those before it from them: a sweep of `bi.epochs` trains one cross-encoder.
    """
    recipe = read_recipe(path)
    if recipe.vary and options.sweep:
        raise InputError(f"{path} varies {', '.join(recipe.vary)} itself, as a table; --sweep cannot choose among them")
    if options.parity and not recipe.parity:
        raise InputError(
            f"{path} has no table [parity], which says where a released code differs from the paper; leave --parity out"
        )
    parity = [f"{name}={value}" for name, value in recipe.parity.items()] if options.parity else []
    output = [] if options.output is None else [f"output={options.output}"]
    vary = recipe.vary | _typed("--vary", options.vary) | _typed("--sweep", options.sweep)
    runs: list[Variant] = []
    for name, overrides in variants(vary).items():
        config = load_recipe(path, [*parity, *options.overrides, *overrides, *output])
        folder = "-".join(part for part in (config.output, "parity" if options.parity else "", name) if part)
        before = tuple(run.config.output for run in runs)
        config = replace(config, output=folder, reuse_from=(*config.reuse_from, *before))
        runs.append(Variant(name=name, overrides=overrides, config=config))
    return runs


def _typed(flag: str, given: Sequence[str]) -> dict[str, list[str]]:
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


def _is_unchanged(path: Path, options: Run) -> bool:
    """Tell whether the runs are the recipe's own, all or some of those that it varies."""
    own, varied = read_recipe(path).vary, _typed("--vary", options.vary)
    has_own_values = all(set(values) <= set(own.get(name, ())) for name, values in varied.items())
    return has_own_values and not options.overrides and not options.sweep


def _plan(runs: Sequence[RunConfig]) -> None:
    """Show the plans of runs in their order, as one graph: what one computes the next takes over.

    A run that starts from another's model, which is not there yet, is planned with the model that this one starts from.
    """
    from transencoder.training import plan

    outputs = {config.output for config in runs}
    stand_ins: dict[str, str | None] = {}
    known: set[str] = set()
    for config in runs:
        if len(runs) > 1:
            show(f"{config.output}:")
        absent = {output for output in stand_ins if not Path(output).exists()}
        planned, starts = _with_stand_ins(config, {output: stand_ins[output] for output in absent})
        stand_ins[config.output] = _start_of(planned)
        for output in starts:
            if stand_ins[output] is None:
                show(f"starts from {output}, which is not there yet; its plan needs that run")
                break
            show(f"starts from {output}, which is planned above")
        else:
            lenders = tuple(each for each in config.reuse_from if each not in outputs)
            found = plan(replace(planned, reuse_from=lenders), known=known)
            show(str(found))
            known |= {stage.key for stage in found.stages.values()}


def _with_stand_ins(config: Any, stand_ins: Mapping[str, str | None]) -> tuple[Any, list[str]]:
    """Return a config whose settings that name absent runs name their stand-ins, and the runs that were named."""
    changes: dict[str, Any] = {}
    named: list[str] = []
    for each in fields(config):
        value = getattr(config, each.name)
        if isinstance(value, str) and value in stand_ins and each.name != "output":
            changes[each.name], more = stand_ins[value] or value, [value]
        elif isinstance(value, tuple) and each.name != "reuse_from":
            parts = [_part_with_stand_ins(part, stand_ins) for part in value]
            changes[each.name], more = tuple(part for part, _ in parts), [name for _, names in parts for name in names]
        else:
            continue
        named += more
    return replace(config, **changes), list(dict.fromkeys(named))


def _part_with_stand_ins(part: Any, stand_ins: Mapping[str, str | None]) -> tuple[Any, list[str]]:
    if isinstance(part, str):
        return (stand_ins[part] or part, [part]) if part in stand_ins else (part, [])
    return _with_stand_ins(part, stand_ins) if is_dataclass(part) else (part, [])


def _start_of(config: RunConfig) -> str | None:
    """Return the base model whose shape a run's model will have; None for a model from nothing."""
    start = config.members[0].start if isinstance(config, TransEncoder) else getattr(config, "start", None)
    return None if start is None else str(start)


def _choose(runs: Sequence[Variant]) -> None:
    """Train each with its tests off, then score the tests of the one that is best on dev, the first of equals.

    Raises:
        InputError: There is no dev set to choose by.
    """
    from transencoder.report.scores import runs_table

    configs = {run.name: run.config for run in runs}
    if any(config.dev is None for config in configs.values()):
        raise InputError("--sweep chooses on the dev set, and there is none; give one: --set dev=FILE, or take --vary")
    if any(config.test_every_eval for config in configs.values()):
        raise InputError("--sweep keeps the tests out of sight, and test_every_eval scores them; leave one of them out")
    results = {name: train(replace(config, score_tests=False)).result for name, config in configs.items()}
    show(runs_table(results))
    chosen = max(results, key=lambda name: _dev(results[name]))
    show(f"best on dev: {chosen}")
    train_or_plan(configs[chosen], is_dry_run=False)


def _dev(result: Any) -> float:
    """Return what chooses: dev of the bi-encoder, which most users serve; of several members, of the best one's."""
    dev = (result["dev"] or {}).get("bi")
    return -math.inf if dev is None else dev


def _tabulate(runs: Sequence[Variant], recipe: str | None) -> None:
    """Train each and show a table of all, in their order; `recipe` is the name of what these are the runs of."""
    from transencoder.report.scores import runs_table

    results = {}
    for each in runs:
        options = " ".join(f"--vary {override}" for override in each.overrides)  # what makes this run alone
        results[each.name] = train(each.config, recipe and f"{recipe} {options}").result
    show(runs_table(results))


def _train_before(config: RunConfig, name: str | None) -> None:
    """Train what another recipe comes after; where another process is at it, wait, for its run is what is wanted."""
    while True:
        try:
            return train_or_plan(config, is_dry_run=False, recipe=name)
        except RunInUseError as error:
            logger.info("waiting: %s", str(error).partition(";")[0])
            wait_until_free(Path(expanded(config).output))
