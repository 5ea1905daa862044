"""The dev curves of several runs in one plot: from cycle to cycle, and step by step."""

from collections.abc import Callable, Iterator, Mapping

from transencoder.config import Form
from transencoder.records import FORM_TITLES, Result
from transencoder.report.plots.curves import FORMS, ROOM, cycle_axis, cycle_line, nth_line
from transencoder.report.plots.plot import Axis, Line, Plot, Points, linear_axis, short
from transencoder.report.text import short_metric
from transencoder.results import form_cycle, forms_of, has_cycles


def plots_together(results: Mapping[str, Result]) -> Iterator[Plot]:
    """For each form that some of the runs have, its dev metric by cycle and by step.

    Args:
        results: Short name of a run -> its record.
    """
    n_cycles = max(len(result["cycles"]) for result in results.values())
    for form in FORMS:
        if any(map(has_cycles, results.values())):
            yield from _plot(results, form, "cycle", cycle_line, lambda _: cycle_axis(n_cycles))
        yield from _plot(results, form, "step", _steps, _step_axis)


def _plot(
    results: Mapping[str, Result],
    form: Form,
    unit: str,
    points_of: Callable[[Result, Form], Points],
    axis_of: Callable[[list[float]], Axis],
) -> Iterator[Plot]:
    found = {name: points_of(result, form) for name, result in results.items() if form in forms_of(result)}
    lines = [nth_line(name, list(results).index(name), points) for name, points in found.items() if points]
    if not lines:
        return
    xs, ys = ([point[axis] for line in lines for point in line.points] for axis in (0, 1))
    metrics = dict.fromkeys(short_metric(results[line.label]["metric"]) for line in lines)
    title = FORM_TITLES[form]
    yield Plot(
        name=f"dev-{form}-by-{unit}",
        title=f"{title[0].upper()}{title[1:]}, dev by {unit}",
        x=axis_of(xs),
        y=linear_axis(" / ".join(metrics), ys, room=ROOM),
        marks=lines,
        about=" ".join(_said(line) for line in lines),
    )


def _steps(result: Result, form: Form) -> Points:
    """The dev metric at each evaluation, the cycles' steps one after another."""
    points, offset = [], 0
    for cycle in result["cycles"]:
        part = form_cycle(cycle, form)
        curve = part["curve"] if part else []
        points += [(float(offset + step), value) for step, value in curve if value is not None]
        offset += curve[-1][0] if curve else 0
    return points


def _step_axis(steps: list[float]) -> Axis:
    return linear_axis("step, cycles one after another", [0.0, *steps], room=(0.0, 0.04), whole=True)


def _said(line: Line) -> str:
    values = [value for _, value in line.points]
    return f"{line.label}: from {short(values[0])} to {short(values[-1])}, at best {short(max(values))}."
