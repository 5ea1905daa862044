"""What a student was taught against what it says: how both are spread, and how far its scores follow its labels."""

from typing import TYPE_CHECKING

from transencoder.finished import Lesson
from transencoder.records import FORM_TITLES
from transencoder.report.plots.plot import Axis, Plot, Rule, Steps, Style, Whiskers, linear_axis, short

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_N_BINS = 25
_N_GROUPS = 10
_TEACHERS = {"cross": "bi-encoder", "bi": "cross-encoder"}


def label_plots(lesson: Lesson) -> tuple[Plot, Plot]:
    """The histogram of labels and scores, and the calibration: score against label."""
    low, high = _range(lesson)
    name, who = f"cycle-{lesson.cycle}-{lesson.form}", f"Cycle {lesson.cycle}, {FORM_TITLES[lesson.form]}"
    return _histogram(lesson, name, who, low, high), _calibration(lesson, name, who, low, high)


def _histogram(lesson: Lesson, name: str, who: str, low: float, high: float) -> Plot:
    import numpy as np

    edges = np.linspace(low, high, _N_BINS + 1)
    shares = {
        what: 100 * np.histogram(values, edges)[0] / len(values)
        for what, values in (("labels", lesson.labels), ("scores", lesson.scores))
    }
    top = max(float(share.max()) for share in shares.values())
    return Plot(
        name=f"labels-{name}",
        title=f"{who}: what it learned, what it says",
        caption="What it learned, what it says",
        x=linear_axis("label or score", [low, high]),
        y=linear_axis("% of the pairs", [0.0, top], room=(0.0, 0.05)),
        marks=[
            _steps("teachers' labels", "teacher", edges, shares["labels"], is_filled=True),
            _steps("its own scores", lesson.form, edges, shares["scores"]),
        ],
        about=f"Teachers' labels {_spread(lesson.labels)}; the student's scores {_spread(lesson.scores)}.",
    )


def _calibration(lesson: Lesson, name: str, who: str, low: float, high: float) -> Plot:
    points, spans = _groups(lesson)
    both = linear_axis("", [low, high], room=(0.04, 0.04))
    return Plot(
        name=f"calibration-{name}",
        title=f"{who}: score against label",
        caption="Score against label",
        x=Axis(label="teachers' label", low=both.low, high=both.high, ticks=both.ticks),
        y=Axis(label="student's score", low=both.low, high=both.high, ticks=both.ticks),
        marks=[
            Rule(label="equal", at="diagonal"),
            Whiskers(label="median, middle half", style=lesson.form, points=points, spans=spans, along="y"),
        ],
        about="Of pairs in ten groups by label, the student's median score: "
        + ", ".join(f"{short(y)} at {short(x)}" for x, y in points)
        + ".",
    )


def _groups(lesson: Lesson) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Groups of equally many pairs by label: (mean label, median score), and the middle half of the scores."""
    import numpy as np

    order = np.argsort(lesson.labels, kind="stable")
    groups = [rows for rows in np.array_split(order, _N_GROUPS) if len(rows)]
    points = [(float(lesson.labels[rows].mean()), float(np.median(lesson.scores[rows]))) for rows in groups]
    quarters = [np.quantile(lesson.scores[rows], [0.25, 0.75]) for rows in groups]
    return points, [(float(low), float(high)) for low, high in quarters]


def _range(lesson: Lesson) -> tuple[float, float]:
    """From 0 to 1, or further where a label or a score lies outside."""
    ends = [(float(values.min()), float(values.max())) for values in (lesson.labels, lesson.scores)]
    return min(0.0, *(low for low, _ in ends)), max(1.0, *(high for _, high in ends))


def _steps(
    label: str, style: Style, edges: "NDArray[np.float64]", heights: "NDArray[np.float64]", *, is_filled: bool = False
) -> Steps:
    return Steps(label=label, style=style, edges=edges.tolist(), heights=heights.tolist(), is_filled=is_filled)


def _spread(values: "NDArray[np.float32]") -> str:
    import numpy as np

    low, median, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"have the median {short(float(median))}, the middle 80 % from {short(float(low))} to {short(float(high))}"
