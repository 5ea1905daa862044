"""`views`: pairs of texts of one meaning, made of sentences; and how far views are from each other."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.table import Table

from transencoder.cli.options import Commands, add_command, add_data_options, add_row_options, reading
from transencoder.cli.rows import STDOUT, check_output, check_texts, write_rows
from transencoder.cli.terminal import show
from transencoder.cli.view_kinds import AS_IS, KINDS, add_kind_options, check_kinds, make_view
from transencoder.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder.scorers import Scorer
    from transencoder.views import Comparison


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "views", _run, "make two views of each sentence, or compare views: pairs to train on"
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--sentences", help="TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id")
    source.add_argument("--pairs", help="with --stats: views that are there, two columns of such a file")
    parser.add_argument("--first", choices=KINDS, help=f"what makes sentence1 (default: {AS_IS}, the sentence itself)")
    parser.add_argument(
        "--second",
        choices=KINDS,
        nargs="+",
        metavar="KIND",
        help=f"what makes sentence2: {', '.join(KINDS)}; without --output several, to be compared",
    )
    parser.add_argument("--output", metavar="FILE", help=".tsv, .csv, .jsonl or .parquet; -: TSV to stdout")
    parser.add_argument(
        "--seed", type=int, default=2021, help="with the row, it decides what comes out (default: 2021)"
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="N",
        help="processes that make views, with the same result; each loads a model of its own (default: 1)",
    )
    add_kind_options(parser)
    group = parser.add_argument_group("comparison")
    group.add_argument(
        "--stats",
        action="store_true",
        help="show the edit distance in characters, mean ± standard deviation, and with --model the mean cosine",
    )
    group.add_argument("--model", nargs="+", metavar="MODEL", help="bi-encoders: folder, hub id, or minilm")
    group.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--columns", nargs="+", metavar="NAME", help="the column of --sentences, the two of --pairs")
    add_row_options(parser)
    add_data_options(parser)


def _run(args: argparse.Namespace) -> None:
    _check(args)
    from transencoder.pairs import cache_folder_for_rows
    from transencoder.views import compare

    found: dict[str, Comparison] = {}
    with TemporaryDirectory(prefix="views-", dir=cache_folder_for_rows(args.cache_dir)) as folder:
        scorers = _scorers(args, Path(folder))
        for name, pairs in _given_pairs(args) if args.pairs else _made_pairs(args, Path(folder)):
            if args.output:
                _write(pairs, name, args)
            if args.stats:
                found[name] = compare(pairs, scorers)
    if args.json:
        show(json.dumps({name: asdict(comparison) for name, comparison in found.items()}))
    elif args.stats:
        show(_table(found, args))


def _check(args: argparse.Namespace) -> None:
    """Refuse what does not go together before anything is read."""
    seconds, columns = args.second or [], args.columns or []
    n_columns = 2 if args.pairs else 1
    faults = (
        (
            args.pairs and (args.first or seconds or args.output or not args.stats),
            "--pairs are views already; --stats compares them. Give --sentences to make others.",
        ),
        (args.sentences and not seconds, f"--second is missing: what makes sentence2, one of {', '.join(KINDS)}."),
        (not (args.output or args.stats), "there is nothing to do. Give --output to write the views, or --stats."),
        (
            (args.model or args.json) and not args.stats,
            "--model and --json are for --stats. Give it, or leave them out.",
        ),
        (
            args.output and len(seconds) > 1,
            f"--second has {len(seconds)} kinds, and --output takes one. Give one, or leave --output out.",
        ),
        (args.output == STDOUT and args.stats, "--output - and --stats both go to stdout. Leave one out."),
        (args.processes < 1, f"--processes is {args.processes}; it must be at least 1."),
        (columns and len(columns) != n_columns, f"--columns has {len(columns)} names. Give {n_columns}."),
    )
    for is_wrong, message in faults:
        if is_wrong:
            raise InputError(message)
    check_kinds(args.first or AS_IS, seconds, args)
    for source in (args.sentences, args.synonyms, *(args.translations or [])):
        if args.output and source:
            check_output(args.output, source=source)


def _given_pairs(args: argparse.Namespace) -> Iterator[tuple[str, Dataset]]:
    from transencoder.pairs import read_pairs

    yield args.pairs, read_pairs(args.pairs, columns=args.columns, **reading(args))


def _made_pairs(args: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Dataset]]:
    """The pairs of each kind of second view, under its name."""
    from transencoder.pairs import read_sentences
    from transencoder.views import TwoViews

    first, seconds = make_view(args.first or AS_IS, 0, args), {kind: make_view(kind, -1, args) for kind in args.second}
    column = args.columns[0] if args.columns else None
    sentences = read_sentences(args.sentences, column=column, **reading(args))
    check_texts(sentences, args.output)
    for kind, second in seconds.items():
        maker = TwoViews(first=first, second=second)
        yield kind, maker(sentences, folder / f"{kind}.arrow", args.seed, args.processes)


def _write(pairs: Dataset, second: str, args: argparse.Namespace) -> None:
    write_rows(pairs, args.output)
    if args.output != STDOUT and not args.json:
        show(f"{args.output}: {len(pairs)} pairs, sentence1 {args.first or AS_IS}, sentence2 {second}")


def _scorers(args: argparse.Namespace, folder: Path) -> dict[str, Scorer]:
    if not args.model:
        return {}
    from transencoder.encoders import fetch, load_bi
    from transencoder.inference import checked_device
    from transencoder.scorers import BiScorer
    from transencoder.tokens import TokenCache

    cache, device = TokenCache(folder), checked_device(args.device) if args.device else None
    folders = {name: fetch(name, form="bi", token=args.token, cache_folder=args.cache_dir) for name in args.model}
    return {name: BiScorer(load_bi(model, device=device), cache=cache) for name, model in folders.items()}


def _table(found: dict[str, Comparison], args: argparse.Namespace) -> Table:
    table = Table(caption=None if args.pairs else f"against {args.first or AS_IS}")
    table.add_column("views")
    for title in ("edit distance", *(f"cosine, {name}" for name in args.model or [])):
        table.add_column(title, justify="right")
    for name, each in found.items():
        cosines = (f"{cosine:.3f}" for cosine in each.similarity.values())
        table.add_row(name, f"{each.edit_distance:.2f} ± {each.edit_distance_std:.2f}", *cosines)
    return table
