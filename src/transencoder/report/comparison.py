"""A page that sets runs beside each other: scores, curves, and the settings, data and environments that differ."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transencoder import progress
from transencoder.errors import InputError
from transencoder.finished import Evidence, draws_of
from transencoder.metrics import Interval, interval
from transencoder.records import AVERAGE, DEV, FORM_TITLES, DataRecord, Result
from transencoder.report.curves import plots_together
from transencoder.report.figures import SEVERAL, write_plots
from transencoder.report.rendering import render
from transencoder.report.run_report import run_facts, title_of, write_html
from transencoder.report.words import NONE, all_settings, data_sets, environment_of, metric_titles
from transencoder.results import forms_of, mean_over, metric_mark, read_result

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Draws = list[NDArray[np.float64] | None]
    """Of each run its differences from the first, (resamples,); None where nothing is kept."""


@dataclass(frozen=True)
class Cell:
    """What one run scores on one test."""

    score: float | None
    is_best: bool = False
    difference: float | None = None
    """From the first run, on the same data; None where they are equal."""
    interval: Interval | None = None
    """Of the difference, both measured on the same resamples."""


@dataclass(frozen=True)
class ComparedRow:
    """One test, or the average of those of a metric, over all runs."""

    name: str
    cells: Sequence[Cell]


Row = tuple[str, Sequence[str]]
"""What differs, and each run's value."""


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
    results = [run.result for run in runs]
    plots = list(plots_together({f"run {number}": result for number, result in enumerate(results, 1)}))
    metrics = [
        record.get("metric", result["metric"]) for result in results for record in result["data"]["tests"].values()
    ]
    values = {
        "names": _names([run.folder for run in runs]),
        "titles": [title_of(result) for result in results],
        "facts": [run_facts(result) for result in results],
        "styles": [SEVERAL[position % len(SEVERAL)] for position in range(len(runs))],
        "tables": score_tables(runs),
        "metrics": metric_titles(metrics or [result["metric"] for result in results]),
        "differences": [
            ("settings", "Settings that differ", differing_settings(results)),
            ("data", "Data that differ", differing(results, data_sets)),
            ("environment", "Environments that differ", differing(results, environment_of)),
        ],
        "plots": plots,
        "plot_folder": f"{path.stem}-plots",
    }
    try:
        values["drawings"] = write_plots(plots, path.with_name(f"{path.stem}-plots"))
        write_html(path, render("comparison.html.jinja", values))
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


def read_runs(folders: Iterable[str | Path]) -> list[Evidence]:
    """Read the records of several runs.

    Raises:
        RunError: One is not finished, or its result is damaged.
    """
    return [Evidence(Path(folder), read_result(folder)) for folder in folders]


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the last part of each path, or as many of the last as tell all apart."""
    parts = [folder.resolve().parts for folder in folders]
    for n_parts in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-n_parts:]) for each in parts]
        if len(set(names)) == len(names):
            break
    return names


def score_tables(runs: Sequence[Evidence]) -> list[tuple[str, list[ComparedRow]]]:
    """Return for the base model and each form that any of the runs has: its title and its rows."""
    forms = [form for form in FORM_TITLES if any(form in forms_of(run.result) for run in runs)]
    tests: dict[str, str] = {}
    for run in runs:
        for name, record in run.result["data"]["tests"].items():
            tests.setdefault(name, record.get("metric", run.result["metric"]))
    tables = []
    with progress.task("intervals of the differences", (len(forms) + 1) * len(tests)) as advance:
        for model, title in (("start", "Base model"), *((form, FORM_TITLES[form].capitalize()) for form in forms)):
            rows = _test_rows(runs, model, tests, advance) if tests else [_dev_row(runs, model)]
            rows = [row for row in rows if any(cell.score is not None for cell in row.cells)]
            if rows:
                tables.append((title, rows))
    return tables


def _test_rows(
    runs: Sequence[Evidence], model: str, tests: dict[str, str], advance: Callable[[int], None]
) -> list[ComparedRow]:
    """Return the tests' rows and, for several of a metric that all runs have, their average."""
    rows, metrics = [], dict.fromkeys(tests.values())
    found = [run.result["scores"].get(model, {}) for run in runs]
    for metric in metrics:
        names, mark, draws = [name for name, of in tests.items() if of == metric], metric_mark(metric, metrics), {}
        for name in names:
            is_same = _have_same_data(runs, [name])
            draws[name] = _draws(runs, is_same, model, name, metric)
            rows.append(_row(name + mark, [scores.get(name) for scores in found], is_same, draws[name]))
            advance(1)
        if len(names) > 1:
            scores, together = [mean_over(each, names) for each in found], [*zip(*draws.values(), strict=True)]
            means = [None if any(drawn is None for drawn in each) else sum(each) / len(each) for each in together]
            rows.append(_row(AVERAGE + mark, scores, _have_same_data(runs, names), means))
    return rows


def _dev_row(runs: Sequence[Evidence], model: str) -> ComparedRow:
    scores = [(run.result["dev"] or {}).get(model) for run in runs]
    return _row(DEV, scores, _equal_the_first([_fingerprint(run.result["data"]["dev"]) for run in runs]), None)


def _have_same_data(runs: Sequence[Evidence], names: Sequence[str]) -> list[bool]:
    """Check which runs were scored on the first one's data."""
    return _equal_the_first([[_fingerprint(run.result["data"]["tests"].get(name)) for name in names] for run in runs])


def _fingerprint(record: DataRecord | None) -> str | None:
    return None if record is None else record["fingerprint"]


def _equal_the_first(values: Sequence[object]) -> list[bool]:
    return [value == values[0] for value in values]


def _draws(runs: Sequence[Evidence], is_same: Sequence[bool], model: str, test: str, metric: str) -> "Draws":
    kept = [i for i, run in enumerate(runs) if is_same[i] and run.scores(model, test) is not None]
    is_comparable = kept[:1] == [0] and len(kept) > 1
    drawn = draws_of([(runs[i], model) for i in kept], test, metric) if is_comparable else None
    if drawn is None:
        return [None] * len(runs)
    return [drawn[kept.index(i)] - drawn[0] if i in kept[1:] else None for i in range(len(runs))]


def _row(name: str, scores: Sequence[float | None], is_same: Sequence[bool], draws: "Draws | None") -> ComparedRow:
    measured = [score for score, same in zip(scores, is_same, strict=True) if score is not None and same]
    best = max(measured) if len(set(measured)) > 1 else None
    cells, first = [], scores[0]
    for i, (score, same) in enumerate(zip(scores, is_same, strict=True)):
        difference = score - first if i and same and score is not None and first is not None else None
        drawn = draws[i] if draws and difference else None
        found = None if drawn is None else interval(drawn)
        cells.append(Cell(score, same and best is not None and score == best, difference or None, found))
    return ComparedRow(name, cells)


def differing_settings(results: Sequence[Result]) -> list[Row]:
    """Return settings that are not the same in all runs, but for the folders they write to and take stages from."""

    def settings(result: Result) -> list[tuple[str, str]]:
        named = [(name.replace("members.", "members[1]."), value) for name, value in all_settings(result["config"])]
        return [("method", result["method"]), *(each for each in named if each[0] not in ("output", "reuse_from"))]

    return differing(results, settings)


def differing(results: Sequence[Result], values: Callable[[Result], Iterable[tuple[str, str]]]) -> list[Row]:
    """Return what is not the same in all runs, and each run's value."""
    tables = [dict(values(result)) for result in results]
    names = dict.fromkeys(name for table in tables for name in table)
    rows = [(name, [table.get(name, NONE) for table in tables]) for name in names]
    return [row for row in rows if len(set(row[1])) > 1]
