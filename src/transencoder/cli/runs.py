"""`runs list|clean`, `report`, `results`: what run folders hold, and what is written from their records."""

import argparse
from pathlib import Path

from rich.table import Table

from transencoder import runs
from transencoder.cli.options import Commands, add_command
from transencoder.cli.terminal import show, size
from transencoder.errors import InputError

_COMPARISON = "comparison.html"


def add(commands: Commands) -> None:
    """Add the commands."""
    summary = "list run folders and free their disk space"
    parser = commands.add_parser("runs", help=summary, description=summary)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    parser = add_command(actions, "list", _list, "list the runs in a folder: state, stages done, disk use")
    parser.add_argument("folder", nargs="?", default="runs", help="folder that holds the runs (default: runs)")
    parser = add_command(actions, "clean", _clean, "remove what a run no longer needs: unused and half-done stages")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    parser.add_argument("--everything", action="store_true", help="remove all stages; the final models stay")
    parser = add_command(
        commands, "report", _report, "write a finished run's report again, or a page that compares several runs"
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder; several are measured against the first")
    parser.add_argument(
        "--output", metavar="FILE", help=f"with several runs: the HTML file to write (default: {_COMPARISON})"
    )
    parser = add_command(commands, "results", _results, "write a results page from the records of runs")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder")
    parser.add_argument("--output", required=True, metavar="FILE", help="Markdown file to write")


def _list(args: argparse.Namespace) -> None:
    found = runs.list_runs(args.folder)
    table = Table("run", "method", "state", "started", "stages", "disk")
    for run in found:
        started = (run.started or "")[:16].replace("T", " ")
        table.add_row(str(run.folder), run.method, run.state, started, str(run.n_stages), size(run.disk_bytes))
    show(table)
    show(f"{len(found)} runs, {size(sum(run.disk_bytes for run in found))}")


def _clean(args: argparse.Namespace) -> None:
    for folder in args.runs:
        summary = runs.clean_run(folder, everything=args.everything, dry_run=args.dry_run)
        for name in summary.names:
            show(str(Path(folder) / name))
        show(f"{folder}: {size(summary.bytes_freed)} {'would be freed' if args.dry_run else 'freed'}")


def _report(args: argparse.Namespace) -> None:
    if len(args.runs) == 1 and args.output is None:
        from transencoder.report.run_report import write_report

        show(str(write_report(args.runs[0])))
        return
    if len(args.runs) == 1:
        raise InputError("--output is for several runs: the report of a single one goes into its folder. Leave it out.")
    from transencoder.report.comparison import write_comparison

    show(str(write_comparison(args.runs, args.output or _COMPARISON)))


def _results(args: argparse.Namespace) -> None:
    from transencoder.report.results_page import results_page

    show(str(results_page(args.runs, args.output)))
