"""Options that several commands share, and how a command is added."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from transencoder.config import Precision

if TYPE_CHECKING:
    from datasets import Dataset

Commands = Any
"""What `argparse.ArgumentParser.add_subparsers` returns; the class has no public name."""
Command = Callable[[argparse.Namespace], None]


def add_command(commands: Commands, name: str, run: Command, description: str) -> argparse.ArgumentParser:
    """Add a command with the options that all have.

    Args:
        commands: The sub-parsers it joins.
        name: What is typed.
        run: What does the work.
        description: What it does, in a sentence or two; the first line stands in the list of commands.

    Returns:
        Its parser, for its own options.
    """
    summary = description.partition("\n")[0]
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=description, allow_abbrev=False
    )
    parser.add_argument("--verbose", action="store_true", help="log details too, also those of other libraries")
    parser.add_argument("--quiet", action="store_true", help="log warnings and errors only, show no progress")
    parser.set_defaults(run=run, parser=parser)
    return parser


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Where data sets come from."""
    parser.add_argument("--data-dir", help="folder with data sets in the hub's layout (default: TRANSENCODER_DATA)")
    parser.add_argument("--cache-dir", help="folder for hub downloads and Arrow files (default: the usual ones)")
    parser.add_argument("--token", help="hub access token (default: the one you are logged in with)")


def add_pairs_options(parser: argparse.ArgumentParser) -> None:
    """How a file of pairs is read."""
    parser.add_argument(
        "--columns",
        nargs=2,
        metavar=("FIRST", "SECOND"),
        help="names of the two text columns (default: known names, else the first two)",
    )
    add_row_options(parser)


def add_row_options(parser: argparse.ArgumentParser) -> None:
    """How the rows of a file are read, whatever its columns."""
    parser.add_argument("--split", help="split of a hub id or folder, such as test or validation[:1000]")
    parser.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether a TSV or CSV has one (default: detected, an error where that is not certain)",
    )
    parser.add_argument("--file-format", help="tsv, csv, jsonl or parquet, for stdin and files of another name")
    parser.add_argument("--skip-bad-rows", action="store_true", help="count and leave out bad rows")
    parser.add_argument("--bad-rows-file", metavar="FILE", help="with --skip-bad-rows: where they go, with the reason")


def reading(args: argparse.Namespace) -> dict[str, Any]:
    """What `read_pairs` and `read_sentences` take of the options about rows and of where data sets come from."""
    return {
        "split": args.split,
        "header": args.header,
        "file_format": args.file_format,
        "skip_bad_rows": args.skip_bad_rows,
        "bad_rows_file": args.bad_rows_file,
        "cache_folder": args.cache_dir,
        "data_folder": args.data_dir,
        "token": args.token,
    }


def read_texts(source: str, args: argparse.Namespace) -> "Dataset":
    """Sentences, from the column `--column`; stdin is one a line unless an option says otherwise."""
    from transencoder.pairs import read_sentences

    options = reading(args)
    if source == "-" and not (args.column or args.file_format or args.header is not None):
        options["file_format"] = "txt"
    return read_sentences(source, column=args.column, **options)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Which models score, and how."""
    parser.add_argument("models", nargs="+", metavar="MODEL", help="folder, hub id, or minilm; several: their mean")
    parser.add_argument("--revision", help="hub revision of the models")
    parser.add_argument("--device", help="such as cpu or cuda:0 (default: the best there is)")
    parser.add_argument(
        "--precision",
        choices=get_args(Precision),
        default="auto",
        help="auto: bf16 where the hardware has it",
    )
    parser.add_argument("--max-length", type=int, metavar="TOKENS", help="cut longer texts (default: the model's)")
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument(
        "--prompt", metavar="TEXT", help="put before every text (default: the model's own default prompt, if any)"
    )
    prompts.add_argument("--prompt-name", metavar="NAME", help="the same, by its name among the model's prompts")
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument(
        "--document-prompt",
        metavar="TEXT",
        help="put before every second text instead, of queries with documents; for bi-encoders (default: the same)",
    )
    prompts.add_argument(
        "--document-prompt-name", metavar="NAME", help="the same, by its name among the model's prompts"
    )
    parser.add_argument(
        "--both-orders", action="store_true", help="average a cross-encoder's scores of both orders of a pair"
    )
