"""`pairs TASK...`: the unlabelled training pairs of tasks, in a file."""

import argparse

from transencoder.cli.options import Commands, add_command, add_data_options
from transencoder.cli.rows import STDOUT, write_rows
from transencoder.cli.terminal import show


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "pairs", _run, "write the unlabelled, deduplicated training pairs of tasks")
    parser.add_argument("tasks", nargs="+", metavar="TASK", help="task or suite, such as sts or sickr")
    parser.add_argument(
        "--output", required=True, metavar="FILE", help=".tsv, .csv, .jsonl or .parquet; -: TSV to stdout"
    )
    parser.add_argument(
        "--exclude-test-sentences",
        action="store_true",
        help="leave out pairs that hold a sentence of a test set",
    )
    add_data_options(parser)


def _run(args: argparse.Namespace) -> None:
    from transencoder.tasks import unlabelled_pairs

    pairs, about = unlabelled_pairs(
        args.tasks,
        exclude_test_sentences=args.exclude_test_sentences,
        data_folder=args.data_dir,
        cache_folder=args.cache_dir,
        token=args.token,
    )
    write_rows(pairs, args.output)
    if args.output == STDOUT:
        return
    show(f"{args.output}: {about['rows']} pairs of {', '.join(about['tasks'])}, from {about['source']}")
    if about["missing_rows"]:
        show(f"{about['missing_rows']} pairs of the paper's set could not be had")
    if args.exclude_test_sentences:
        show(f"{about['excluded_rows']} pairs with a sentence of a test set were left out")
