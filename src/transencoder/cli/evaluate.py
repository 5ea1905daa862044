"""`evaluate`: how far models, each and all together, agree with gold."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from transencoder import progress
from transencoder.cli.models import PAIRS_HELP, add_reading, add_weights, loaded, pairs_of, weights_of
from transencoder.cli.options import Commands, add_command, add_model_options
from transencoder.cli.terminal import show
from transencoder.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset
    from numpy.typing import NDArray

    from transencoder.bootstrap import RowIntervals
    from transencoder.cli.evaluated import Measured
    from transencoder.evaluation import LabelledSet
    from transencoder.scorers import KeptScores

    Gold = tuple[NDArray[np.float64], NDArray[np.intp] | None]
    """Of n pairs, (n,): gold scores and, of a ranking, the numbers of the queries."""

_SEED = 2021
"""The runs' default: intervals are then those of a run's report."""


def add(commands: Commands) -> None:
    """Add the command."""
    description = "measure models on tasks or your own scored pairs, and gains over the first"
    parser = add_command(commands, "evaluate", _evaluate, description)
    add_model_options(parser)
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--tasks", nargs="+", metavar="TASK", help="tasks or suites, such as sts or stsb askubuntu")
    data.add_argument("--pairs", help=f"pairs with gold scores: {PAIRS_HELP}")
    parser.add_argument("--score-column", help="name of the gold score in --pairs (default: score)")
    parser.add_argument(
        "--metric",
        choices=("spearman", "roc_auc", "map", "mrr_at_10", "ndcg_at_10", "recall_at_10"),
        help="those from map on rank the pairs of equal first sentences (default: spearman, for --tasks their own)",
    )
    add_weights(parser, "in the ensemble, the mean of several models' scores")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of a table")
    form.add_argument("--csv", action="store_true", help="print CSV instead of a table")
    add_reading(parser)


def _evaluate(args: argparse.Namespace) -> None:
    from transencoder.cli.evaluated import ENSEMBLE, as_csv, as_json, as_table, remarks

    reading = (args.score_column, args.columns, args.split, args.file_format, args.skip_bad_rows, args.bad_rows_file)
    if args.tasks and (any(reading) or args.header is not None):
        raise InputError(
            "--score-column, --columns, --split, --header, --file-format, --skip-bad-rows and --bad-rows-file are for "
            "--pairs; a task has its own"
        )
    if len(args.models) > 1 and ENSEMBLE in args.models:
        raise InputError(f"a model is called {ENSEMBLE}, as their mean is in the table; give it as ./{ENSEMBLE}")
    weights_of(args)  # wrong ones are refused before anything is scored
    sets = _tasks(args) if args.tasks else _pairs(args)
    measured = _measured(args, sets)
    if args.json:
        show(as_json(measured, weights_of(args)))
    elif args.csv:
        show(as_csv(measured))
    else:
        show(as_table(measured))
        for line in remarks(measured):
            show(line)


def _tasks(args: argparse.Namespace) -> "dict[str, LabelledSet]":
    """The labelled sets of the tasks."""
    from transencoder.evaluation import load_sets
    from transencoder.tasks import expand

    classes = [task.name for task in expand(args.tasks) if task.metric == "accuracy"]
    if args.metric and classes:
        raise InputError(
            f"--metric is {args.metric}, but {', '.join(classes)} is of classes and has accuracy; leave one of them out"
        )
    data = {"data_folder": args.data_dir, "cache_folder": args.cache_dir, "token": args.token}
    return load_sets(args.tasks, metric=args.metric, **data)


def _pairs(args: argparse.Namespace) -> "dict[str, LabelledSet]":
    """The same of one's own pairs."""
    from transencoder.evaluation import LabelledSet

    pairs = pairs_of(args, score_column=args.score_column)
    return {args.pairs: LabelledSet(pairs, args.metric or "spearman")}


def _measured(args: argparse.Namespace, sets: "Mapping[str, LabelledSet]") -> "Measured":
    """The models and, of several, their ensemble; each scores each set once."""
    from transencoder.cli.evaluated import ENSEMBLE, Measured
    from transencoder.evaluation import gold_of, measure
    from transencoder.ranking import n_ranked
    from transencoder.scorers import KeptScores, MeanScorer

    weights = weights_of(args)
    with loaded(args) as teachers:
        kept = {teacher.name: KeptScores(teacher.scorer) for teacher in teachers}
        found = {model: {name: measure(scorer, each) for name, each in sets.items()} for model, scorer in kept.items()}
    if len(kept) > 1:
        ensemble = KeptScores(MeanScorer([_Again(each.scores) for each in kept.values()], weights))
        found[ENSEMBLE] = {name: measure(ensemble, each) for name, each in sets.items()}
        kept[ENSEMBLE] = ensemble
    metrics = {name: each.metric for name, each in sets.items()}
    gold = {name: gold_of(each.pairs, each.metric) for name, each in sets.items() if each.classes is None}
    return Measured(
        metrics=metrics,
        n_pairs={name: len(each.pairs) for name, each in sets.items()},
        n_queries={name: n_ranked(scores, queries) for name, (scores, queries) in gold.items() if queries is not None},
        scores=found,
        intervals=_intervals(metrics, gold, kept),
    )


class _Again:
    """Gives kept scores again, in the order of the sets."""

    def __init__(self, scores: list[np.ndarray]) -> None:
        self.scores = iter(scores)

    def score(self, pairs: "Dataset") -> np.ndarray:  # noqa: ARG002 - they are those that were scored
        """The next set's."""
        return next(self.scores)


def _intervals(
    metrics: Mapping[str, str], gold: "Mapping[str, Gold]", kept: "Mapping[str, KeptScores]"
) -> "dict[str, RowIntervals]":
    """Of the sets whose pairs are scored and, where these are all and of one metric, of their average."""
    from transencoder.bootstrap import metric_draws, row_intervals
    from transencoder.records import AVERAGE

    draws = {}
    with progress.task("intervals", len(gold)) as advance:
        for i, (name, (gold_scores, queries)) in enumerate(gold.items()):
            scores = np.array([scorer.scores[i] for scorer in kept.values()], np.float64)
            test = Path(name).name.partition(".")[0]  # as runs call it
            drawn = metric_draws(metrics[name], gold_scores, scores, queries, name=test, seed=_SEED)
            if drawn is not None:
                draws[name] = drawn
            advance(1)
    found = {name: row_intervals(drawn, list(kept)) for name, drawn in draws.items()}
    if len(draws) == len(metrics) > 1 and len(set(metrics.values())) == 1:
        found[AVERAGE] = row_intervals(np.mean(list(draws.values()), axis=0), list(kept))
    return found
