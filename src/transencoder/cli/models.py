"""`evaluate`, `score` and `label`: what models say of pairs."""

import argparse
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, get_args

from rich.table import Table

from transencoder.cli.options import (
    Commands,
    add_command,
    add_data_options,
    add_model_options,
    add_pairs_options,
    reading,
)
from transencoder.cli.rows import STDOUT, check_output, whole_file, write_rows
from transencoder.cli.terminal import show
from transencoder.config import LabelPolicy
from transencoder.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder.labels import Teacher
    from transencoder.scorers import Scorer

_PAIRS_HELP = "TSV, CSV, JSONL or Parquet file, - for stdin, hub id (id:config@revision)"


def add(commands: Commands) -> None:
    """Add the commands."""
    parser = add_command(commands, "evaluate", _evaluate, "measure models on tasks, or on your own scored pairs")
    add_model_options(parser)
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--tasks", nargs="+", metavar="TASK", help="tasks or suites, such as sts or stsb askubuntu")
    data.add_argument("--pairs", help=f"pairs with gold scores: {_PAIRS_HELP}")
    parser.add_argument("--score-column", help="name of the gold score in --pairs (default: score)")
    parser.add_argument(
        "--metric",
        choices=("spearman", "roc_auc", "map", "mrr_at_10"),
        help="map and mrr_at_10 rank the pairs of equal first sentences (default: spearman, for --tasks their own)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_reading(parser)

    parser = add_command(commands, "score", _score, "score pairs: sentence1, sentence2, score")
    add_model_options(parser)
    parser.add_argument("--pairs", required=True, help=_PAIRS_HELP)
    parser.add_argument("--output", default=STDOUT, metavar="FILE", help=".tsv, .csv, .jsonl or .parquet (default: -)")
    _add_reading(parser)

    parser = add_command(commands, "label", _label, "label pairs with models: pseudo-labels any trainer can read")
    add_model_options(parser)
    parser.add_argument("--pairs", required=True, help=_PAIRS_HELP)
    parser.add_argument(
        "--policy",
        choices=get_args(LabelPolicy),
        default="clip",
        help="how scores become targets (default: clip)",
    )
    parser.add_argument(
        "--weights", nargs="+", type=float, metavar="X", help="share of each model in the labels (default: equal)"
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE.parquet",
        help="sentence1, sentence2 and label, as trainers take them; each model's raw scores go to FILE.raw.parquet",
    )
    _add_reading(parser)


def _add_reading(parser: argparse.ArgumentParser) -> None:
    add_pairs_options(parser)
    add_data_options(parser)


def _evaluate(args: argparse.Namespace) -> None:
    reading = (args.score_column, args.columns, args.split, args.file_format, args.skip_bad_rows, args.bad_rows_file)
    if args.tasks and (any(reading) or args.header is not None):
        raise InputError(
            "--score-column, --columns, --split, --header, --file-format, --skip-bad-rows and --bad-rows-file are for "
            "--pairs; a task has its own"
        )
    from transencoder.evaluation import average

    metrics, scores = _task_scores(args) if args.tasks else _pairs_score(args)
    mean = average(scores) if len(set(metrics.values())) == 1 else None  # of different metrics there is none
    if args.json:
        record = {"models": args.models, "metrics": metrics, "scores": scores, "average": mean}
        show(json.dumps(_without_nan(record)))
    else:
        show(_table(args.models, metrics, scores, mean))


def _task_scores(args: argparse.Namespace) -> tuple[dict[str, str], dict[str, float]]:
    from transencoder.evaluation import evaluate_tasks
    from transencoder.tasks import expand

    metrics: dict[str, str] = {task.name: args.metric or task.metric for task in expand(args.tasks)}
    data = {"data_folder": args.data_dir, "cache_folder": args.cache_dir, "token": args.token}
    with _scorer(args) as scorer:
        return metrics, evaluate_tasks(scorer, args.tasks, metric=args.metric, **data)


def _pairs_score(args: argparse.Namespace) -> tuple[dict[str, str], dict[str, float]]:
    from transencoder.evaluation import evaluate

    pairs, metric = _pairs(args, score_column=args.score_column), args.metric or "spearman"
    with _scorer(args) as scorer:
        return {args.pairs: metric}, {args.pairs: evaluate(scorer, pairs, metric)}


def _score(args: argparse.Namespace) -> None:
    check_output(args.output, source=args.pairs)
    pairs = _pairs(args)
    with _scorer(args) as scorer:
        scores = scorer.score(pairs)
    write_rows(pairs, args.output, scores)


def _label(args: argparse.Namespace) -> None:
    check_output(args.output, formats=(".parquet",), source=args.pairs)
    weights = args.weights or [1.0] * len(args.models)
    if len(weights) != len(args.models):
        raise InputError(f"--weights has {len(weights)} numbers for {len(args.models)} models; give one for each")
    from transencoder.labels import label

    pairs = _pairs(args)
    with _teachers(args) as teachers:
        weighted = [replace(teacher, weight=weight) for teacher, weight in zip(teachers, weights, strict=True)]
        labels = label(weighted, pairs, args.policy)
    with whole_file(args.output) as temporary, whole_file(str(Path(args.output).with_suffix(".raw.parquet"))) as raw:
        labels.write(temporary, pairs)
        labels.write_raw(raw)
    show(f"{args.output}: {len(pairs)} pairs labelled by {', '.join(args.models)}, policy {args.policy}")


@contextmanager
def _scorer(args: argparse.Namespace) -> "Iterator[Scorer]":
    from transencoder.scorers import MeanScorer

    with _teachers(args) as teachers:
        yield MeanScorer([teacher.scorer for teacher in teachers])


@contextmanager
def _teachers(args: argparse.Namespace) -> "Iterator[list[Teacher]]":
    """The models as they were saved, bi- or cross-encoders; tokens are kept until the end."""
    if len(set(args.models)) < len(args.models):
        raise InputError(f"the models are {', '.join(args.models)}; give each once")
    with TemporaryDirectory(prefix="transencoder-") as folder:
        yield [load_teacher(model, args, Path(folder)) for model in args.models]


def load_teacher(name: str, args: argparse.Namespace, token_folder: Path) -> "Teacher":
    """Load one model to score with.

    Raises:
        InputError: There is no such model or device, or the model cannot read texts of that length.
    """
    from sentence_transformers import SentenceTransformer

    from transencoder.encoders import checked_device, fetch, load_trained, weights_fingerprint
    from transencoder.labels import Teacher
    from transencoder.scorers import BiScorer, CrossScorer, named_prompt
    from transencoder.tokens import TokenCache

    device = checked_device(args.device) if args.device else None
    folder = fetch(name, revision=args.revision, token=args.token, cache_folder=args.cache_dir)
    model, cache = load_trained(folder, device, max_length=args.max_length), TokenCache(token_folder)
    prompt = args.prompt if args.prompt_name is None else named_prompt(model, args.prompt_name)
    scorer: Scorer
    if isinstance(model, SentenceTransformer):
        scorer = BiScorer(model, precision=args.precision, cache=cache, prompt=prompt)
    else:
        scorer = CrossScorer(model, precision=args.precision, both_orders=args.both_orders, cache=cache, prompt=prompt)
    return Teacher(name=name, scorer=scorer, fingerprint=weights_fingerprint(folder))


def _pairs(args: argparse.Namespace, score_column: str | None = None) -> "Dataset":
    from transencoder.pairs import read_pairs

    return read_pairs(args.pairs, columns=args.columns, score_column=score_column, **reading(args))


def _table(models: list[str], metrics: dict[str, str], scores: dict[str, float], mean: float | None) -> Table:
    table = Table(caption=f"mean of {len(models)} models" if len(models) > 1 else models[0])
    table.add_column("")
    table.add_column("metric x 100")
    table.add_column("score", justify="right")
    for name, score in scores.items():
        table.add_row(name, metrics[name], f"{score:.2f}")
    if len(scores) > 1 and mean is not None:
        table.add_section()
        table.add_row("average", "", f"{mean:.2f}")
    return table


def _without_nan(record: Any) -> Any:
    """NaN, which JSON does not have, as null."""
    if isinstance(record, dict):
        return {name: _without_nan(value) for name, value in record.items()}
    return None if isinstance(record, float) and math.isnan(record) else record
