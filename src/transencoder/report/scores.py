"""Scores of a run as table rows, for pages and the terminal: base model, trained models, gains and their intervals."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table
from rich.text import Text

from transencoder import results
from transencoder.configs import Form
from transencoder.errors import ABSENT, number, plural
from transencoder.metrics import LEVEL, N_RESAMPLES
from transencoder.records import AVERAGE, DEV, FORM_TITLES, Result, SizeRecord
from transencoder.report.words import gain, metric_titles, render

BRACKETS = (
    f"Brackets: {100 * LEVEL:.0f} % intervals from {N_RESAMPLES:,} bootstrap samples of the test's pairs, for a "
    "ranking of its queries"
)
GAIN_BRACKETS = "for a gain, both models are measured on the same samples"

_GAIN = "gain"

_CRITERIA = {
    "self_retrieval": "mean reciprocal rank at which half of a sentence's words find it among all",
    "start_agreement": "rank correlation with the base model's scores",
    "teacher_agreement": "rank correlation with the labels",
    "member_agreement": "rank correlation with the other members' labels",
    "view_preference": "how often half of a sentence's words are more like it than its pair's other sentence",
    "alignment_and_uniformity": "the sum of the next two",
    "alignment": "how close a sentence and half of its words lie: 0 at most",
    "uniformity": "how evenly sentences lie: about 4 at most",
    "effective_rank": "how many directions the embeddings use",
}
"""Explanation of each criterion, in the order in which they are shown."""


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """Scores on one test set, averaged over tests, or on dev; each is a metric times 100, None where not measured."""

    name: str
    metric: str
    tests: Sequence[str]
    """Tests that the row averages; empty for the dev set."""
    start: float | None
    trained: dict[Form, float | None]
    """Score of each form that the run trained."""

    def gain(self, form: Form) -> float | None:
        """Return the gain over the base model, unrounded; None where a score was not measured or is undefined."""
        value = self.trained[form]
        if value is None or self.start is None or math.isnan(value - self.start):
            return None
        return value - self.start


@dataclass(frozen=True)
class Unlabelled:
    """Criteria computed without labels on held-out pairs, of the base model and the kept models side by side."""

    caption: str
    header: Sequence[str]
    """Titles of the models."""
    rows: Sequence[tuple[str, str, Sequence[str]]]
    """Name of each criterion, its explanation, and its value for each model."""

    @property
    def terminal(self) -> Table:
        """Return the table that the command line prints when there are no scores."""
        table = _table(self.header, caption=self.caption)
        for name, _, cells in self.rows:
            table.add_row(name, *cells)
        return table


def score_rows(result: Result, *, with_dev: bool = False) -> list[ScoreRow]:
    """Return a row per test set and, for several of one metric, their average; without test sets, the dev set's row.

    Args:
        result: The run's record.
        with_dev: Whether to add the dev set's row, if there is one, to the tests' rows too.
    """
    groups, scores, dev = results.tests_by_metric(result), result["scores"], result["dev"]
    has_dev = bool(dev) and (with_dev or not groups)
    metrics = dict.fromkeys([*groups, *([result["metric"]] if has_dev else [])])
    rows = []
    for name, metric, tests in results.table_rows(groups, metrics):
        start = scores.get(results.best_start(result, groups[metric]), {})
        trained = {form: results.mean_over(scores.get(form, {}), tests) for form in results.forms_of(result)}
        row = ScoreRow(name=name, metric=metric, tests=tests, start=results.mean_over(start, tests), trained=trained)
        rows.append(row)
    if dev and has_dev:
        name, metric = DEV + results.metric_mark(result["metric"], metrics), result["metric"]
        trained = {form: dev.get(form) for form in results.forms_of(result)}
        rows.append(ScoreRow(name=name, metric=metric, tests=[], start=dev.get("start"), trained=trained))
    return rows


def summary_rows(result: Result) -> list[ScoreRow]:
    """Return the rows that are shown first: the average of each metric's tests, or its only test, or dev."""
    return list({row.metric: row for row in score_rows(result)}.values())


def member_rows(result: Result) -> list[ScoreRow]:
    """Return the summary rows of each member and of their ensemble; [] for a run with one member.

    Members that were not measured by themselves, as on a person's grades, have no row.
    """
    if "members" not in result or not score_rows(result):
        return []
    views = [(f"member {number}", results.of_member(result, number)) for number in range(1, len(result["members"]) + 1)]
    views.append(("ensemble", results.of_ensemble(result)))
    rows = [replace(row, name=f"{title}, {row.name}") for title, view in views for row in summary_rows(view)]
    return [row for row in rows if any(value is not None for value in (row.start, *row.trained.values()))]


def score_header(result: Result) -> tuple[str, ...]:
    """Return the titles of the columns that `score_cells` fills."""
    return ("", "base model", *(title for form in results.forms_of(result) for title in (form, _GAIN)))


def score_cells(row: ScoreRow) -> tuple[str, ...]:
    """Return a row's name, the base model's score, and each form's score and gain."""
    trained = [text for value in row.trained.values() for text in (number(value), gain(value, row.start))]
    return (row.name, number(row.start), *trained)


def summary_table(result: Result) -> Table:
    """Make the table that the command line prints at the end of a run."""
    rows, of_members, header = score_rows(result), member_rows(result), score_header(result)
    caption = "\n".join(footnotes_of(result)) if rows else "nothing was measured"
    table = _table(header[1:], title=metric_titles(table_metrics(result)), caption=caption)
    for row in [*rows, *of_members]:
        if row.name.startswith(AVERAGE) or row in of_members[:1]:
            table.add_section()
        cells = zip(header, score_cells(row), strict=True)
        table.add_row(*(_coloured(cell) if title == _GAIN else cell for title, cell in cells))
    return table


def _table(columns: Iterable[str], *, title: str | None = None, caption: str | None = None) -> Table:
    """Make a table of numbers, whose first column has the names of the rows."""
    table = Table(title=title, caption=caption)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _coloured(cell: str) -> Text:
    if cell == ABSENT or math.isnan(float(cell)) or float(cell) == 0:
        return Text(cell)
    return Text(cell, style="green" if cell.startswith("+") else "red")


def runs_table(runs: Mapping[str, Result]) -> Table:
    """Make a table of runs of one recipe: each form's dev metric and test average.

    Below it stands the mean, with the standard deviation, of runs that differ only in their seeds.

    Args:
        runs: Results by the names of their runs, such as `seed-1,bi.epochs-3`.
    """
    first = next(iter(runs.values()))
    values = {}
    for form in results.forms_of(first):
        values[f"{form} dev"] = [(result["dev"] or {}).get(form) for result in runs.values()]
        for metric, names in results.tests_by_metric(first).items():
            title = f"{form} average ({metric})" if len(names) > 1 else f"{form} {names[0]}"
            values[title] = [results.mean_over(result["scores"].get(form, {}), names) for result in runs.values()]
    table = _table(values, title=metric_titles(table_metrics(first)))
    alike = defaultdict(list)
    for i, name in enumerate(runs):
        table.add_row(name, *(number(column[i]) for column in values.values()))
        alike[",".join(part for part in name.split(",") if not part.startswith("seed-"))].append(i)
    table.add_section()
    for name, rows in alike.items():
        if len(rows) > 1:
            cells = (_mean_and_deviation([column[i] for i in rows]) for column in values.values())
            table.add_row(f"mean of {len(rows)} seeds" + (f", {name}" if name else ""), *cells)
    return table


def _mean_and_deviation(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return ABSENT
    return f"{number(statistics.mean(known))} ± {number(statistics.stdev(known))}"


def footnotes_of(result: Result) -> list[str]:
    """Return footnotes: the precision and length of the measurement, and the score of the base model as it is."""
    return render("footnotes.txt.jinja", {"result": result}).splitlines()


def table_metrics(result: Result) -> list[str]:
    """Return the metrics of the table's numbers."""
    return list(results.tests_by_metric(result)) or [result["metric"]]


def size_cells(sizes: SizeRecord) -> dict[str, Any]:
    """Compare a student with a larger model: `header`, `rows` (parameters, file size, speed, ratios) and `how`."""
    student, other = sizes["student"], sizes["other"]
    rows = [
        (title, form.format(other[name]), form.format(student[name]), f"x {student[name] / other[name]:.2f}")  # type: ignore[literal-required]
        for title, name, form in (
            ("parameters", "parameters", "{:,}"),
            ("weights, MB", "megabytes", "{:.1f}"),
            ("sentences a second", "sentences_a_second", "{:.0f}"),
        )
    ]
    is_cpu = sizes["device"].startswith("cpu")
    where = f"{sizes['device']}, {plural(sizes['threads'], 'thread')}" if is_cpu else sizes["device"]
    length = f" of at most {sizes['max_length']} tokens" if sizes.get("max_length") else ""
    how = f"Speed: {plural(sizes['sentences'], 'training sentence')}{length}, plain `encode`, {where}, median of three."
    whose = "base model" if sizes["whose"] == "start" else sizes["whose"]
    return {"header": ("", whose, "student", ""), "rows": rows, "how": how}


def unlabelled_of(result: Result) -> Unlabelled | None:
    """Return the criteria of a run; None where no trained model has any."""
    found, forms = result.get("criteria", {}), results.forms_of(result)
    if not any(form in found for form in forms):
        return None
    chosen_by = result["selection"]["criteria"] if "selection" in result else {}
    rows = []
    for name, about in _CRITERIA.items():
        values = [found.get(model, {}).get(name) for model in ("start", *forms)]
        if any(value is not None for value in values):
            chose = " and ".join(f"{FORM_TITLES[form]}s" for form in forms if chosen_by.get(form) == name)
            about_it = f"{about}; chose the {chose}" if chose else about
            rows.append((name.replace("_", " "), about_it, list(map(number, values))))
    caption = (
        f"On {plural(result['data']['pairs']['held_out_rows'], 'held-out pair')}. In each row higher is assumed to be "
        "better; none of these numbers shows that a model is good."
    )
    return Unlabelled(caption, ("base model", *(FORM_TITLES[form] for form in forms)), rows)
