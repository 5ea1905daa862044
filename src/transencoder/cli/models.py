"""`score` and `label`: what models say of pairs."""

import argparse
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, get_args

from transencoder.cli.options import (
    Commands,
    add_command,
    add_data_options,
    add_model_options,
    add_pairs_options,
    reading,
)
from transencoder.cli.rows import STDOUT, check_output, check_texts, whole_file, write_rows
from transencoder.cli.terminal import show
from transencoder.config import LabelPolicy
from transencoder.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder.labels import Teacher
    from transencoder.scorers import Scorer

PAIRS_HELP = "TSV, CSV, JSONL or Parquet file, - for stdin, hub id (id:config@revision)"


def add(commands: Commands) -> None:
    """Add the commands."""
    parser = add_command(commands, "score", _score, "score pairs: sentence1, sentence2, score")
    add_model_options(parser)
    parser.add_argument("--pairs", required=True, help=PAIRS_HELP)
    parser.add_argument("--output", default=STDOUT, metavar="FILE", help=".tsv, .csv, .jsonl or .parquet (default: -)")
    add_reading(parser)

    parser = add_command(commands, "label", _label, "label pairs with models: pseudo-labels any trainer can read")
    add_model_options(parser)
    parser.add_argument("--pairs", required=True, help=PAIRS_HELP)
    parser.add_argument(
        "--policy",
        choices=get_args(LabelPolicy),
        default="clip",
        help="how scores become targets (default: clip)",
    )
    add_weights(parser, "in the labels")
    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE.parquet",
        help="sentence1, sentence2 and label, as trainers take them; each model's raw scores go to FILE.raw.parquet",
    )
    add_reading(parser)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Options of how pairs are read."""
    add_pairs_options(parser)
    add_data_options(parser)


def _score(args: argparse.Namespace) -> None:
    check_models(args)
    check_output(args.output, source=args.pairs)
    pairs = pairs_of(args)
    check_texts(pairs, args.output)
    with _scorer(args) as scorer:
        scores = scorer.score(pairs)
    write_rows(pairs, args.output, scores)


def _label(args: argparse.Namespace) -> None:
    check_output(args.output, formats=(".parquet",), source=args.pairs)
    weights = weights_of(args)
    from transencoder.labels import label

    pairs = pairs_of(args)
    with loaded(args) as teachers:
        weighted = [replace(teacher, weight=weight) for teacher, weight in zip(teachers, weights, strict=True)]
        labels = label(weighted, pairs, args.policy)
    with whole_file(args.output) as temporary, whole_file(str(Path(args.output).with_suffix(".raw.parquet"))) as raw:
        labels.write(temporary, pairs)
        labels.write_raw(raw)
    show(f"{args.output}: {len(pairs)} pairs labelled by {', '.join(args.models)}, policy {args.policy}")


@contextmanager
def _scorer(args: argparse.Namespace) -> "Iterator[Scorer]":
    from transencoder.scorers import MeanScorer

    with loaded(args) as teachers:
        yield MeanScorer([teacher.scorer for teacher in teachers])


@contextmanager
def loaded(args: argparse.Namespace) -> "Iterator[list[Teacher]]":
    """The models as they were saved, bi- or cross-encoders; tokens are kept until the end."""
    with TemporaryDirectory(prefix="transencoder-") as folder:
        yield [load_teacher(model, args, Path(folder)) for model in args.models]


def load_teacher(name: str, args: argparse.Namespace, token_folder: Path) -> "Teacher":
    """Load one model to score with.

    Raises:
        InputError: There is no such model or device, or the model cannot read texts of that length.
    """
    from sentence_transformers import SentenceTransformer

    from transencoder.encoders import fetch, gives_logits, load_trained, weights_fingerprint
    from transencoder.inference import checked_device
    from transencoder.labels import Teacher
    from transencoder.prompts import Prompts, named_prompt, warn_of_unused_prompts
    from transencoder.scorers import BiScorer, CrossScorer
    from transencoder.tokens import TokenCache

    device = checked_device(args.device) if args.device else None
    folder = fetch(name, revision=args.revision, token=args.token, cache_folder=args.cache_dir)
    model, cache = load_trained(folder, device, max_length=args.max_length), TokenCache(token_folder)
    prompt = args.prompt if args.prompt_name is None else named_prompt(model, args.prompt_name)
    scorer: Scorer
    if isinstance(model, SentenceTransformer):
        document_prompt = args.document_prompt
        if args.document_prompt_name is not None:
            document_prompt = named_prompt(model, args.document_prompt_name)
        warn_of_unused_prompts(folder, name, Prompts(prompt, document_prompt))
        scorer = BiScorer(model, precision=args.precision, cache=cache, prompt=prompt, document_prompt=document_prompt)
    elif args.document_prompt is not None or args.document_prompt_name is not None:
        raise InputError(f"{name} is a cross-encoder, which reads both texts at once: --document-prompt is not for it")
    else:
        scorer = CrossScorer(
            model,
            precision=args.precision,
            both_orders=args.both_orders,
            cache=cache,
            prompt=prompt,
            as_logit=gives_logits(model),
        )
    return Teacher(name=name, scorer=scorer, fingerprint=weights_fingerprint(folder))


def add_weights(parser: argparse.ArgumentParser, where: str) -> None:
    """`--weights`, of each model."""
    parser.add_argument(
        "--weights", nargs="+", type=float, metavar="X", help=f"share of each model {where} (default: equal)"
    )


def check_models(args: argparse.Namespace) -> None:
    """Refuse a model that is given twice."""
    if len(set(args.models)) < len(args.models):
        raise InputError(f"the models are {', '.join(args.models)}; give each once")


def weights_of(args: argparse.Namespace) -> list[float]:
    """One number for each model.

    Raises:
        InputError: There are more or fewer, or a model is given twice.
    """
    check_models(args)
    weights: list[float] = args.weights or [1.0] * len(args.models)
    if len(weights) != len(args.models):
        raise InputError(f"--weights has {len(weights)} numbers for {len(args.models)} models; give one for each")
    if not all(0.0 < weight < math.inf for weight in weights):
        raise InputError(f"--weights are {', '.join(map(str, weights))}; give each a finite number above 0")
    return weights


def pairs_of(args: argparse.Namespace, score_column: str | None = None) -> "Dataset":
    """The pairs that `--pairs` names."""
    from transencoder.pairs import read_pairs

    return read_pairs(args.pairs, columns=args.columns, score_column=score_column, **reading(args))
