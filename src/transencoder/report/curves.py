"""Plots of a run: the dev metric against steps for both forms and, in analysis mode, every test set's."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeGuard

from transencoder.config import Form
from transencoder.report.result import FORM_TITLES, Result, form_cycle, forms_of, tests_by_metric
from transencoder.report.text import metric_titles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

# Okabe and Ito's colours, told apart with any kind of colour vision; markers tell them apart in grey.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_FORMS: tuple[Form, ...] = ("cross", "bi", "mlm")
_INCHES_PER_PANEL = (6.0, 3.6)
_DOTS_PER_INCH = 120

Points = list[tuple[float, float]]


class _Style(TypedDict):
    color: str
    marker: str
    linestyle: str
    markersize: float
    linewidth: float


def plot_curves(result: Result, path: Path) -> Path | None:
    """Draw the run's curves.

    Args:
        result: A finished run's record.
        path: The PNG to write.

    Returns:
        The path, or None and no file where the run recorded no curve.
    """
    forms = [form for form in _FORMS if form in forms_of(result)]
    rows = {
        "dev": {form: _dev_lines(result, form) for form in forms},
        "test": {form: analysis_lines(result, form) for form in forms},
    }
    rows = {kind: lines for kind, lines in rows.items() if any(lines.values())}
    if not rows:
        return None
    # Imported here: `--help` and the tables must not wait for it. No pyplot: it would keep global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = _INCHES_PER_PANEL
    figure = Figure(figsize=(width * len(forms), height * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(rows), len(forms), sharey="row", squeeze=False)
    for row, (kind, lines) in zip(grid, rows.items(), strict=True):
        _draw_row(row, kind, lines, result)
    figure.savefig(path, dpi=_DOTS_PER_INCH)
    return path


def _dev_lines(result: Result, form: Form) -> dict[str, Points]:
    """One line a cycle; a cycle's steps start at 0 as its training does."""
    lines: dict[str, Points] = {}
    for cycle in result["cycles"]:
        part = form_cycle(cycle, form)
        curve = part["curve"] if part else []
        points = [(float(step), value) for step, value in curve if _is_number(value)]
        if points:
            lines[f"cycle {cycle['cycle']}"] = points
    return lines


def analysis_lines(result: Result, form: Form) -> dict[str, Points]:
    """One line a scored test set of the analysis mode, the cycles one after another on the step axis."""
    records = sorted((result["analysis"] or {}).get(form, []), key=lambda record: (record[0], record[1]))
    lines: dict[str, Points] = {}
    offset, previous_cycle, last = 0, None, 0
    for cycle, step, scores in records:
        if previous_cycle is not None and cycle != previous_cycle:
            offset, last = offset + last, 0
        previous_cycle, last = cycle, step
        for name, value in scores.items():
            if _is_number(value):
                lines.setdefault(name, []).append((float(offset + step), value))
    return lines


def _draw_row(row: "Sequence[Axes]", kind: str, lines: dict[Form, dict[str, Points]], result: Result) -> None:
    """Draw the forms side by side; a label looks the same in all, and one legend explains it."""
    labels = list(dict.fromkeys(label for found in lines.values() for label in found))
    handles: dict[str, Line2D] = {}
    start = (result["dev"] or {}).get("start") if kind == "dev" else None
    for axes, (form, found) in zip(row, lines.items(), strict=True):
        for label, points in found.items():
            steps, values = zip(*points, strict=True)
            (handles[label],) = axes.plot(steps, values, **_style(labels.index(label)))
        if start is not None and _is_number(start):
            handles["start (bi-encoder)"] = axes.axhline(start, color="0.4", linestyle=":", linewidth=1.5)
        if not found:
            axes.text(0.5, 0.5, "no curve recorded", ha="center", va="center", transform=axes.transAxes)
        axes.set_title(f"{FORM_TITLES[form]}, {kind}")
        axes.set_xlabel("step" if kind == "dev" else "step, cycles one after another")
        axes.grid(visible=True, alpha=0.3)
    metrics = [result["metric"]] if kind == "dev" else tests_by_metric(result)
    row[0].set_ylabel(metric_titles(metrics), fontsize=9)
    row[-1].legend(handles.values(), handles.keys(), loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=9)


def _style(position: int) -> _Style:
    return {
        "color": _COLOURS[position % len(_COLOURS)],
        "marker": _MARKERS[position % len(_MARKERS)],
        "linestyle": "-" if position < len(_COLOURS) else "--",
        "markersize": 4,
        "linewidth": 1.5,
    }


def _is_number(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
