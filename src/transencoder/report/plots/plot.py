"""A plot as data: what is drawn, what a screen reader says of it, and the numbers, for the page and the PNG alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Style = Literal["start", "bi", "cross", "mlm", "teacher", "s1", "s2", "s3", "s4", "s5", "s6", "s7"]
"""Whose a mark is, which decides its colour and its shape; `s1` and so on: one of several of a kind."""

SEVERAL: tuple[Style, ...] = ("s1", "s2", "s3", "s4", "s5", "s6", "s7")

N_MARKED = 40
"""Lines of more points have no markers."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis, as long as its ticks say."""

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points in a line, from left to right."""

    label: str
    style: Style
    points: Points
    is_dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A histogram: a filled area, or its outline."""

    label: str
    style: Style
    edges: Sequence[float]
    """n + 1 bounds, ascending."""
    heights: Sequence[float]
    """n values, at least 0."""
    is_filled: bool = False


@dataclass(frozen=True, kw_only=True)
class Whiskers:
    """Points with a span around each, along the first axis or the second."""

    label: str
    style: Style
    points: Points
    spans: Sequence[tuple[float, float] | None]
    along: Literal["x", "y"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A straight line for comparison: one value of an axis, or where both are equal."""

    label: str
    at: Literal["x", "y", "diagonal"]
    value: float = 0.0
    style: Style | None = None


Mark = Line | Steps | Whiskers | Rule


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One plot."""

    name: str
    """Of its file, in letters, digits and `-`."""
    title: str
    x: Axis
    y: Axis
    marks: Sequence[Mark]
    about: str
    """What it shows, in a sentence or two, for who does not see it."""
    caption: str = ""
    """Shorter than the title, for where the heading above says the rest."""
    height: float = 230.0
    """In the units of the page's drawing, 360 of which are its width."""
    left: float = 46.0
    """Room for the second axis's ticks, in the same units."""

    @property
    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The numbers: header and rows."""
        spans = [mark for mark in self.marks if isinstance(mark, Whiskers)]
        header = ("", self.x.label, self.y.label, *(("from", "to") if spans else ()))
        rows = [row for mark in self.marks if not isinstance(mark, Rule) for row in self._rows(mark)]
        return header, [(*row, *("",) * (len(header) - len(row))) for row in rows]

    def _rows(self, mark: Line | Steps | Whiskers) -> list[tuple[str, ...]]:
        if isinstance(mark, Steps):
            bins = zip(mark.edges, mark.edges[1:], mark.heights, strict=False)
            return [(mark.label, f"{short(low)} to {short(high)}", short(height)) for low, high, height in bins]
        rows: list[tuple[str, ...]] = [(mark.label, _named(x, self.x), _named(y, self.y)) for x, y in mark.points]
        if isinstance(mark, Line):
            return rows
        spans = [("", "") if span is None else (short(span[0]), short(span[1])) for span in mark.spans]
        return [(*row, *span) for row, span in zip(rows, spans, strict=True)]


def linear_axis(
    label: str,
    values: Sequence[float],
    *,
    room: tuple[float, float] = (0.0, 0.0),
    whole: bool = False,
    n_ticks: int = 5,
) -> Axis:
    """An axis over the values, with round ticks.

    Args:
        label: What it is.
        values: At least one, all finite.
        room: Left free below and above the values, in shares of their range.
        whole: Whether ticks are whole numbers.
        n_ticks: About how many.
    """
    from matplotlib.ticker import MaxNLocator

    low, high = min(values), max(values)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    low, high = low - room[0] * (high - low), high + room[1] * (high - low)
    locator = MaxNLocator(n_ticks, steps=[1, 2, 2.5, 5, 10], integer=whole, min_n_ticks=2)
    ticks = [float(tick) for tick in locator.tick_values(low, high)]
    inner = [tick for tick in ticks if low - 1e-9 <= tick <= high + 1e-9]
    return Axis(label=label, low=low, high=high, ticks=[(tick, short(tick)) for tick in inner])


def short(value: float) -> str:
    """A number with as many digits as a reader needs."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return text.replace("-", "\N{MINUS SIGN}")


def _named(value: float, axis: Axis) -> str:
    """A value, or its name where the axis has names."""
    names = dict(axis.ticks)
    name = names.get(value)
    return short(value) if name is None or name == short(value) else name
