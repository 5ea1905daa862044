"""The commands `train METHOD` and `demo`: build a config from recipe, `--set` and flags, then train or only plan."""

import argparse
import logging
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transencoder import recipes
from transencoder.cli import flags
from transencoder.cli.flags import option
from transencoder.cli.terminal import goes_on_from, show
from transencoder.configs.encoder import SentenceEncoder
from transencoder.configs.ranges import Config
from transencoder.configs.run import RunConfig
from transencoder.errors import InputError
from transencoder.in_memory import check_file
from transencoder.methods import METHODS, TransEncoder
from transencoder.models import MINILM
from transencoder.settings import expanded, plain_help, settings_of, with_texts

logger = logging.getLogger(__name__)

_DETAILS = """Settings come from the recipe, then --set, then flags: the later wins. `none` unsets one.
A setting without a default is chosen when the run starts, as its help says."""

_USUAL = (
    *("sentences", "pairs", "views", "columns", "teacher", "labelled", "dev", "tests", "output", "budget", "preset"),
    *("cycles", "max_length", "n_sentences", "device"),
)
"""Settings that `--help` shows; `--help-all` shows all."""

_EXAMPLES = {"start": "minilm", "teacher": "minilm", "labelled": "labelled.tsv", "documents": "documents.txt"}
_SHORTEST = """
  transencoder train --sentences sentences.txt --budget 20m
  transencoder train --pairs pairs.csv --start all-mpnet-base-v2 --dev dev.tsv --output runs/mine

`train` without a method is `train trans-encoder --preset standard`. Other methods, each with its own
`transencoder train METHOD --help`; `transencoder recipes list` says what they do:
"""

DEFAULT_METHOD = "trans-encoder"

_INSTEAD = {"--views": "give two texts a row as --sentences FILE --columns a b, the names of their columns"}
"""Option of other methods -> what to use instead in methods on sentences that also take pairs."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(Config):
    """Options of every command that trains."""

    overrides: tuple[str, ...] = option((), flag="--set", metavar="NAME=VALUE", is_repeated=True)
    """override the recipe, such as bi.epochs=3 or members.1.pooling=cls; repeatable"""
    dry_run: bool = False
    """only show the plan: the steps, and estimates of time and disk space"""


@dataclass(frozen=True, kw_only=True)
class Train(RunOptions):
    """Options of `train`, beside the settings of the method."""

    recipe: str | None = option(None, metavar="FILE")
    """recipe to start from: a TOML file, or a name"""


def add_methods(methods: flags.Commands) -> None:
    """Add a command for each method, with every field of its config as a flag."""
    for name, config_class in METHODS.items():
        parser = flags.add_command(methods, name, Train, f"{summary(config_class)}\n\n{_DETAILS}")
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


def summary(config_class: type) -> str:
    """Return a one-line summary of a method."""
    return plain_help(str(config_class.__doc__).partition("\n")[0])


def with_method(typed: Sequence[str]) -> list[str]:
    """Return the typed words; to `train` without a method, add the default method and its preset.

    The preset is `standard`, whose settings suit some thousand pairs; a later `--set` or a flag replaces it. A recipe
    needs none.
    """
    command, *others = typed or [""]
    if command != "train" or (others and not others[0].startswith("-")):
        return list(typed)
    has_recipe = any(each.partition("=")[0] == "--recipe" for each in others)
    return [command, DEFAULT_METHOD, *([] if has_recipe else ["--set", "preset=standard"]), *others]


def _train_method(args: argparse.Namespace) -> None:
    options = flags.options_from(Train, args)
    config, defaults = _config(options, args)
    _check_files(config)
    if options.dry_run:
        for line in defaults:
            show(line)
        show_plan([config])
    else:
        for line in defaults:
            logger.info(line)
        train_and_show(config)


def _check_files(config: RunConfig) -> None:
    """Check that all files exist, before anything heavy is imported."""
    config = expanded(config)
    names = [
        getattr(config, name) for name, setting in settings_of(type(config)).items() if "is_rows" in setting.metadata
    ]
    for name in (*names, *config.tests):
        if isinstance(name, str):
            check_file(name, config.data_dir)


def _config(options: Train, args: argparse.Namespace) -> tuple[RunConfig, list[str]]:
    """Build the config from recipe, `--set` and flags; also return lines on the main defaults in use."""
    config_class, table, origin = METHODS[args.method], dict[str, Any](), ""
    if options.recipe is not None:
        path, typed = recipes.find_recipe(options.recipe), shlex.quote(options.recipe)
        recipe = recipes.read_recipe(path)
        table, origin = recipe.table, str(path)
        if recipe.vary:
            raise InputError(
                f"{path}: several runs, which vary {', '.join(recipe.vary)}. Run: transencoder recipes run {typed}"
            )
        if recipe.method != args.method:
            raise InputError(
                f"{path}: a recipe of {recipe.method}, not of {args.method}. Run: transencoder train {recipe.method} "
                f"--recipe {typed}"
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
    """Train and print the result; `recipe` is the name of the recipe that the run belongs to."""
    show_run(config, train_quietly(config, recipe).result)


def show_run(config: RunConfig, result: Any) -> None:
    """Print the result of a training."""
    folder = Path(expanded(config).output)
    _show_result(result)
    for form, best in result["best"].items():
        show(f"{form}: {folder / best['path']}")
    show(f"report, with how to load them and what to do next: {folder / 'report.html'}")


def train_quietly(config: RunConfig, recipe: str | None = None) -> Any:
    """Train without printing the result; an interruption names the folder of this run."""
    from transencoder.training import train

    with goes_on_from(expanded(config).output):
        return train(config, recipe=recipe)


def _show_result(result: Any) -> None:
    from transencoder.report.scores import score_rows, summary_table, unlabelled_of
    from transencoder.report.verdict import notes_of, use_of, verdict_of
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
    if (use := use_of(result)) and use.next == "grade":
        show(f"Next, in about ten minutes: transencoder grade {shlex.quote(result['config']['output'])}", as_it_is=True)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train on a small data set that comes with the package, in one to three minutes."""

    output: str = "demo-run"
    """the run folder"""

    def __call__(self) -> None:
        from transencoder import demo

        with goes_on_from(self.output):
            trained = train_quietly(demo.demo_config(self.output))
            _show_result(trained.result)
            show(demo.examples_table(trained))
            show(demo.next_steps(trained.folder), as_it_is=True)


def show_plan(runs: Sequence[RunConfig]) -> None:
    """Show the plans of runs in their order, as one graph: a run reuses the stages of the runs before it.

    A run may start from another run's model that does not exist yet. It is planned with the base model of that run.
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
    """Replace absent runs in a config's settings by their stand-ins; return the config and the replaced runs."""
    named: list[str] = []

    def stand_in(text: str, name: str) -> str:
        if text not in stand_ins or name.partition(".")[0] in ("output", "reuse_from"):
            return text
        named.append(text)
        return stand_ins[text] or text

    return with_texts(config, stand_in), list(dict.fromkeys(named))


def _start_of(config: RunConfig) -> str | None:
    """Return the base model whose shape a run's model will have; None for a model trained from scratch."""
    start = config.members[0].start if isinstance(config, TransEncoder) else getattr(config, "start", None)
    return None if start is None else str(start)
