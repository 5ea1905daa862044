"""A plot as inline SVG: small, the same bytes each time, its colours the page's, in the light and in the dark."""

from collections.abc import Callable, Iterator, Mapping

from markupsafe import Markup

from transencoder.report.plots.plot import N_MARKED, Line, Plot, Points, Rule, Steps, Style, Whiskers

WIDTH = 360.0
_TOP, _RIGHT, _BOTTOM = 10.0, 12.0, 38.0

_SHAPES: dict[Style, str] = {
    "start": "M{x} {y}m-4 3.2h8l-4-7z",
    "bi": "M{x} {y}m-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z",
    "cross": "M{x} {y}m-3.1-3.1h6.2v6.2h-6.2z",
    "mlm": "M{x} {y}m0-4.4l4.4 4.4l-4.4 4.4l-4.4-4.4z",
    "teacher": "M{x} {y}m-4 3.2h8l-4-7z",
    "s1": "M{x} {y}m-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z",
    "s2": "M{x} {y}m-3.1-3.1h6.2v6.2h-6.2z",
    "s3": "M{x} {y}m-4 3.2h8l-4-7z",
    "s4": "M{x} {y}m0-4.4l4.4 4.4l-4.4 4.4l-4.4-4.4z",
    "s5": "M{x} {y}m-4-3.2h8l-4 7z",
    "s6": "M{x} {y}m-1.2-4h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8v-2.4h2.8z",
    "s7": "M{x} {y}m-3.4-2l1.4-1.4l2 2l2-2l1.4 1.4l-2 2l2 2l-1.4 1.4l-2-2l-2 2l-1.4-1.4l2-2z",
}

Place = Callable[[float], float]


def svg_of(plot: Plot) -> Markup:
    """The plot's drawing, an image to a screen reader, which hears the title and what it shows."""
    x, y = _scales(plot)
    parts = [
        *_frame(plot, x, y),
        *(part for mark in plot.marks if isinstance(mark, Steps) for part in _steps(mark, x, y)),
        *(part for mark in plot.marks if isinstance(mark, Rule) for part in _rule(mark, plot, x, y)),
        *(part for mark in plot.marks if isinstance(mark, Line) for part in _line(mark, x, y)),
        *(part for mark in plot.marks if isinstance(mark, Whiskers) for part in _whiskers(mark, x, y)),
    ]
    opening = Markup('<svg class="drawing" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
        _n(WIDTH), _n(plot.height), f"{plot.title}. {plot.about}"
    )
    return opening + Markup("").join(parts) + Markup("</svg>")


def swatch(mark: Line | Steps | Whiskers | Rule) -> Markup:
    """What stands beside a mark's name in the legend."""
    if isinstance(mark, Steps):
        shape = Markup('<path class="{} {}" d="M1 12V5h8V2h8v10"/>').format(
            "area" if mark.is_filled else "outline", mark.style
        )
    elif isinstance(mark, Rule):
        shape = Markup('<path class="rule {}" d="M0 7H24"/>').format(mark.style or "")
    elif isinstance(mark, Whiskers):
        shape = Markup('<path class="whisker {}" d="M2 7H22"/>').format(mark.style) + _marker(mark.style, 12, 7)
    else:
        dashed = " dashed" if mark.is_dashed else ""
        shape = Markup('<path class="line {}{}" d="M0 7H24"/>').format(mark.style, dashed) + _marker(mark.style, 12, 7)
    return Markup('<svg class="swatch" viewBox="0 0 24 14" aria-hidden="true">{}</svg>').format(shape)


def shape(style: Style) -> Markup:
    """Whose a number is, as it is drawn in the plots."""
    return Markup('<svg class="shape" viewBox="0 0 10 10" aria-hidden="true">{}</svg>').format(_marker(style, 5, 5))


def strip(values: Mapping[Style, float]) -> Markup:
    """Values from 0 to 100 on one small line, each with its owner's shape."""
    places = [(style, 5 + 1.1 * value) for style, value in values.items()]
    ends = [place for _, place in places]
    return Markup(
        '<svg class="strip" viewBox="0 0 120 14" aria-hidden="true"><path class="axis" d="M5 7H115"/>'
        '<path class="spread" d="M{} 7H{}"/>{}</svg>'
    ).format(_n(min(ends)), _n(max(ends)), Markup("").join(_marker(style, place, 7) for style, place in places))


def _scales(plot: Plot) -> tuple[Place, Place]:
    inner_width, inner_height = WIDTH - plot.left - _RIGHT, plot.height - _TOP - _BOTTOM

    def x(value: float) -> float:
        return plot.left + inner_width * (value - plot.x.low) / (plot.x.high - plot.x.low)

    def y(value: float) -> float:
        return _TOP + inner_height * (plot.y.high - value) / (plot.y.high - plot.y.low)

    return x, y


def _frame(plot: Plot, x: Place, y: Place) -> Iterator[Markup]:
    """Grid, ticks and the axes' labels."""
    right, bottom = WIDTH - _RIGHT, plot.height - _BOTTOM
    lines = [f"M{_n(plot.left)} {_n(y(at))}H{_n(right)}" for at, _ in plot.y.ticks]
    yield Markup('<path class="grid" d="{}"/>').format("".join(lines))
    yield Markup('<path class="axis" d="M{} {}H{}"/>').format(_n(plot.left), _n(bottom), _n(right))
    for at, name in plot.x.ticks:
        yield Markup('<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            _n(x(at)), _n(bottom + 14), name
        )
    for at, name in plot.y.ticks:
        yield Markup('<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>').format(
            _n(plot.left - 6), _n(y(at) + 3.6), name
        )
    yield Markup('<text class="label" x="{}" y="{}" text-anchor="middle">{}</text>').format(
        _n((plot.left + right) / 2), _n(plot.height - 5), plot.x.label
    )
    if plot.y.label:
        middle = (_TOP + bottom) / 2
        yield Markup(
            '<text class="label" x="11" y="{}" transform="rotate(-90 11 {})" text-anchor="middle">{}</text>'
        ).format(_n(middle), _n(middle), plot.y.label)


def _line(mark: Line, x: Place, y: Place) -> Iterator[Markup]:
    path = "L".join(f"{_n(x(a))} {_n(y(b))}" for a, b in mark.points)
    dashed = " dashed" if mark.is_dashed else ""
    yield Markup('<path class="line {}{}" d="M{}"/>').format(mark.style, dashed, path)
    if len(mark.points) <= N_MARKED:
        yield _markers(mark.style, mark.points, x, y)


def _steps(mark: Steps, x: Place, y: Place) -> Iterator[Markup]:
    bottom = _n(y(0.0))
    path = f"M{_n(x(mark.edges[0]))} {bottom}"
    for right, height in zip(mark.edges[1:], mark.heights, strict=True):
        path += f"V{_n(y(height))}H{_n(x(right))}"
    kind = "area" if mark.is_filled else "outline"
    yield Markup('<path class="{} {}" d="{}V{}"/>').format(kind, mark.style, path, bottom)


def _whiskers(mark: Whiskers, x: Place, y: Place) -> Iterator[Markup]:
    path = ""
    for (a, b), span in zip(mark.points, mark.spans, strict=True):
        if span is not None and mark.along == "x":
            path += f"M{_n(x(span[0]))} {_n(y(b))}H{_n(x(span[1]))}"
        elif span is not None:
            path += f"M{_n(x(a))} {_n(y(span[0]))}V{_n(y(span[1]))}"
    if path:
        yield Markup('<path class="whisker {}" d="{}"/>').format(mark.style, path)
    yield _markers(mark.style, mark.points, x, y)


def _rule(mark: Rule, plot: Plot, x: Place, y: Place) -> Iterator[Markup]:
    left, right = plot.left, WIDTH - _RIGHT
    if mark.at == "x":
        path = f"M{_n(x(mark.value))} {_n(_TOP)}V{_n(plot.height - _BOTTOM)}"
    elif mark.at == "y":
        path = f"M{_n(left)} {_n(y(mark.value))}H{_n(right)}"
    else:
        low, high = max(plot.x.low, plot.y.low), min(plot.x.high, plot.y.high)
        path = f"M{_n(x(low))} {_n(y(low))}L{_n(x(high))} {_n(y(high))}"
    yield Markup('<path class="rule {}" d="{}"/>').format(mark.style or "", path)


def _markers(style: Style, points: Points, x: Place, y: Place) -> Markup:
    shapes = "".join(_SHAPES[style].format(x=_n(x(a)), y=_n(y(b))) for a, b in points)
    return Markup('<path class="mark {}" d="{}"/>').format(style, shapes)


def _marker(style: Style, x: float, y: float) -> Markup:
    return Markup('<path class="mark {}" d="{}"/>').format(style, _SHAPES[style].format(x=_n(x), y=_n(y)))


def _n(value: float) -> str:
    """A coordinate to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
