"""`mine`: pairs to train on from plain sentences."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, get_args

from transencoder.cli.options import Commands, add_command, add_data_options, add_row_options, reading
from transencoder.cli.rows import STDOUT, check_output, check_texts, write_rows
from transencoder.cli.terminal import show
from transencoder.config import Pooling, Precision
from transencoder.errors import InputError
from transencoder.prompts import Prompts

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder.mining import Mined

_FILE_HELP = "TXT (one a line), TSV, CSV, JSONL or Parquet file, - for stdin, hub id"


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "mine",
        _run,
        "mine pairs to train on from plain sentences, spread evenly over what the start says of them",
    )
    parser.add_argument("sentences", metavar="SENTENCES", help=_FILE_HELP)
    parser.add_argument(
        "--output", required=True, metavar="FILE", help=".tsv, .csv, .jsonl or .parquet; -: TSV to stdout"
    )
    parser.add_argument(
        "--start", required=True, metavar="MODEL", help="the bi-encoder to train from: folder, hub id, or minilm"
    )
    parser.add_argument(
        "--n-pairs",
        type=int,
        metavar="N",
        help="how many (default: 5 for each sentence up to 10,000, 2 for each up to 50,000)",
    )
    parser.add_argument(
        "--max-pairs-per-sentence", type=int, default=20, metavar="N", help="that a sentence may be in (default: 20)"
    )
    parser.add_argument(
        "--documents",
        metavar="FILE",
        help="pair each sentence with texts of this file, read as SENTENCES is: queries and documents",
    )
    parser.add_argument("--column", metavar="NAME", help="the text column (default: text, sentence, else the first)")
    parser.add_argument("--document-column", metavar="NAME", help="the same in the documents")
    parser.add_argument("--seed", type=int, default=2021, help="decides what is drawn (default: 2021)")
    parser.add_argument("--json", action="store_true", help="print the record as JSON instead of tables")
    group = parser.add_argument_group("start")
    group.add_argument("--revision", help="its hub revision")
    group.add_argument("--pooling", choices=get_args(Pooling), help="its pooling (default: its own)")
    group.add_argument(
        "--prompt", metavar="TEXT", help="read before every text (default: its own default prompt, if any)"
    )
    group.add_argument(
        "--document-prompt", metavar="TEXT", help="read before every document instead (default: the same)"
    )
    group.add_argument(
        "--max-length",
        type=int,
        metavar="TOKENS",
        help="cut longer texts, as training does after 32 (default: its own)",
    )
    group.add_argument("--device", help="such as cpu or cuda:0 (default: the best there is)")
    group.add_argument(
        "--precision", choices=get_args(Precision), default="auto", help="auto: bf16 where the hardware has it"
    )
    add_row_options(parser)
    add_data_options(parser)


def _run(args: argparse.Namespace) -> None:
    _check(args)
    from transencoder.mining import check_numbers, mine_pairs, started

    check_numbers(args.n_pairs, args.max_pairs_per_sentence)
    with started(
        args.start,
        revision=args.revision,
        pooling=args.pooling,
        prompts=Prompts(args.prompt, args.document_prompt),
        max_length=args.max_length,
        precision=args.precision,
        device=args.device,
        token=args.token,
        cache_folder=args.cache_dir,
    ) as place:
        mined = mine_pairs(
            _texts(args.sentences, args.column, args),
            place,
            documents=None if args.documents is None else _texts(args.documents, args.document_column, args),
            n_pairs=args.n_pairs,
            max_pairs_per_sentence=args.max_pairs_per_sentence,
            seed=args.seed,
        )
    assert mined is not None, "one process alone is the first"
    write_rows(mined.pairs, args.output)
    _show(mined, args)


def _show(mined: Mined, args: argparse.Namespace) -> None:
    from transencoder.report.data import mining_lines

    if args.json:
        show(json.dumps(mined.record))
    elif args.output != STDOUT:
        show(f"{args.output}: " + "\n".join(mining_lines(mined.record)))


def _check(args: argparse.Namespace) -> None:
    """Refuse what does not go together before anything is read."""
    for source in filter(None, (args.sentences, args.documents)):
        check_output(args.output, source=source)
    faults = (
        (args.output == STDOUT and args.json, "--output - and --json both go to stdout. Leave one out."),
        (args.documents and args.documents == args.sentences, "--documents are SENTENCES. Leave --documents out."),
        (
            args.document_prompt is not None and not args.documents,
            "--document-prompt is for --documents. Give both, or leave it out.",
        ),
        (
            args.document_column and not args.documents,
            "--document-column is for --documents. Give both, or leave it out.",
        ),
        (args.documents and args.bad_rows_file, "--bad-rows-file is for one file, and --documents is another."),
    )
    for is_wrong, message in faults:
        if is_wrong:
            raise InputError(message)


def _texts(source: str, column: str | None, args: argparse.Namespace) -> Dataset:
    from transencoder.pairs import read_sentences

    texts = read_sentences(source, column=column, **reading(args))
    check_texts(texts, args.output)
    return texts
