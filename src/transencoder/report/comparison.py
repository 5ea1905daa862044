"""A page that sets runs beside each other: scores, curves, and the settings in which they differ."""

from collections.abc import Sequence
from pathlib import Path

from transencoder.errors import InputError
from transencoder.progress import duration
from transencoder.report.compared import (
    Compared,
    differing_data,
    differing_environment,
    differing_settings,
    read_runs,
    score_tables,
)
from transencoder.report.page import Values, title_of, write_html, write_plots
from transencoder.report.plots import SEVERAL, plots_together
from transencoder.report.rendering import render
from transencoder.report.text import metric_titles, starts_of


def write_comparison(run_folders: Sequence[str | Path], output: str | Path) -> Path:
    """Write a page that compares finished runs, and a PNG of each of its plots in a folder beside it.

    Args:
        run_folders: Two or more; the others are measured against the first.
        output: The HTML file to write; its folder must exist. The plots go to `<its name>-plots`.

    Returns:
        The path of the page.

    Raises:
        RunError: A run is not finished, or its result is damaged.
        InputError: Fewer than two runs, one twice, or the page cannot be written.
    """
    path = _checked(run_folders, Path(output))
    runs = read_runs(run_folders)
    plots = list(plots_together({f"run {run.number}": run.result for run in runs}))
    text = render("comparison.html", {**_content(runs), "plots": plots, "plot_folder": f"{path.stem}-plots"})
    try:
        write_plots(plots, path.with_name(f"{path.stem}-plots"))
        write_html(path, text)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}). Choose another --output.") from error
    return path


def _checked(run_folders: Sequence[str | Path], output: Path) -> Path:
    if output.suffix not in (".html", ".htm"):
        raise InputError(f"--output is {str(output)!r}. Its name must end in .html.")
    if not output.parent.is_dir():
        raise InputError(f"--output is {str(output)!r}, but there is no folder {output.parent}. Make it first.")
    if output.is_dir():
        raise InputError(f"--output is {str(output)!r}, which is a folder. Choose another name.")
    resolved = [Path(folder).resolve() for folder in run_folders]
    twice = [str(folder) for i, folder in enumerate(run_folders) if resolved[i] in resolved[:i]]
    if twice or len(resolved) < 2:
        what = f"{twice[0]} is given twice" if twice else "one run is given"
        raise InputError(f"{what}; a comparison needs two runs or more, each once")
    return output


def _content(runs: Sequence[Compared]) -> Values:
    metrics = [
        record.get("metric", run.result["metric"]) for run in runs for record in run.result["data"]["tests"].values()
    ]
    return {
        "runs": [_run(run) for run in runs],
        "tables": score_tables(runs),
        "metrics": metric_titles(metrics or [run.result["metric"] for run in runs]),
        "differences": [
            ("settings", "Settings that differ", differing_settings(runs)),
            ("data", "Data that differ", differing_data(runs)),
            ("environment", "Environments that differ", differing_environment(runs)),
        ],
    }


def _run(run: Compared) -> Values:
    result = run.result
    return {
        "number": run.number,
        "style": SEVERAL[(run.number - 1) % len(SEVERAL)],
        "name": run.name,
        "title": title_of(result),
        "facts": [
            result["method"],
            " + ".join(starts_of(result)) or "nothing",
            str(result["seed"]),
            duration(result["seconds"]),
            result["finished"][:16].replace("T", " "),
        ],
    }
