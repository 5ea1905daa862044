"""How the metric went: on dev from cycle to cycle (Trans-Encoder, Figure 4) and step by step, on tests in analysis.

Where there was no dev set: how the criteria went that chose in its stead.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

from transencoder.configs import Form
from transencoder.records import FORM_TITLES, FormCycle, Result
from transencoder.report.figures import SEVERAL, Axis, Line, Mark, Plot, Points, Rule, short
from transencoder.report.words import short_metric
from transencoder.results import form_cycle, forms_of, has_cycles, tests_by_metric

_FORMS: tuple[Form, ...] = ("cross", "bi", "mlm")
"""In the order in which a cycle trains them."""

_STEPS, _STEPS_OF_CYCLES = "step", "step, cycles one after another"


def curve_plots(result: Result) -> Iterator[Plot]:
    """Make the plots of a run's curves, as far as it recorded any."""
    forms, metric = [form for form in _FORMS if form in forms_of(result)], short_metric(result["metric"])
    if has_cycles(result):
        by_cycle = {form: _by_cycle(result, form) for form in forms}
        lines = [
            Line(label=FORM_TITLES[form], style=form, points=points) for form, points in by_cycle.items() if points
        ]
        yield from _plot("dev-by-cycle", "Dev by cycle", lines, _cycles(len(result["cycles"])), metric)
    for form in forms:
        start = (result["dev"] or {}).get("start")
        lines = _lines_of_cycles(result, form, lambda part: part["curve"])
        title = f"{FORM_TITLES[form]}, dev by step"
        yield from _plot(f"dev-{form}", title, lines, _steps(_STEPS), metric, start)
    for form in forms:
        yield from _criterion_plot(result, form)
    for form in forms:
        lines = [nth_line(name, i, points) for i, (name, points) in enumerate(_analysis(result, form).items())]
        metrics = " / ".join(map(short_metric, tests_by_metric(result)))
        title = f"{FORM_TITLES[form]}, tests by step"
        yield from _plot(f"tests-{form}", title, lines, _steps(_STEPS_OF_CYCLES), metrics)


def plots_together(results: Mapping[str, Result]) -> Iterator[Plot]:
    """Make for each form that some of the runs have the plots of its dev metric by cycle and by step.

    Args:
        results: Short name of a run -> its record.
    """
    n_cycles = max(len(result["cycles"]) for result in results.values())
    ways = [("step", _by_step, _steps(_STEPS_OF_CYCLES))]
    if any(map(has_cycles, results.values())):
        ways.insert(0, ("cycle", _by_cycle, _cycles(n_cycles)))
    for form in _FORMS:
        for unit, points_of, axis in ways:
            found = {
                i: points_of(result, form) for i, result in enumerate(results.values()) if form in forms_of(result)
            }
            names = list(results)
            lines = [nth_line(names[i], i, points) for i, points in found.items() if points]
            metrics = dict.fromkeys(short_metric(results[line.label]["metric"]) for line in lines)
            title = f"{FORM_TITLES[form]}, dev by {unit}"
            yield from _plot(f"dev-{form}-by-{unit}", title, lines, axis, " / ".join(metrics))


def nth_line(name: str, position: int, points: Points) -> Line:
    """Return one line of several of a kind, by its position among them."""
    is_dashed = position // len(SEVERAL) % 2 == 1
    return Line(label=name, style=SEVERAL[position % len(SEVERAL)], points=points, is_dashed=is_dashed)


def _plot(
    name: str, title: str, lines: Sequence[Line], x: Axis, y_label: str, start: float | None = None
) -> Iterator[Plot]:
    """Make a plot of some lines, if there are any, and of what the start has."""
    marks: list[Mark] = list(lines)
    if lines and _is_number(start):
        marks.append(Rule(label="base model (bi-encoder)", at="y", value=start, style="start"))
    if lines:
        y, title = Axis(label=y_label), title[0].upper() + title[1:]
        yield Plot(name=name, title=title, x=x, y=y, marks=marks, about=" ".join(map(_described, lines)))


def _described(line: Line) -> str:
    values = [value for _, value in line.points]
    return f"{line.label}: from {short(values[0])} to {short(values[-1])}, at best {short(max(values))}."


def _steps(label: str) -> Axis:
    return Axis(label=label, is_whole=True)


def _cycles(n_cycles: int) -> Axis:
    names = {0.0: "base model"} | {float(cycle): str(cycle) for cycle in range(1, n_cycles + 1)}
    return Axis(label="cycle", limits=(-0.25, n_cycles + 0.25), names=names)


def _by_cycle(result: Result, form: Form) -> Points:
    """Return a form's dev metric after each cycle, from 1; the bi-encoder's begins with the start, at 0."""
    points = [(cycle["cycle"], part["dev"]) for cycle in result["cycles"] if (part := form_cycle(cycle, form))]
    start = [(0, (result["dev"] or {}).get("start"))] if form == "bi" else []
    return _finite([*start, *points])


def _by_step(result: Result, form: Form) -> Points:
    """Return the dev metric at each evaluation, the cycles' steps one after another."""
    points: list[tuple[int, float | None]] = []
    offset = 0
    for cycle in result["cycles"]:
        part = form_cycle(cycle, form)
        curve = part["curve"] if part else []
        points += [(offset + step, value) for step, value in curve]
        offset += curve[-1][0] if curve else 0
    return _finite(points)


def _lines_of_cycles(
    result: Result, form: Form, recorded: Callable[[FormCycle], list[tuple[int, float | None]]]
) -> list[Line]:
    """Make one line a cycle; a cycle's steps start at 0 as its training does."""
    lines: list[Line] = []
    for cycle in result["cycles"]:
        part = form_cycle(cycle, form)
        points = _finite(recorded(part)) if part else []
        if points and has_cycles(result):
            lines.append(nth_line(f"cycle {cycle['cycle']}", len(lines), points))
        elif points:
            lines.append(Line(label=FORM_TITLES[form], style=form, points=points))
    return lines


def _criterion_plot(result: Result, form: Form) -> Iterator[Plot]:
    """Make the plot of what chose a form's checkpoints where there was no dev set."""
    parts = [part for cycle in result["cycles"] if (part := form_cycle(cycle, form))]
    criterion = next((part["chosen_by"] for part in parts if "chosen_by" in part), None)
    if criterion is None:
        return

    def recorded(part: FormCycle) -> list[tuple[int, float | None]]:
        return [(step, found.get(criterion)) for step, found in part.get("criteria", ())]

    start = result.get("criteria", {}).get("start", {}).get(criterion)
    name = criterion.replace("_", " ")
    title = f"{FORM_TITLES[form]}, {name} on held-out pairs by step"
    lines = _lines_of_cycles(result, form, recorded)
    yield from _plot(f"criterion-{form}", title, lines, _steps(_STEPS), name, start)


def _analysis(result: Result, form: Form) -> dict[str, Points]:
    """Return one line a scored test set of the analysis mode, the cycles one after another on the step axis."""
    records = sorted((result["analysis"] or {}).get(form, []), key=lambda record: (record[0], record[1]))
    lines: dict[str, list[tuple[float, float]]] = {}
    offset, previous_cycle, last = 0, None, 0
    for cycle, step, scores in records:
        if previous_cycle is not None and cycle != previous_cycle:
            offset, last = offset + last, 0
        previous_cycle, last = cycle, step
        for name, value in scores.items():
            if _is_number(value):
                lines.setdefault(name, []).append((float(offset + step), value))
    return dict(lines)


def _finite(points: Iterable[tuple[int, float | None]]) -> list[tuple[float, float]]:
    return [(float(x), y) for x, y in points if _is_number(y)]


def _is_number(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
