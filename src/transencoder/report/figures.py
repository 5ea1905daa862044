"""Figures of a report: described as data and drawn once with matplotlib, as SVG for the page and as PNG beside it."""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from markupsafe import Markup

from transencoder.files import remove_folder, whole_folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Style = Literal["start", "bi", "cross", "mlm", "teacher", "s1", "s2", "s3", "s4", "s5", "s6", "s7"]
"""Style of a mark, named after the model it stands for; `s1` to `s7` are for several items of one kind."""

SEVERAL: tuple[Style, ...] = ("s1", "s2", "s3", "s4", "s5", "s6", "s7")

_STYLES: dict[Style, tuple[str, str, str]] = {
    "start": ("#6b6f76", "^", "▲"),
    "bi": ("#0b63b0", "o", "●"),
    "cross": ("#c2410c", "s", "■"),
    "mlm": ("#00795c", "D", "◆"),
    "teacher": ("#8a8f98", "^", "▲"),
    "s1": ("#00795c", "o", "●"),
    "s2": ("#9b3f86", "s", "■"),
    "s3": ("#8a6100", "^", "▲"),
    "s4": ("#3d4148", "D", "◆"),
    "s5": ("#5a63b8", "v", "▼"),
    "s6": ("#b0405e", "P", "✚"),
    "s7": ("#2a7f9e", "X", "✖"),
}
"""Colour on a light background, matplotlib's marker, and the character that stands for the marker in text.

The styles can be told apart with any kind of colour vision, and by shape without colour.
"""

SHAPES = {style: sign for style, (_, _, sign) in _STYLES.items()}

_MUTED, _HAIR, _PAPER = "#5a616b", "#dde1e6", "#ffffff"

_VARIABLES = {colour: f"var(--{style})" for style, (colour, _, _) in _STYLES.items()} | {
    _MUTED: "var(--muted)",
    _HAIR: "var(--hair)",
    _PAPER: "var(--paper)",
}
"""Colour in the drawing -> CSS variable of the page, which has a light and a dark theme."""

_MOST_MARKED = 40
"""Number of points up to which a line has markers."""

_INCHES_WIDE, _FONT_SIZE, _DOTS_PER_INCH = 5.0, 9.5, 150
_SVG, _LINK = "http://www.w3.org/2000/svg", "{http://www.w3.org/1999/xlink}href"

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of a plot; matplotlib chooses whatever is not given."""

    label: str = ""
    limits: tuple[float, float] | None = None
    names: Mapping[float, str] = field(default_factory=dict)
    """Name of each tick, by its value; empty: the ticks are numbers."""
    is_whole: bool = False
    """Whether ticks are whole numbers."""

    def shown(self, value: float) -> str:
        """Return a value as a reader sees it: the name of the nearest tick, or the number."""
        return self.names[min(self.names, key=lambda tick: abs(tick - value))] if self.names else short(value)


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points connected by a line, from left to right."""

    label: str
    style: Style
    points: Points
    is_dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A histogram, drawn as a filled area or as an outline."""

    label: str
    style: Style
    edges: Sequence[float]
    """Bounds of the n bins: n + 1 values, ascending."""
    heights: Sequence[float]
    """Heights of the bins: n values, at least 0."""
    is_filled: bool = False


@dataclass(frozen=True, kw_only=True)
class Whiskers:
    """Points with a span around each, along the x-axis or the y-axis."""

    label: str
    style: Style
    points: Points
    spans: Sequence[tuple[float, float] | None]
    along: Literal["x", "y"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A straight reference line: at one value of an axis, or the diagonal where both axes are equal."""

    at: Literal["x", "y", "diagonal"]
    label: str = ""
    value: float = 0.0
    style: Style | None = None


Mark = Line | Steps | Whiskers | Rule


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One figure, described as data."""

    name: str
    """Name of its file without the suffix, in letters, digits and `-`."""
    title: str
    x: Axis
    y: Axis
    marks: Sequence[Mark]
    about: str
    """Description in a sentence or two, for readers who cannot see the figure."""
    caption: str = ""
    """Shorter title, used below a heading that says the rest."""
    inches_high: float = 3.0

    @property
    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the figure's numbers as a table: header and rows."""
        spans = ("from", "to") if any(isinstance(mark, Whiskers) for mark in self.marks) else ()
        header = ("", self.x.label, self.y.label, *spans)
        rows = [row for mark in self.marks for row in self._rows(mark)]
        return header, [(*row, *("",) * (len(header) - len(row))) for row in rows]

    def _rows(self, mark: Mark) -> Iterator[tuple[str, ...]]:
        if isinstance(mark, Steps):
            for low, high, height in zip(mark.edges, mark.edges[1:], mark.heights, strict=False):
                yield mark.label, f"{short(low)} to {short(high)}", short(height)
        elif not isinstance(mark, Rule):
            spans = mark.spans if isinstance(mark, Whiskers) else [None] * len(mark.points)
            for (x, y), span in zip(mark.points, spans, strict=True):
                yield mark.label, self.x.shown(x), self.y.shown(y), *map(short, span or ())


def short(value: float) -> str:
    """Return a number with as many digits as a reader needs."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return text.replace("-", "\N{MINUS SIGN}")


def write_plots(plots: Sequence[Plot], folder: Path) -> dict[str, Markup]:
    """Draw each plot once, as a PNG in the folder, whose earlier content is replaced, and as an SVG for the page.

    Returns:
        SVG of each plot, by its name, with the page's colours.
    """
    if not plots:
        remove_folder(folder)
        return {}
    with whole_folder(folder, replaces=True) as draft:
        return {plot.name: draw(plot, draft / f"{plot.name}.png") for plot in plots}


def draw(plot: Plot, png: Path) -> Markup:
    """Draw a plot into a PNG file, and return its SVG."""
    # Imported here, so that `--help` and the tables do not wait for it. Not pyplot, which keeps global state.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    looks: Any = {"font.size": _FONT_SIZE, "svg.fonttype": "none", "svg.hashsalt": plot.name, "text.parse_math": False}
    with rc_context(looks), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # text in a script that the font lacks is drawn as boxes
        figure = Figure(figsize=(_INCHES_WIDE, plot.inches_high), layout="constrained", facecolor="none")
        axes = figure.add_subplot(facecolor="none")
        for mark in plot.marks:
            _draw_mark(axes, mark)
        _label(axes, plot)
        if sum(bool(mark.label) for mark in plot.marks) > 1:
            axes.legend(
                loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, labelcolor=_MUTED, columnspacing=1.5
            )
        svg = io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.suptitle(_drawable(plot.title), x=0.02, ha="left", weight="bold", size=_FONT_SIZE + 1)
        figure.savefig(png, dpi=_DOTS_PER_INCH, facecolor="white", metadata={"Software": None})
    return _for_page(svg.getvalue(), plot)


def _draw_mark(axes: "Axes", mark: Mark) -> None:
    colour, marker, _ = _STYLES[mark.style] if mark.style else (_MUTED, "", "")
    looks: dict[str, Any] = {"color": colour, "linewidth": 1.6, "label": _drawable(mark.label) or None}
    if isinstance(mark, Rule):
        looks |= {"linestyle": ":", "linewidth": 1.2}
        if mark.at == "diagonal":
            axes.axline((0, 0), slope=1, **looks)
        else:
            (axes.axvline if mark.at == "x" else axes.axhline)(mark.value, **looks)
    elif isinstance(mark, Steps):
        filled = {"fill": True, "alpha": 0.45, "linewidth": 0} if mark.is_filled else {}
        axes.stairs(mark.heights, mark.edges, **looks | filled)
    else:
        xs, ys = zip(*mark.points, strict=True)
        if len(mark.points) <= _MOST_MARKED:
            looks |= {"marker": marker, "markersize": 5.5, "markeredgecolor": _PAPER, "markeredgewidth": 0.7}
        if isinstance(mark, Line):
            axes.plot(xs, ys, linestyle="--" if mark.is_dashed else "-", **looks)
            return
        for (x, y), span in zip(mark.points, mark.spans, strict=True):
            if span is not None:
                ends = (span, (y, y)) if mark.along == "x" else ((x, x), span)
                axes.plot(*ends, color=colour, linewidth=1.6)
        axes.plot(xs, ys, linestyle="", **looks)


def _label(axes: "Axes", plot: Plot) -> None:
    from matplotlib.ticker import MaxNLocator

    for axis, scale, limit in ((axes.xaxis, plot.x, axes.set_xlim), (axes.yaxis, plot.y, axes.set_ylim)):
        axis.set_label_text(_drawable(scale.label), color=_MUTED)
        axis.set_major_locator(MaxNLocator(5, integer=scale.is_whole, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(lambda value, _: short(round(value, 9)))
        if scale.names:
            axis.set_ticks(list(scale.names), [_drawable(name) for name in scale.names.values()])
        if scale.limits is not None:
            limit(*scale.limits)
    axes.grid(visible=True, axis="y", color=_HAIR, linewidth=0.9)
    axes.tick_params(length=0, labelcolor=_MUTED)
    axes.set_axisbelow(True)
    axes.spines["bottom"].set_color(_MUTED)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _for_page(svg: bytes, plot: Plot) -> Markup:
    """Convert an SVG to an element of the page: no styles, which the page's policy forbids, and ids of its own."""
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(svg)
    for part in [*root.findall(f"{{{_SVG}}}metadata"), *root.findall(f"{{{_SVG}}}defs")]:
        root.remove(part)
    for element in root.iter():
        for rule in filter(None, element.attrib.pop("style", "").split(";")):
            name, value = (part.strip() for part in rule.split(":", 1))
            if name == "font-family":
                continue  # the page sets its own font
            if name == "font":
                name, value = "font-size", re.findall(r"[\d.]+(?=px)", value)[0]
            element.set(name, value)
        for name, value in list(element.attrib.items()):
            element.set(name, _VARIABLES.get(value, re.sub(r"url\(#", f"url(#{plot.name}-", value)))
        if _LINK in element.attrib:
            element.set("href", f"#{plot.name}-{element.attrib.pop(_LINK)[1:]}")
        if element.tag in (f"{{{_SVG}}}g", f"{{{_SVG}}}text"):
            element.attrib.pop("id", None)
        elif "id" in element.attrib:
            element.set("id", f"{plot.name}-{element.get('id')}")
    size = {"viewBox": root.attrib["viewBox"]}
    root.attrib.clear()
    root.attrib |= size | {"class": "drawing", "role": "img", "aria-label": f"{plot.title}. {plot.about}"}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _drawable(text: str) -> str:
    """Return a text that matplotlib can draw; it ignores labels that begin with `_`, so a space is put before them."""
    drawable = re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)
    return f" {drawable}" if drawable.startswith("_") else drawable
