"""Pages about several runs: a comparison of runs side by side, and the published results."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from transencoder import progress, results
from transencoder.errors import InputError, RunError, number, shown_source
from transencoder.evidence import Evidence, draws_of
from transencoder.metrics import N_RESAMPLES, interval
from transencoder.records import DEV, FORM_TITLES, DataRecord, Interval, Result
from transencoder.report import words
from transencoder.report.figures import SEVERAL, write_plots
from transencoder.report.plots import plots_together
from transencoder.report.run_report import run_facts, title_of
from transencoder.report.scores import BRACKETS, footnotes_of
from transencoder.report.verdict import notes_of
from transencoder.results import TableRow
from transencoder.runs import read_log
from transencoder.runs.files import output_explained

logger = logging.getLogger(__name__)

Values: TypeAlias = NDArray[np.float64]

_DETAILS = ("stage", "name", "error")
"""Fields of a log line that are shown; other fields may hold paths of the local machine."""

_ROWS = (("start", "base model"), ("start_as_is", "base model as it is"), *FORM_TITLES.items())


@dataclass(frozen=True)
class Cell:
    """Score of one run on one test."""

    score: float | None
    is_best: bool
    difference: float | None
    """Difference from the first run, on the same data; None where they are equal or cannot be compared."""
    interval: Interval | None
    """Interval of the difference, with both runs measured on the same resamples."""


Row = tuple[str, Sequence[str]]
"""Name of what differs, and its value in each run."""


def write_comparison(run_folders: Sequence[str | Path], output: str | Path) -> Path:
    """Write a page that compares finished runs, and a PNG of each of its plots in a folder beside it.

    Args:
        run_folders: Two or more run folders; each run is compared with the first.
        output: The HTML file to write; its folder must exist. The plots go to `<its name>-plots`.

    Returns:
        The path of the page.

    Raises:
        RunError: A run is not finished, or its result is damaged.
        InputError: Fewer than two runs, the same run twice, or a page that cannot be written.
    """
    path = _checked(run_folders, Path(output))
    runs = [Evidence(Path(folder), results.read_result(folder)) for folder in run_folders]
    compared = [run.result for run in runs]
    if not set.intersection(*map(_measured_on, compared)):
        logger.warning("these runs have no test and no dev set in common: their scores cannot be compared")
    plots = list(plots_together({f"run {number}": result for number, result in enumerate(compared, 1)}))
    metrics = [record["metric"] for result in compared for record in result["data"]["tests"].values()]
    values = {
        "names": _names([run.folder for run in runs]),
        "titles": [title_of(result) for result in compared],
        "facts": [run_facts(result) for result in compared],
        "styles": [SEVERAL[position % len(SEVERAL)] for position in range(len(runs))],
        "tables": score_tables(runs),
        "brackets": BRACKETS,
        "metrics": words.metric_titles(metrics or [result["metric"] for result in compared]),
        "differences": [
            ("settings", "Settings that differ", differing_settings(compared)),
            ("data", "Data that differ", differing(compared, words.data_sets)),
            ("environment", "Environments that differ", differing(compared, words.environment_of)),
        ],
        "plots": plots,
        "plot_folder": f"{path.stem}-plots",
    }
    with output_explained(path):
        values["drawings"] = write_plots(plots, path.with_name(f"{path.stem}-plots"))
        return words.write_page(path, words.render("comparison.html.jinja", values))


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


def _measured_on(result: Result) -> set[tuple[str, str, str | None]]:
    """Return the name, the fingerprint and the metric of each set that a run is measured on."""
    sets = {**result["data"]["tests"], **({DEV: dev} if (dev := result["data"]["dev"]) else {})}
    return {(name, record["fingerprint"], record.get("metric")) for name, record in sets.items()}


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the last part of each path, or as many of its last parts as make all names distinct."""
    parts = [folder.resolve().parts for folder in folders]
    for n_parts in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-n_parts:]) for each in parts]
        if len(set(names)) == len(names):
            break
    return names


def score_tables(runs: Sequence[Evidence]) -> list[tuple[str, list[tuple[str, list[Cell]]]]]:
    """Return a table for the base model and each form that any run has: title and rows, each with a name and cells."""
    forms = [form for form in FORM_TITLES if any(form in run.result["best"] for run in runs)]
    tests: dict[str, str] = {}
    for run in runs:
        for name, record in run.result["data"]["tests"].items():
            tests.setdefault(name, record["metric"])
    tables = []
    with progress.task("intervals of the differences", (len(forms) + 1) * len(tests)) as advance:
        for model, title in (("start", "Base model"), *((form, FORM_TITLES[form].capitalize()) for form in forms)):
            rows = _test_rows(runs, model, tests, advance) if tests else [_dev_row(runs, model)]
            rows = [(name, cells) for name, cells in rows if any(cell.score is not None for cell in cells)]
            if rows:
                tables.append((title, rows))
    return tables


def _test_rows(
    runs: Sequence[Evidence], model: str, tests: dict[str, str], advance: Callable[[int], None]
) -> list[tuple[str, list[Cell]]]:
    """Return a row per test and, for several tests of one metric, their average, for runs that have all of them."""
    is_same, draws = {}, {}
    for name, metric in tests.items():
        is_same[name] = _equal_the_first([run.result["data"]["tests"].get(name) for run in runs])
        draws[name] = _differences(runs, is_same[name], model, name, metric)
        advance(1)
    groups = {metric: [name for name, of in tests.items() if of == metric] for metric in tests.values()}
    rows = []
    for row in results.table_rows(groups):
        scores = [results.mean_over(run.result["scores"].get(model, {}), row.tests) for run in runs]
        all_same = [all(each) for each in zip(*(is_same[name] for name in row.tests), strict=True)]
        rows.append((row.name, _cells(scores, all_same, np.mean([draws[name] for name in row.tests], axis=0))))
    return rows


def _dev_row(runs: Sequence[Evidence], model: str) -> tuple[str, list[Cell]]:
    scores = [(run.result["dev"] or {}).get(model) for run in runs]
    is_same = _equal_the_first([run.result["data"]["dev"] for run in runs])
    return DEV, _cells(scores, is_same, np.full((len(runs), N_RESAMPLES), np.nan))


def _equal_the_first(records: Sequence[DataRecord | None]) -> list[bool]:
    """Return which records are of the first one's rows, measured by the same metric."""
    measured = [record and (record["fingerprint"], record.get("metric")) for record in records]
    return [each == measured[0] for each in measured]


def _differences(runs: Sequence[Evidence], is_same: Sequence[bool], model: str, test: str, metric: str) -> Values:
    """Return the runs' differences from the first, (runs, resamples); NaN for the first and where scores are absent."""
    found = np.full((len(runs), N_RESAMPLES), np.nan)
    kept = [i for i, run in enumerate(runs) if is_same[i] and run.scores(model, test) is not None]
    is_comparable = kept[:1] == [0] and len(kept) > 1
    drawn = draws_of([(runs[i], model) for i in kept], test, metric) if is_comparable else None
    if drawn is not None:
        found[kept[1:]] = drawn[1:] - drawn[0]
    return found


def _cells(scores: Sequence[float | None], is_same: Sequence[bool], draws: Values) -> list[Cell]:
    """Return a row's cells.

    Args:
        scores: Score of each run.
        is_same: Whether each run was scored on the same data as the first.
        draws: Differences of each run from the first, (runs, resamples).
    """
    measured = [score for score, same in zip(scores, is_same, strict=True) if score is not None and same]
    best = max(measured) if len(set(measured)) > 1 else None
    cells, first = [], scores[0]
    for score, same, drawn in zip(scores, is_same, draws, strict=True):
        is_compared = same and score is not None and first is not None
        difference = (score - first or None) if is_compared else None  # type: ignore[operator]
        is_best = same and best is not None and score == best
        cells.append(Cell(score, is_best, difference, interval(drawn) if difference else None))
    return cells


def differing_settings(compared: Sequence[Result]) -> list[Row]:
    """Return the settings that differ between runs, except the folders that runs write to and reuse stages from."""

    def settings(result: Result) -> list[tuple[str, str]]:
        named = [
            (name.replace("members.", "members[1]."), value) for name, value in words.all_settings(result["config"])
        ]
        return [("method", result["method"]), *(each for each in named if each[0] not in ("output", "reuse_from"))]

    return differing(compared, settings)


def differing(compared: Sequence[Result], values: Callable[[Result], Iterable[tuple[str, str]]]) -> list[Row]:
    """Return what differs between runs, with each run's value."""
    tables = [dict(values(result)) for result in compared]
    names = dict.fromkeys(name for table in tables for name in table)
    rows = [(name, [table.get(name, words.NONE) for table in tables]) for name in names]
    return [row for row in rows if len(set(row[1])) > 1]


def results_page(run_folders: Iterable[str | Path], output: str | Path) -> Path:
    """Write the page of published results: a table per recipe with each number's run, and the runs without a result.

    Args:
        run_folders: Folders of finished, unfinished or failed runs.
        output: The Markdown file to write; its folder is created if needed.

    Returns:
        The path of the page.

    Raises:
        InputError: The page cannot be written.
    """
    path = Path(output)
    recipes: dict[str, list[tuple[str, Result]]] = {}
    unfinished = []
    for folder in (Path(folder) for folder in run_folders):
        shown = _shown_folder(folder, path.parent)
        try:
            result = results.read_result(folder)
        except RunError:
            unfinished.append((shown, _state(folder)))
            continue
        recipes.setdefault(str(result.get("recipe") or folder.resolve().name), []).append((shown, result))
    sections = [(recipe, *_recipe_section(of_recipe)) for recipe, of_recipe in recipes.items()]
    page = words.render("results.md.jinja", {"sections": sections, "unfinished": unfinished})
    with output_explained(path):
        return words.write_page(path, page)


def _recipe_section(runs: list[tuple[str, Result]]) -> tuple[str, list[str], dict[str, None]]:
    """Return the title of the metrics, the lines of the table, and the notes of a recipe's runs."""
    groups: dict[str, list[str]] = {}
    for _, result in runs:
        for metric, names in results.tests_by_metric(result).items():
            groups[metric] = list(dict.fromkeys([*groups.get(metric, []), *names]))
    of_dev = dict.fromkeys(result["metric"] for _, result in runs)
    metrics = dict.fromkeys([*of_dev, *groups])
    columns = list(results.table_rows(groups, metrics))
    dev = DEV + "".join(results.metric_mark(metric, metrics) for metric in of_dev)
    header = ("run", "form", dev, *(column.name for column in columns), "seed", "commit", "device", "minutes")
    rows = [row for shown, result in runs for row in _run_rows(shown, result, columns)]
    notes = dict.fromkeys(
        f"`{shown}`: {note}" for shown, result in runs for note in (*footnotes_of(result), *notes_of(result))
    )
    return words.metric_titles(metrics), words.markdown_table(header, rows), notes


def _run_rows(shown: str, result: Result, columns: Sequence[TableRow]) -> list[tuple[str, ...]]:
    """Return rows for the base model and each trained model: those kept, each member's, and the ensemble's."""
    environment = result["environment"]
    origin = (
        str(result["seed"]),
        words.short_commit(environment.get("commit")),
        environment.get("device", "unknown"),
        f"{result['seconds'] / 60:.1f}",
    )
    views = [("", result)]
    if "members" in result:
        views = [(f", member {i}", results.of_member(result, i)) for i in range(1, len(result["members"]) + 1)]
        views.append((", ensemble", results.of_ensemble(result)))
    rows = []
    for whose, view in views:
        for form, title in _ROWS:
            if form != "start" and form not in view["best"] and form not in view["scores"]:
                continue
            dev, scores = (view["dev"] or {}).get(form), view["scores"].get(form, {})
            cells = map(number, [dev, *(results.mean_over(scores, column.tests) for column in columns)])
            rows.append((f"`{shown}`", f"{title}{whose}", *cells, *origin))
    return rows


def _state(folder: Path) -> str:
    """Describe why a run has no result, judging by its folder."""
    if not folder.is_dir():
        return "no such folder"
    found = "its result.json cannot be read" if (folder / "result.json").exists() else "not finished"
    events = read_log(folder)
    if not events:
        return f"{found}, nothing logged"
    last = events[-1]
    details = ", ".join(f"{key} {last[key]}" for key in _DETAILS if key in last)
    when = f"last event `{last.get('event', 'unnamed')}` at {last.get('time', 'an unknown time')}"
    return f"{found}; {when}{f' ({details})' if details else ''}"


def _shown_folder(folder: Path, page_folder: Path) -> str:
    """Return a folder's path relative to the page's project, or a shortened one: no local path is published."""
    project = page_folder.resolve().parent
    resolved = folder.resolve()
    return (
        resolved.relative_to(project).as_posix()
        if resolved.is_relative_to(project)
        else shown_source(resolved.as_posix())
    )
