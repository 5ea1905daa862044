"""Several runs of one recipe: a table of all, or a choice by dev whose tests alone are scored."""

import argparse
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from transencoder.cli.terminal import show
from transencoder.cli.train import train_for, train_or_plan
from transencoder.errors import InputError
from transencoder.methods import Method


def choose(configs: Mapping[str, Method[Any]], args: argparse.Namespace) -> None:
    """Train each with its tests off, then score the tests of the one that is best on dev, the first of equals.

    Args:
        configs: Name -> config, of runs that differ in what is to be chosen.
        args: Of the command.

    Raises:
        InputError: There is no dev set to choose by.
    """
    from transencoder.report.tables import runs_table

    if any(config.dev is None for config in configs.values()):
        raise InputError("--sweep chooses on the dev set, and there is none; give one: --set dev=FILE, or take --vary")
    blind = {name: replace(config, tests=(), test_every_eval=False) for name, config in configs.items()}
    results = {name: train_for(args, config).result for name, config in blind.items()}
    show(runs_table(results))
    chosen = max(results, key=lambda name: _dev(results[name]))
    show(f"best on dev: {chosen}")
    train_or_plan(configs[chosen], args)


def tabulate(configs: Mapping[str, Method[Any]], args: argparse.Namespace, recipe: str | None) -> None:
    """Train each and show a table of all.

    Args:
        configs: Name -> config.
        args: Of the command.
        recipe: Name of the recipe that these are the runs of.
    """
    from transencoder.report.tables import runs_table

    show(runs_table({name: train_for(args, config, recipe).result for name, config in configs.items()}))


def _dev(result: Any) -> float:
    """What chooses: dev of the bi-encoder, which is what most users serve."""
    dev = (result["dev"] or {}).get("bi")
    return -math.inf if dev is None else dev
