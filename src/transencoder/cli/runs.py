"""`runs list|clean`, `report`, `results`: what run folders hold, and what is written from their records."""

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from transencoder import runs
from transencoder.cli.flags import argument, option
from transencoder.cli.terminal import show, size
from transencoder.errors import InputError


@dataclass(frozen=True, kw_only=True)
class List:
    """Options of `runs list`."""

    folder: str = argument("folder", "runs")
    """folder that holds the runs"""


def list_all(options: List) -> None:
    """List the runs in a folder: state, stages done, disk use."""
    found = runs.list_runs(options.folder)
    table = Table("run", "method", "state", "started", "stages", "disk")
    for run in found:
        started = (run.started or "")[:16].replace("T", " ")
        table.add_row(str(run.folder), run.method, run.state, started, str(run.n_stages), size(run.disk_bytes))
    show(table)
    show(f"{len(found)} runs, {size(sum(run.disk_bytes for run in found))}")


@dataclass(frozen=True, kw_only=True)
class Clean:
    """Options of `runs clean`."""

    runs: tuple[str, ...] = argument("RUN")
    """run folder"""
    dry_run: bool = False
    """only say what would be removed"""
    everything: bool = False
    """remove all stages; the final models stay"""


def clean(options: Clean) -> None:
    """Remove what a run no longer needs: unused and half-done stages."""
    for folder in options.runs:
        summary = runs.clean_run(folder, everything=options.everything, dry_run=options.dry_run)
        for name in summary.names:
            show(str(Path(folder) / name))
        show(f"{folder}: {size(summary.bytes_freed)} {'would be freed' if options.dry_run else 'freed'}")


@dataclass(frozen=True, kw_only=True)
class Report:
    """Options of `report`."""

    runs: tuple[str, ...] = argument("RUN")
    """run folder; several are measured against the first"""
    output: str | None = option(None, metavar="FILE")
    """with several runs: the HTML file to write (default: comparison.html)"""


def report(options: Report) -> None:
    """Write a finished run's report again, or a page that compares several runs."""
    if len(options.runs) == 1 and options.output is None:
        from transencoder.report.run_report import write_report

        show(str(write_report(options.runs[0])))
        return
    if len(options.runs) == 1:
        raise InputError("--output is for several runs: the report of a single one goes into its folder. Leave it out.")
    from transencoder.report.comparison import write_comparison

    show(str(write_comparison(options.runs, options.output or "comparison.html")))


@dataclass(frozen=True, kw_only=True)
class Results:
    """Options of `results`."""

    runs: tuple[str, ...] = argument("RUN")
    """run folder"""
    output: str = option(metavar="FILE")
    """Markdown file to write"""


def results(options: Results) -> None:
    """Write a results page from the records of runs."""
    from transencoder.report.results_page import results_page

    show(str(results_page(options.runs, options.output)))
