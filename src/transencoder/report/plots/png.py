"""A plot as PNG, for slides and papers: matplotlib draws what the page's drawing shows, in the light colours."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transencoder.report.plots.plot import N_MARKED, Line, Plot, Rule, Steps, Style, Whiskers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS: dict[Style, str] = {
    "start": "#6b6f76",
    "bi": "#0b63b0",
    "cross": "#c2410c",
    "mlm": "#00795c",
    "teacher": "#8a8f98",
    "s1": "#00795c",
    "s2": "#9b3f86",
    "s3": "#8a6100",
    "s4": "#3d4148",
    "s5": "#5a63b8",
    "s6": "#b0405e",
    "s7": "#2a7f9e",
}
"""The same as the page's light ones; told apart with any kind of colour vision, and by shape without."""

_MARKERS: dict[Style, str] = {
    "start": "^",
    "bi": "o",
    "cross": "s",
    "mlm": "D",
    "teacher": "^",
    "s1": "o",
    "s2": "s",
    "s3": "^",
    "s4": "D",
    "s5": "v",
    "s6": "P",
    "s7": "X",
}
_UNITS_AN_INCH = 72.0
_WIDTH = 360.0
_DOTS_PER_INCH = 150
_TITLE = 24.0
_LEGEND_ROW = 14.0
_LEGEND_COLUMNS = 4


def write_png(plot: Plot, path: Path) -> None:
    """Draw the plot into a file."""
    # Imported here: `--help` and the tables must not wait for it. No pyplot: it would keep global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    n_named = sum(1 for mark in plot.marks if mark.label)
    above = _TITLE + _LEGEND_ROW * -(-n_named // _LEGEND_COLUMNS)
    height = plot.height + above
    figure = Figure(figsize=(_WIDTH / _UNITS_AN_INCH, height / _UNITS_AN_INCH))
    FigureCanvasAgg(figure)
    axes = figure.add_axes(
        (plot.left / _WIDTH, 38.0 / height, 1 - (plot.left + 12.0) / _WIDTH, 1 - (38.0 + 10.0 + above) / height)
    )
    figure.text(0.03, 1 - 12.0 / height, _plain(plot.title), fontsize=9, weight="bold", va="center", parse_math=False)
    for mark in plot.marks:
        _draw(axes, plot, mark)
    _label(axes, plot)
    if n_named:
        _legend(figure, axes, top=1 - _TITLE / height)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script that the font lacks is drawn as boxes
        figure.savefig(path, dpi=_DOTS_PER_INCH, metadata={"Software": None})


def _draw(axes: "Axes", plot: Plot, mark: Line | Steps | Whiskers | Rule) -> None:
    if isinstance(mark, Rule):
        _draw_rule(axes, plot, mark)
        return
    looks: dict[str, Any] = {"color": COLOURS[mark.style], "label": _plain(mark.label), "linewidth": 1.5}
    if isinstance(mark, Steps):
        looks |= {"fill": True, "alpha": 0.35, "linewidth": 0} if mark.is_filled else {}
        axes.stairs(mark.heights, mark.edges, **looks)
        return
    xs, ys = zip(*mark.points, strict=True)
    looks |= {"marker": _MARKERS[mark.style] if len(mark.points) <= N_MARKED else "", "markersize": 4}
    if isinstance(mark, Line):
        axes.plot(xs, ys, linestyle="--" if mark.is_dashed else "-", **looks)
        return
    axes.plot(xs, ys, linestyle="", **looks)
    for (x, y), span in zip(mark.points, mark.spans, strict=True):
        if span is not None:
            axes.plot(*((span, (y, y)) if mark.along == "x" else ((x, x), span)), color=looks["color"], linewidth=1.5)


def _draw_rule(axes: "Axes", plot: Plot, mark: Rule) -> None:
    looks: dict[str, Any] = {
        "color": COLOURS[mark.style] if mark.style else "0.55",
        "linestyle": ":",
        "linewidth": 1.3,
        "label": _plain(mark.label) or None,
    }
    if mark.at == "x":
        axes.axvline(mark.value, **looks)
    elif mark.at == "y":
        axes.axhline(mark.value, **looks)
    else:
        low, high = max(plot.x.low, plot.y.low), min(plot.x.high, plot.y.high)
        axes.plot((low, high), (low, high), **looks)


def _label(axes: "Axes", plot: Plot) -> None:
    axes.set_xlim(plot.x.low, plot.x.high)
    axes.set_ylim(plot.y.low, plot.y.high)
    for axis, scale in ((axes.xaxis, plot.x), (axes.yaxis, plot.y)):
        places, names = [at for at, _ in scale.ticks], [_plain(name) for _, name in scale.ticks]
        axis.set_ticks(places, names, fontsize=7, parse_math=False)
        axis.set_label_text(_plain(scale.label), fontsize=7, parse_math=False)
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.tick_params(length=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _legend(figure: "Figure", axes: "Axes", *, top: float) -> None:
    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=(0.02, top),
        ncols=_LEGEND_COLUMNS,
        fontsize=7,
        frameon=False,
        borderpad=0,
        columnspacing=1.2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _plain(text: str) -> str:
    """A text that can be drawn; matplotlib takes a label that begins with `_` for none."""
    drawable = text.encode("utf-8", "replace").decode()
    return f" {drawable}" if drawable.startswith("_") else drawable
