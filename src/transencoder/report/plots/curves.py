"""How the metric went: on dev from cycle to cycle (Trans-Encoder, Figure 4) and step by step, on tests in analysis.

Where there was no dev set: how the criteria went that chose in its stead.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeGuard

from transencoder.config import Form
from transencoder.records import FORM_TITLES, FormCycle, Result
from transencoder.report.plots.plot import SEVERAL, Axis, Line, Mark, Plot, Points, Rule, linear_axis, short
from transencoder.report.text import short_metric
from transencoder.results import form_cycle, forms_of, has_cycles, tests_by_metric

FORMS: tuple[Form, ...] = ("cross", "bi", "mlm")
"""In the order in which a cycle trains them."""

ROOM = (0.08, 0.08)
"""Left free below and above curves, in shares of their range."""


def curve_plots(result: Result) -> Iterator[Plot]:
    """The plots of a run's curves, as far as it recorded any."""
    by_cycle = cycle_plot(result)
    if by_cycle is not None:
        yield by_cycle
    for form in _forms(result):
        title, y_label = f"{FORM_TITLES[form]}, dev by step", short_metric(result["metric"])
        yield from _of_form(f"dev-{form}", title, _dev_marks(result, form), ("step", y_label))
    for form in _forms(result):
        criterion = _criterion(result, form)
        if criterion is not None:
            name = criterion.replace("_", " ")
            title = f"{FORM_TITLES[form]}, {name} on held-out pairs by step"
            yield from _of_form(f"criterion-{form}", title, _criterion_marks(result, form, criterion), ("step", name))
    for form in _forms(result):
        lines = analysis_lines(result, form)
        marks = [nth_line(name, i, points) for i, (name, points) in enumerate(lines.items())]
        labels = ("step, cycles one after another", " / ".join(map(short_metric, tests_by_metric(result))))
        yield from _of_form(f"tests-{form}", f"{FORM_TITLES[form]}, tests by step", marks, labels)


def cycle_plot(result: Result) -> Plot | None:
    """The dev metric of each form after each cycle, the start before them; None where there is no more than one."""
    curves = {form: cycle_line(result, form) for form in _forms(result)}
    lines = [Line(label=FORM_TITLES[form], style=form, points=points) for form, points in curves.items() if points]
    if not has_cycles(result) or not lines:
        return None
    values = [value for line in lines for _, value in line.points]
    said = [
        f"{line.label}: {', '.join(f'{_cycle_name(cycle)} {short(value)}' for cycle, value in line.points)}"
        for line in lines
    ]
    return Plot(
        name="dev-by-cycle",
        title="Dev by cycle",
        x=cycle_axis(len(result["cycles"])),
        y=linear_axis(short_metric(result["metric"]), values, room=ROOM),
        marks=lines,
        about="; ".join(said) + ".",
    )


def cycle_line(result: Result, form: Form) -> Points:
    """A form's dev metric times 100 after each cycle, from 1; the bi-encoder's begins with the start, at 0."""
    points = [(float(cycle["cycle"]), part["dev"]) for cycle in result["cycles"] if (part := form_cycle(cycle, form))]
    if form == "bi":
        points.insert(0, (0.0, (result["dev"] or {}).get("start")))
    return _finite(points)


def cycle_axis(n_cycles: int) -> Axis:
    """The start and the cycles."""
    ticks = [(float(cycle), _cycle_name(cycle)) for cycle in range(n_cycles + 1)]
    return Axis(label="cycle", low=-0.25, high=n_cycles + 0.25, ticks=ticks)


def analysis_lines(result: Result, form: Form) -> dict[str, Points]:
    """One line a scored test set of the analysis mode, the cycles one after another on the step axis."""
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


def nth_line(name: str, position: int, points: Points) -> Line:
    """One line of several of a kind, by its position among them."""
    is_dashed = position // len(SEVERAL) % 2 == 1
    return Line(label=name, style=SEVERAL[position % len(SEVERAL)], points=points, is_dashed=is_dashed)


def _of_form(name: str, title: str, marks: Sequence[Mark], labels: tuple[str, str]) -> Iterator[Plot]:
    lines = [mark for mark in marks if isinstance(mark, Line)]
    if not lines:
        return
    xs, ys = ([point[axis] for line in lines for point in line.points] for axis in (0, 1))
    ys += [mark.value for mark in marks if isinstance(mark, Rule)]
    said = [f"{line.label} goes from {short(line.points[0][1])} to {short(line.points[-1][1])}" for line in lines]
    x_label, y_label = labels
    y = linear_axis(y_label, ys, room=ROOM)
    yield Plot(
        name=name,
        title=title[0].upper() + title[1:],
        x=linear_axis(x_label, [0.0, *xs], room=(0.0, 0.04), whole=True),
        y=y,
        marks=marks,
        about="; ".join(said) + ".",
        left=22.0 + 6.0 * max(4, *(len(tick) for _, tick in y.ticks)),
    )


def _dev_marks(result: Result, form: Form) -> list[Mark]:
    return _with_start(_lines_by_cycle(result, form, lambda part: part["curve"]), (result["dev"] or {}).get("start"))


def _with_start(lines: Sequence[Line], start: float | None) -> list[Mark]:
    if not lines or not _is_number(start):
        return list(lines)
    return [*lines, Rule(label="start (bi-encoder)", at="y", value=start, style="start")]


def _criterion(result: Result, form: Form) -> str | None:
    """What chose a form's checkpoints in the stead of dev."""
    parts = (form_cycle(cycle, form) for cycle in result["cycles"])
    return next((part["chosen_by"] for part in parts if part and "chosen_by" in part), None)


def _criterion_marks(result: Result, form: Form, criterion: str) -> list[Mark]:
    def recorded(part: FormCycle) -> list[tuple[int, float | None]]:
        return [(step, found.get(criterion)) for step, found in part.get("criteria", ())]

    return _with_start(
        _lines_by_cycle(result, form, recorded), result.get("criteria", {}).get("start", {}).get(criterion)
    )


def _lines_by_cycle(
    result: Result, form: Form, recorded: Callable[[FormCycle], list[tuple[int, float | None]]]
) -> list[Line]:
    """One line a cycle; a cycle's steps start at 0 as its training does."""
    lines: list[Line] = []
    for cycle in result["cycles"]:
        part = form_cycle(cycle, form)
        points = _finite([(float(step), value) for step, value in recorded(part)] if part else [])
        if points:
            line = nth_line(f"cycle {cycle['cycle']}", len(lines), points)
            lines.append(line if has_cycles(result) else Line(label=FORM_TITLES[form], style=form, points=points))
    return lines


def _forms(result: Result) -> list[Form]:
    return [form for form in FORMS if form in forms_of(result)]


def _cycle_name(cycle: float) -> str:
    return f"{cycle:.0f}" if cycle else "start"


def _finite(points: list[tuple[float, float | None]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if _is_number(y)]


def _is_number(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
