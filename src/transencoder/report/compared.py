"""Several runs beside each other: which they are, what they score, and in what they differ."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transencoder import progress
from transencoder.bootstrap import Interval, interval
from transencoder.finished import Evidence, draws_of
from transencoder.records import AVERAGE, FORM_TITLES, Result
from transencoder.report.inputs import data_sets
from transencoder.report.text import NONE, environment_of, settings_of
from transencoder.results import forms_of, mean_over, metric_mark, read_result

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Compared:
    """One of the runs."""

    number: int
    """From 1, in the order in which they were given."""
    name: str
    """Its folder, as far as is needed to tell it from the others."""
    evidence: Evidence

    @property
    def result(self) -> Result:
        """Its record."""
        return self.evidence.result


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


def read_runs(folders: Sequence[str | Path]) -> list[Compared]:
    """Read the records of several runs.

    Raises:
        RunError: One is not finished, or its result is damaged.
    """
    paths = [Path(folder) for folder in folders]
    return [
        Compared(number, name, Evidence(path, read_result(path)))
        for number, (name, path) in enumerate(zip(_names(paths), paths, strict=True), 1)
    ]


def score_tables(runs: Sequence[Compared]) -> list[tuple[str, list[ComparedRow]]]:
    """For the start and each form that any of the runs has: its title and its rows."""
    forms = [form for form in FORM_TITLES if any(form in forms_of(run.result) for run in runs)]
    tests = _tests(runs)
    tables = []
    with progress.task("intervals of the differences", (len(forms) + 1) * len(tests)) as advance:
        for model, title in (("start", "Start"), *((form, FORM_TITLES[form].capitalize()) for form in forms)):
            rows = _rows(runs, model, tests, advance)
            if rows:
                tables.append((title, rows))
    return tables


def differing_settings(runs: Sequence[Compared]) -> list[Row]:
    """Settings that are not the same in all runs, besides the folders they write to and take stages from."""

    def settings(result: Result) -> Iterator[tuple[str, str]]:
        yield "method", result["method"]
        for name, value in settings_of(result["config"]):
            if name not in ("output", "reuse_from"):
                yield name.replace("members.", "members[1]."), value

    return _differing(runs, settings)


def differing_data(runs: Sequence[Compared]) -> list[Row]:
    """Data sets that are not the same in all runs."""
    return _differing(runs, data_sets)


def differing_environment(runs: Sequence[Compared]) -> list[Row]:
    """What the runs were made with, where it is not the same."""
    return _differing(runs, environment_of)


def _names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, or as many of the last as tell all apart."""
    parts = [path.resolve().parts for path in paths]
    longest = max(map(len, parts))
    for n_parts in range(1, longest + 1):
        names = ["/".join(each[-n_parts:]) for each in parts]
        if len(set(names)) == len(names):
            break
    return names


def _tests(runs: Sequence[Compared]) -> dict[str, str]:
    """Test -> its metric, of all that any run was scored on."""
    tests: dict[str, str] = {}
    for run in runs:
        for name, record in run.result["data"]["tests"].items():
            tests.setdefault(name, record.get("metric", run.result["metric"]))
    return tests


def _rows(
    runs: Sequence[Compared], model: str, tests: dict[str, str], advance: Callable[[int], None]
) -> list[ComparedRow]:
    """The tests' rows and, for several of a metric that all runs have, their average; dev where there are no tests."""
    metrics = dict.fromkeys(tests.values())
    rows = []
    for metric in metrics:
        names, draws = [name for name, of in tests.items() if of == metric], {}
        for name in names:
            draws[name] = _draws(runs, model, name, metric)
            scores = [run.result["scores"].get(model, {}).get(name) for run in runs]
            rows.append(_row(name + metric_mark(metric, metrics), scores, _same_data(runs, [name]), draws[name]))
            advance(1)
        if len(names) > 1:
            scores = [mean_over(run.result["scores"].get(model, {}), names) for run in runs]
            together = [_mean([draws[name][i] for name in names]) for i in range(len(runs))]
            rows.append(_row(AVERAGE + metric_mark(metric, metrics), scores, _same_data(runs, names), together))
    if not tests:
        scores = [(run.result["dev"] or {}).get(model) for run in runs]
        rows.append(_row("dev", scores, _same_dev(runs), [None] * len(runs)))
    return [row for row in rows if any(cell.score is not None for cell in row.cells)]


def _row(
    name: str,
    scores: Sequence[float | None],
    is_same: Sequence[bool],
    draws: "Sequence[NDArray[np.float64] | None]",
) -> ComparedRow:
    measured = [score for score, same in zip(scores, is_same, strict=True) if score is not None and same]
    best = max(measured) if len(measured) > 1 and len(set(measured)) > 1 else None
    cells = []
    for i, (score, same, drawn) in enumerate(zip(scores, is_same, draws, strict=True)):
        is_other = i > 0 and same and score is not None and scores[0] is not None and score != scores[0]
        difference = score - scores[0] if is_other else None  # type: ignore[operator]
        found = None if difference is None or drawn is None else interval(drawn)
        cells.append(Cell(score, same and score == best and best is not None, difference, found))
    return ComparedRow(name, cells)


def _same_data(runs: Sequence[Compared], names: Sequence[str]) -> list[bool]:
    """Whether each run was scored on the first one's data."""

    def fingerprints(run: Compared) -> list[str | None]:
        tests = run.result["data"]["tests"]
        return [tests[name]["fingerprint"] if name in tests else None for name in names]

    first = fingerprints(runs[0])
    return [fingerprints(run) == first for run in runs]


def _same_dev(runs: Sequence[Compared]) -> list[bool]:
    """The same of the dev set."""
    sets = [run.result["data"]["dev"] for run in runs]
    fingerprints = [None if each is None else each["fingerprint"] for each in sets]
    return [each == fingerprints[0] for each in fingerprints]


def _draws(runs: Sequence[Compared], model: str, test: str, metric: str) -> "list[NDArray[np.float64] | None]":
    """Differences from the first run on the same resamples, (resamples,) each; None where nothing is kept."""
    is_same = _same_data(runs, [test])
    kept = [i for i, run in enumerate(runs) if is_same[i] and run.evidence.scores(model, test) is not None]
    drawn = (
        draws_of([(runs[i].evidence, model) for i in kept], test, metric) if kept[:1] == [0] and len(kept) > 1 else None
    )
    if drawn is None:
        return [None] * len(runs)
    return [drawn[kept.index(i)] - drawn[0] if i in kept[1:] else None for i in range(len(runs))]


def _mean(draws: "Sequence[NDArray[np.float64] | None]") -> "NDArray[np.float64] | None":
    there = [each for each in draws if each is not None]
    return sum(there[1:], start=there[0]) / len(there) if there and len(there) == len(draws) else None


def _differing(runs: Sequence[Compared], values: Callable[[Result], Iterable[tuple[str, str]]]) -> list[Row]:
    tables = [dict(values(run.result)) for run in runs]
    names = dict.fromkeys(name for table in tables for name in table)
    rows = [(name, [table.get(name, NONE) for table in tables]) for name in names]
    return [row for row in rows if len(set(row[1])) > 1]
