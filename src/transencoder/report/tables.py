"""The score table: start, bi, cross and the gains of each, as Markdown and for the terminal."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table
from rich.text import Text

from transencoder.config import Form
from transencoder.records import AVERAGE, Result, SizeRecord
from transencoder.report.text import gain, metric_titles
from transencoder.results import best_start, forms_of, mean_over, metric_mark, of_ensemble, of_member, tests_by_metric
from transencoder.wording import ABSENT, number, plural

_GAIN = "gain"


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """One test set, the average, or the dev set; a score is a metric times 100, None where not measured."""

    name: str
    start: float | None
    trained: dict[Form, float | None]
    """Of each form that the run trained."""

    def gain(self, form: Form) -> float | None:
        """Over the start, unrounded; None where one of them was not measured, or is undefined."""
        value = self.trained[form]
        if value is None or self.start is None or math.isnan(value - self.start):
            return None
        return value - self.start


def score_rows(result: Result) -> list[ScoreRow]:
    """One row per test set and, for several of one metric, their average; without test sets the dev set's, if any."""
    groups = tests_by_metric(result)
    rows = [row for metric, names in groups.items() for row in _rows(result, names, metric_mark(metric, groups))]
    dev = result["dev"]
    if not groups and dev:
        trained = {form: dev.get(form) for form in forms_of(result)}
        rows.append(ScoreRow(name="dev", start=dev.get("start"), trained=trained))
    return rows


def member_rows(result: Result) -> list[ScoreRow]:
    """Of each of several members and of their ensemble: the average or the only test of each metric, or dev."""
    views = [(f"member {number}", of_member(result, number)) for number in range(1, len(result["members"]) + 1)]
    groups, found = tests_by_metric(result), []
    for title, view in [*views, ("ensemble", of_ensemble(result))]:
        last = [_rows(view, names, metric_mark(metric, groups))[-1] for metric, names in groups.items()]
        found += [replace(row, name=f"{title}, {row.name}") for row in last or score_rows(view)]
    return found


def summary_table(result: Result) -> Table:
    """The table the command line prints at the end of a run."""
    rows = score_rows(result)
    of_members = member_rows(result) if "members" in result and rows else []
    caption = None if rows else "nothing was measured"
    table = Table(title=shown_metrics(result), caption=caption)
    header = _header(result)
    for position, title in enumerate(header):
        table.add_column(title, justify="left" if position == 0 else "right", no_wrap=True)
    for row in [*rows, *of_members]:
        if row.name.startswith(AVERAGE) or row in of_members[:1]:
            table.add_section()
        cells = zip(header, _cells(row), strict=True)
        table.add_row(*(_coloured(cell) if title == _GAIN else cell for title, cell in cells))
    return table


def runs_table(results: Mapping[str, Result]) -> Table:
    """Runs of one recipe that differ in some settings: dev and the tests' average of each form, mean and deviation."""
    forms = forms_of(next(iter(results.values())))
    table = Table(title=shown_metrics(next(iter(results.values()))))
    table.add_column("", no_wrap=True)
    values = {}
    for form in forms:
        values[f"{form} dev"] = [(result["dev"] or {}).get(form) for result in results.values()]
        for metric, names in tests_by_metric(next(iter(results.values()))).items():
            title = f"{form} average ({metric})" if len(names) > 1 else f"{form} {names[0]}"
            values[title] = [mean_over(result["scores"].get(form, {}), names) for result in results.values()]
    for title in values:
        table.add_column(title, justify="right", no_wrap=True)
    for i, name in enumerate(results):
        table.add_row(name, *(number(column[i]) for column in values.values()))
    if len(results) > 1:
        table.add_section()
        for title, of in (("mean", statistics.mean), ("standard deviation", statistics.stdev)):
            table.add_row(title, *(ABSENT if None in column else number(of(column)) for column in values.values()))  # type: ignore[type-var]
    return table


def score_table(result: Result) -> list[str]:
    """The same table as Markdown lines."""
    return markdown_table(_header(result), [_cells(row) for row in score_rows(result)])


def member_table(result: Result) -> list[str]:
    """Members and ensemble as Markdown lines."""
    return markdown_table(_header(result), [_cells(row) for row in member_rows(result)])


def shown_metrics(result: Result) -> str:
    """What the table's numbers are."""
    return metric_titles(tests_by_metric(result) or [result["metric"]])


def size_table(sizes: SizeRecord) -> list[str]:
    """A student beside its teacher as Markdown lines."""
    cells = size_cells(sizes)
    return [*markdown_table(("", *cells["header"]), cells["rows"]), "", cells["how"]]


def size_cells(sizes: SizeRecord) -> dict[str, Any]:
    """A student beside its teacher: parameters, file size, speed, how many times less or more; how it was measured."""
    student, other = sizes["student"], sizes["other"]
    cells = [
        ("parameters", f"{other['parameters']:,}", f"{student['parameters']:,}"),
        ("weights, MB", f"{other['megabytes']:.1f}", f"{student['megabytes']:.1f}"),
        ("sentences a second", f"{other['sentences_a_second']:.0f}", f"{student['sentences_a_second']:.0f}"),
    ]
    ratios = [student[name] / other[name] for name in ("parameters", "megabytes", "sentences_a_second")]
    rows = [(*cell, f"x {ratio:.2f}") for cell, ratio in zip(cells, ratios, strict=True)]
    threads = plural(sizes["threads"], "thread")
    where = f"{sizes['device']}, {threads}" if sizes["device"].startswith("cpu") else sizes["device"]
    how = f"Speed: {plural(sizes['sentences'], 'training sentence')}, plain `encode`, {where}, median of three."
    return {"header": (sizes["whose"], "student", ""), "rows": rows, "how": how}


def markdown_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """A Markdown table whose first column is text and the others numbers."""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return [
        "| " + " | ".join(cells) + " |" for cells in (header, rule, *([_escaped(cell) for cell in row] for row in rows))
    ]


def _header(result: Result) -> tuple[str, ...]:
    return ("", "start", *(title for form in forms_of(result) for title in (form, _GAIN)))


def _rows(result: Result, names: list[str], mark: str) -> list[ScoreRow]:
    """Test sets of one metric and their average."""
    before = best_start(result, names)
    rows = [
        _row(result, before, name + mark, lambda scores, name=name: scores.get(name))  # type: ignore[misc]
        for name in names
    ]
    if len(names) > 1:
        rows.append(_row(result, before, AVERAGE + mark, lambda scores: mean_over(scores, names)))
    return rows


def _row(
    result: Result, before: str, name: str, pick: Callable[[Mapping[str, float | None]], float | None]
) -> ScoreRow:
    start = pick(result["scores"].get(before, {}))
    trained = {form: pick(result["scores"].get(form, {})) for form in forms_of(result)}
    return ScoreRow(name=name, start=start, trained=trained)


def _cells(row: ScoreRow) -> tuple[str, ...]:
    trained = [text for value in row.trained.values() for text in (number(value), gain(value, row.start))]
    return (row.name, number(row.start), *trained)


def _coloured(cell: str) -> Text:
    if cell == ABSENT or math.isnan(float(cell)) or float(cell) == 0:
        return Text(cell)
    return Text(cell, style="green" if cell.startswith("+") else "red")


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
