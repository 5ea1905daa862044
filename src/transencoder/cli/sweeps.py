"""Several runs of one recipe: a table of all, or a choice by dev whose tests alone are scored."""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from transencoder.cli.terminal import show
from transencoder.cli.train import train_for, train_or_plan
from transencoder.errors import InputError
from transencoder.methods import Method


@dataclass(frozen=True)
class Variant:
    """One of the runs of a recipe."""

    name: str
    """Such as `seed-1,bi.epochs-3`; empty for the only run."""
    overrides: list[str]
    """What makes it: `seed=1`, `bi.epochs=3`."""
    config: Method[Any]


def choose(runs: Sequence[Variant], args: argparse.Namespace) -> None:
    """Train each with its tests off, then score the tests of the one that is best on dev, the first of equals.

    Args:
        runs: They differ in what is to be chosen.
        args: Of the command.

    Raises:
        InputError: There is no dev set to choose by.
    """
    from transencoder.report.scores import runs_table

    configs = {run.name: run.config for run in runs}
    if any(config.dev is None for config in configs.values()):
        raise InputError("--sweep chooses on the dev set, and there is none; give one: --set dev=FILE, or take --vary")
    if any(config.test_every_eval for config in configs.values()):
        raise InputError("--sweep keeps the tests out of sight, and test_every_eval scores them; leave one of them out")
    blind = {name: replace(config, score_tests=False) for name, config in configs.items()}
    results = {name: train_for(args, config).result for name, config in blind.items()}
    show(runs_table(results))
    chosen = max(results, key=lambda name: _dev(results[name]))
    show(f"best on dev: {chosen}")
    train_or_plan(configs[chosen], args)


def tabulate(runs: Sequence[Variant], args: argparse.Namespace, recipe: str | None) -> None:
    """Train each and show a table of all.

    Args:
        runs: In the order of the table.
        args: Of the command.
        recipe: Name of the recipe that these are the runs of.
    """
    from transencoder.report.scores import runs_table

    results = {}
    for run in runs:
        options = " ".join(f"--vary {override}" for override in run.overrides)  # what makes this run alone
        results[run.name] = train_for(args, run.config, recipe and f"{recipe} {options}").result
    show(runs_table(results))


def _dev(result: Any) -> float:
    """What chooses: dev of the bi-encoder, which is what most users serve; of several members, of the best one's."""
    dev = (result["dev"] or {}).get("bi")
    return -math.inf if dev is None else dev
