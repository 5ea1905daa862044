"""`evaluate`: how far models, each and all together, agree with gold."""

import argparse
import csv
import io
import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from transencoder.cli.models import PAIRS_HELP, add_reading, add_weights, loaded, pairs_of, weights_of
from transencoder.cli.options import Commands, add_command, add_model_options
from transencoder.cli.terminal import show
from transencoder.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder.scorers import Scorer

ENSEMBLE = "ensemble"


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "evaluate", _evaluate, "measure models on tasks, or on your own scored pairs")
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
    reading = (args.score_column, args.columns, args.split, args.file_format, args.skip_bad_rows, args.bad_rows_file)
    if args.tasks and (any(reading) or args.header is not None):
        raise InputError(
            "--score-column, --columns, --split, --header, --file-format, --skip-bad-rows and --bad-rows-file are for "
            "--pairs; a task has its own"
        )
    if len(args.models) > 1 and ENSEMBLE in args.models:
        raise InputError(f"a model is called {ENSEMBLE}, as their mean is in the table; give it as ./{ENSEMBLE}")
    weights_of(args)  # wrong ones are refused before anything is scored
    metrics, measure = _tasks(args) if args.tasks else _pairs(args)
    found = _measured(args, measure)
    if args.json:
        show(json.dumps(_without_nan(_record(args, metrics, found))))
    elif args.csv:
        show(_csv(metrics, found).rstrip())
    else:
        show(_table(metrics, found))


_Measure = Callable[["Scorer"], dict[str, float]]


def _tasks(args: argparse.Namespace) -> tuple[dict[str, str], _Measure]:
    """The metric of each task, and what measures a scorer on all."""
    from transencoder.evaluation import evaluate_tasks
    from transencoder.tasks import expand

    data = {"data_folder": args.data_dir, "cache_folder": args.cache_dir, "token": args.token}
    tasks = expand(args.tasks)
    classes = [task.name for task in tasks if task.metric == "accuracy"]
    if args.metric and classes:
        raise InputError(
            f"--metric is {args.metric}, but {', '.join(classes)} is of classes and has accuracy; leave one of them out"
        )
    metrics = {task.name: args.metric or task.metric for task in tasks}
    return metrics, lambda scorer: evaluate_tasks(scorer, args.tasks, metric=args.metric, **data)


def _pairs(args: argparse.Namespace) -> tuple[dict[str, str], _Measure]:
    """The same for one's own pairs."""
    from transencoder.evaluation import evaluate

    pairs, metric = pairs_of(args, score_column=args.score_column), args.metric or "spearman"
    return {args.pairs: metric}, lambda scorer: {args.pairs: evaluate(scorer, pairs, metric)}


def _measured(args: argparse.Namespace, measure: _Measure) -> dict[str, dict[str, float]]:
    """Model -> set -> metric and, of several models, those of their ensemble; each scores each set once."""
    from transencoder.scorers import KeptScores, MeanScorer

    weights = weights_of(args)
    with loaded(args) as teachers:
        kept = {teacher.name: KeptScores(teacher.scorer) for teacher in teachers}
        found = {name: measure(scorer) for name, scorer in kept.items()}
    if len(kept) > 1:
        found[ENSEMBLE] = measure(MeanScorer([_Again(each.scores) for each in kept.values()], weights))
    return found


class _Again:
    """Gives kept scores again, in the order of the sets."""

    def __init__(self, scores: list[np.ndarray]) -> None:
        self.scores = iter(scores)

    def score(self, pairs: "Dataset") -> np.ndarray:  # noqa: ARG002 - they are those that were scored
        """The next set's."""
        return next(self.scores)


def _averages(metrics: Mapping[str, str], found: Mapping[str, Mapping[str, float]]) -> dict[str, float | None]:
    """Of each model the mean over the sets; None where these have different metrics."""
    from transencoder.evaluation import average

    has_mean = len(set(metrics.values())) == 1
    return {name: average(scores) if has_mean else None for name, scores in found.items()}


def _record(
    args: argparse.Namespace, metrics: Mapping[str, str], found: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """`scores` and `average` are the only model's, or the ensemble's, which has the models' own below `each`."""
    averages, last = _averages(metrics, found), list(found)[-1]
    record: dict[str, Any] = {
        "models": args.models,
        "metrics": metrics,
        "scores": found[last],
        "average": averages[last],
    }
    if len(found) > 1:
        record["weights"] = weights_of(args)
        record["each"] = {name: {"scores": found[name], "average": averages[name]} for name in args.models}
    return record


def _table(metrics: Mapping[str, str], found: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(caption=next(iter(found)) if len(found) == 1 else None)
    table.add_column("")
    table.add_column("metric x 100")
    for name in found:
        table.add_column("score" if len(found) == 1 else name, justify="right")
    for test, metric in metrics.items():
        table.add_row(test, metric, *(_cell(scores[test]) for scores in found.values()))
    averages = [value for value in _averages(metrics, found).values() if value is not None]
    if len(metrics) > 1 and averages:
        table.add_section()
        table.add_row("average", "", *map(_cell, averages))
    return table


def _cell(value: float) -> str:
    from transencoder.report.text import ABSENT

    return ABSENT if math.isnan(value) else f"{value:.2f}"


def _csv(metrics: Mapping[str, str], found: Mapping[str, Mapping[str, float]]) -> str:
    """A row for each set, a column for each model and the ensemble, unrounded."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["set", "metric", *found])
    for test, metric in metrics.items():
        writer.writerow([test, metric, *(scores[test] for scores in found.values())])
    return text.getvalue()


def _without_nan(record: Any) -> Any:
    """NaN, which JSON does not have, as null."""
    if isinstance(record, dict):
        return {name: _without_nan(value) for name, value in record.items()}
    return None if isinstance(record, float) and math.isnan(record) else record
