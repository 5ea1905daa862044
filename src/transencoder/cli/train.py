"""`train METHOD`, `recipes list|show|run`, `demo`: configs of recipe, `--set` and flags; trained, or only planned."""

import argparse
import logging
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from transencoder import recipes
from transencoder.cli import flags
from transencoder.cli.flags import argument, option
from transencoder.cli.terminal import goes_on_from, show
from transencoder.configs.encoder import SentenceEncoder
from transencoder.configs.ranges import Config, Contradictions
from transencoder.configs.run import RunConfig
from transencoder.errors import InputError, RunInUseError
from transencoder.in_memory import check_file
from transencoder.methods import METHODS, TransEncoder
from transencoder.models import MINILM
from transencoder.runs import wait_until_free
from transencoder.settings import expanded, recipe_toml, settings_of, with_texts

logger = logging.getLogger(__name__)

_DETAILS = """Settings come from the recipe, then --set, then flags: the later wins. `none` unsets one.
A setting whose default is none is chosen when the run starts, as its help says."""

_USUAL = (
    *("sentences", "pairs", "views", "columns", "teacher", "labelled", "dev", "tests", "output", "preset", "cycles"),
    *("max_length", "n_sentences", "device"),
)
"""Settings that `--help` shows; `--help-all` shows all."""

_EXAMPLES = {"start": "minilm", "teacher": "minilm", "labelled": "labelled.tsv", "documents": "documents.txt"}
_SHORTEST = """
  transencoder train --sentences sentences.txt
  transencoder train --pairs pairs.csv --start all-mpnet-base-v2 --dev dev.tsv --output runs/mine

`train` without a method is `train trans-encoder --preset standard`. Other methods, each with its own
`transencoder train METHOD --help`; what they do stands in `transencoder recipes list`:
"""

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


def add_methods(methods: flags.Commands) -> None:
    """Add a command for each method, with every field of its config as a flag."""
    for name, config_class in METHODS.items():
        parser = flags.add_command(methods, name, Train, f"{_summary(config_class)}\n\n{_DETAILS}")
        takes_pairs, config, typed = issubclass(config_class, SentenceEncoder), None, name
        parser.set_defaults(run=_train_method, method=name, instead=_INSTEAD if takes_pairs else {})
        required = [each for each, setting in settings_of(config_class).items() if setting.is_required]
        needed = [f"{flags.flag_of(each)} {each.upper()}" for each in required]
        if config_class is TransEncoder:
            config, typed = TransEncoder(sentences="-").prepared(0), f"[{DEFAULT_METHOD}]"
        if "sentences" not in required and (other := {"pairs", "views"} & set(settings_of(config_class))):
            required, needed = [*required, "sentences"], [*needed, f"(--sentences FILE | --{other.pop()} FILE)"]
        parser.usage = f"transencoder train {typed} {' '.join(needed)} [SETTING ...]"
        command = " ".join(f"{flags.flag_of(each)} {_EXAMPLES.get(each, f'{each}.txt')}" for each in required)
        examples = "".join(f"\n  transencoder train {name} {command}{more}" for more in ("", " --dry-run"))
        if config is not None:
            others = ", ".join(each for each in METHODS if each != name)
            examples = _SHORTEST + textwrap.fill(others, 78, break_on_hyphens=False)
        parser.epilog = f"examples:{examples}"
        flags.add_config_flags(parser, config or config_class, _USUAL)


def _summary(config_class: type) -> str:
    return flags.plain_help(str(config_class.__doc__).partition("\n")[0])


DEFAULT_METHOD = "trans-encoder"


def with_method(typed: Sequence[str]) -> list[str]:
    """Return what was typed with the method, and its preset, that `train` without a method has.

    The preset is `standard`: who types the shortest command keeps its result, and the paper's further cycles cost as
    much again and add no more than another seed does. A recipe says all itself.
    """
    command, *others = typed or [""]
    if command != "train" or (others and not others[0].startswith("-")):
        return list(typed)
    has_recipe = any(each.partition("=")[0] == "--recipe" for each in others)
    return [command, DEFAULT_METHOD, *([] if has_recipe else ["--preset", "standard"]), *others]


def _train_method(args: argparse.Namespace) -> None:
    options = flags.options_from(Train, args)
    config, defaults = _config(options, args)
    _check_files(config)
    if options.dry_run:
        for line in defaults:
            show(line)
        _plan([config])
    else:
        for line in defaults:
            logger.info(line)
        train_and_show(config)


def _check_files(config: RunConfig) -> None:
    """Refuse names of files that are not there, before anything heavy is imported."""
    config = expanded(config)
    names = [
        getattr(config, name) for name, setting in settings_of(type(config)).items() if "is_rows" in setting.metadata
    ]
    for name in (*names, *config.tests):
        if isinstance(name, str):
            check_file(name, config.data_dir)


def _config(options: Train, args: argparse.Namespace) -> tuple[RunConfig, list[str]]:
    """Build the config that recipe, `--set` and flags make together; and say what neither of them chose."""
    config_class, table, origin = METHODS[args.method], dict[str, Any](), "options"
    if options.recipe is not None:
        path = recipes.find_recipe(options.recipe)
        recipe = recipes.read_recipe(path)
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
        recipes.put(table, config_class, override)
    flags.put_flags(table, config_class, args)
    missing = [name for name, setting in settings_of(config_class).items() if setting.is_required and name not in table]
    if missing:
        names = " and ".join(map(flags.flag_of, missing))
        raise InputError(f"{names} missing; `transencoder train {args.method} --help` says what to give.")
    defaults = {"members": ("base model", "--start", MINILM), "output": ("output", "--output", config_class.output)}
    return recipes.build(config_class, table, origin), [
        f"{what} {default}, the default; {flag} gives another"
        for name, (what, flag, default) in defaults.items()
        if name in settings_of(config_class) and name not in table
    ]


def train_and_show(config: RunConfig, recipe: str | None = None) -> None:
    """Train and print what it gave; `recipe` is the name of the recipe that this is a run of."""
    trained = _train(config, recipe)
    _show_result(trained.result)
    for form, best in trained.result["best"].items():
        show(f"{form}: {trained.folder / best['path']}")
    show(f"report: {trained.folder / 'report.html'}")


def _train(config: RunConfig, recipe: str | None = None) -> Any:
    """Train; an interruption then names this run's folder."""
    from transencoder.training import train

    with goes_on_from(expanded(config).output):
        return train(config, recipe=recipe)


def _show_result(result: Any) -> None:
    from transencoder.report.scores import score_rows, summary_table, unlabelled_of
    from transencoder.report.verdict import notes_of, verdict_of
    from transencoder.report.words import pretraining_line

    if score_rows(result):
        show(summary_table(result))
    else:
        show("Nothing was measured with labels: no dev set, no tests.")
        if unlabelled := unlabelled_of(result):
            show(unlabelled.terminal)
    if "mlm" not in result["best"]:
        show(verdict_of(result))
    for line in filter(None, (pretraining_line(result), *notes_of(result))):
        show(line)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train on a small domain that comes along, in about three minutes."""

    output: str = "demo-run"
    """the run folder"""

    def __call__(self) -> None:
        from transencoder import demo

        with goes_on_from(self.output):
            trained = _train(demo.demo_config(self.output))
            _show_result(trained.result)
            show(demo.examples_table(trained))
            show(demo.next_steps(trained.folder), as_it_is=True)


@dataclass(frozen=True, kw_only=True)
class ListRecipes:
    """List the recipes by their methods, with the first line of each."""

    def __call__(self) -> None:
        table, of_method = Table("recipe", "what"), ""
        for name, path in recipes.list_recipes().items():
            if (method := name.partition("/")[0]) != of_method:
                of_method = method
                table.add_section()
                table.add_row(method, _summary(METHODS[method]), style="bold")
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
        full = recipe_toml(recipes.load_recipe(path)) + "\n".join(lines)
        show((full if self.full else path.read_text("utf-8")).rstrip("\n"), as_it_is=True)


@dataclass(frozen=True, kw_only=True)
class RunRecipes(RunOptions):
    """Train as recipes say, one after the other, or go on with their runs."""

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
        if len(self.names) > 1 and (self.output is not None or self.overrides or self.vary or self.sweep):
            yield (
                "--output, --set, --vary and --sweep belong to one recipe, and several are given. "
                "Give one, or leave them out."
            )
        if self.vary and self.sweep:
            yield "--vary makes a table and --sweep a choice; give one of them"

    def __call__(self) -> None:
        named = [recipes.find_recipe(name) for name in self.names]
        as_it_is = replace(self, output=None, overrides=(), vary=(), sweep=(), parity=False)
        ways = {path: self if path in named else as_it_is for name in named for path in recipes.chained(name)}
        planned = {path: _variants(path, way) for path, way in ways.items()}
        if self.dry_run:
            _plan([each.config for runs in planned.values() for each in runs])
            return
        for path, runs in planned.items():
            if ways[path].sweep:
                _choose(runs)
            elif runs[0].name:
                _tabulate(runs)
            elif path in named:
                train_and_show(runs[0].config, runs[0].recipe)
            else:
                _train_before(runs[0])


@dataclass(frozen=True, kw_only=True)
class _Variant:
    """One of the runs of a recipe."""

    name: str
    """Such as `seed-1,bi.epochs-3`; empty for the only run."""
    recipe: str | None
    """The recipe's name and the options that make this run alone; None where the run is not the recipe's own."""
    config: RunConfig


def _variants(path: Path, options: RunRecipes) -> list[_Variant]:
    """Build the runs of a recipe: one, called by the empty name, or one for each combination of varied settings.

    Each takes what it shares with those before it from them: a sweep of `bi.epochs` trains one cross-encoder.
    """
    recipe = recipes.read_recipe(path)
    if recipe.vary and options.sweep:
        raise InputError(f"{path} varies {', '.join(recipe.vary)} itself, as a table; --sweep cannot choose among them")
    if options.parity and not recipe.parity:
        raise InputError(
            f"{path} has no table [parity], which says where a released code differs from the paper; leave --parity out"
        )
    varied = _varied("--vary", options.vary)
    are_own = all(set(values) <= set(recipe.vary.get(setting, ())) for setting, values in varied.items())
    names = {file: name for name, file in recipes.list_recipes().items()}
    own_name = names.get(path) if are_own and not options.overrides and not options.sweep else None
    parity = [f"{name}={value}" for name, value in recipe.parity.items()] if options.parity else []
    output = [] if options.output is None else [f"output={options.output}"]
    runs: list[_Variant] = []
    for name, overrides in recipes.variants(recipe.vary | varied | _varied("--sweep", options.sweep)).items():
        config = recipes.load_recipe(path, [*parity, *options.overrides, *overrides, *output])
        folder = "-".join(part for part in (config.output, "parity" if options.parity else "", name) if part)
        before = tuple(run.config.output for run in runs)
        config = replace(config, output=folder, reuse_from=(*config.reuse_from, *before))
        words = [own_name, "--parity" if options.parity else None, *(f"--vary {override}" for override in overrides)]
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
        absent = {output: start for output, start in stand_ins.items() if not Path(output).exists()}
        planned, starts = _with_stand_ins(config, absent)
        stand_ins[config.output] = _start_of(planned)
        for output in starts:
            if absent[output] is None:
                show(f"starts from {output}, which is not there yet; its plan needs that run")
                break
            show(f"starts from {output}, which is planned above")
        else:
            caches = tuple(each for each in config.reuse_from if each not in outputs)
            found = plan(replace(planned, reuse_from=caches), known=known)
            show(str(found))
            known |= {stage.key for stage in found.stages.values()}


def _with_stand_ins(config: RunConfig, stand_ins: Mapping[str, str | None]) -> tuple[RunConfig, list[str]]:
    """Return a config whose settings that name absent runs name their stand-ins, and the runs that were named."""
    named: list[str] = []

    def stand_in(text: str, name: str) -> str:
        if text not in stand_ins or name.partition(".")[0] in ("output", "reuse_from"):
            return text
        named.append(text)
        return stand_ins[text] or text

    return with_texts(config, stand_in), list(dict.fromkeys(named))


def _start_of(config: RunConfig) -> str | None:
    """Return the base model whose shape a run's model will have; None for a model from nothing."""
    start = config.members[0].start if isinstance(config, TransEncoder) else getattr(config, "start", None)
    return None if start is None else str(start)


def _choose(runs: Sequence[_Variant]) -> None:
    """Train each with its tests off, then score the tests of the one that is best on dev, the first of equals."""
    from transencoder.report.scores import runs_table

    configs = {run.name: run.config for run in runs}
    if any(config.dev is None for config in configs.values()):
        raise InputError("--sweep chooses on the dev set, and there is none; give one: --set dev=FILE, or take --vary")
    if any(config.test_every_eval for config in configs.values()):
        raise InputError("--sweep keeps the tests out of sight, and test_every_eval scores them; leave one of them out")
    results = {name: _train(replace(config, score_tests=False)).result for name, config in configs.items()}
    show(runs_table(results))
    chosen = max(results, key=lambda name: _dev(results[name]))
    show(f"best on dev: {chosen}")
    train_and_show(configs[chosen])


def _dev(result: Any) -> float:
    """Return what chooses: dev of the bi-encoder, which most users serve; of several members, of the best one's."""
    dev = (result["dev"] or {}).get("bi")
    return -math.inf if dev is None else dev


def _tabulate(runs: Sequence[_Variant]) -> None:
    """Train each and show a table of all, in their order."""
    from transencoder.report.scores import runs_table

    show(runs_table({each.name: _train(each.config, each.recipe).result for each in runs}))


def _train_before(run: _Variant) -> None:
    """Train what another recipe comes after; where another process is at it, wait, for its run is what is wanted."""
    while True:
        try:
            return train_and_show(run.config, run.recipe)
        except RunInUseError as error:
            logger.info("waiting: %s", str(error).partition(";")[0])
            wait_until_free(Path(expanded(run.config).output))
