"""Gains over the start, test by test, with their intervals; how long the training texts are; how mined pairs score."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from transencoder.records import FORM_TITLES, MiningRecord
from transencoder.report.plots.plot import Axis, Plot, Rule, Steps, Whiskers, linear_axis, short

if TYPE_CHECKING:
    from transencoder.bootstrap import RowIntervals
    from transencoder.records import TextStatistics
    from transencoder.report.tables import ScoreRow

_NAME_LENGTH = 22
_UNITS_A_LETTER = 6.0
_UNITS_A_ROW = 26.0


def gain_plot(rows: "Sequence[ScoreRow]", intervals: "Mapping[str, RowIntervals]") -> Plot | None:
    """Each form's gain on each test; None where nothing was measured."""
    forms = list(rows[0].trained) if rows else []
    marks = []
    for position, form in enumerate(forms):
        points, spans = [], []
        for i, row in enumerate(rows):
            gain = row.gain(form)
            if gain is None:
                continue
            points.append((gain, -i - 0.3 * (position - (len(forms) - 1) / 2)))
            found = intervals[row.name].gains.get(form) if row.name in intervals else None
            spans.append(None if found is None else (found.low, found.high))
        if points:
            marks.append(Whiskers(label=FORM_TITLES[form], style=form, points=points, spans=spans, along="x"))
    if not marks:
        return None
    ends = [value for mark in marks for span in mark.spans if span is not None for value in span]
    values = [0.0, *ends, *(x for mark in marks for x, _ in mark.points)]
    names = [row.name if len(row.name) <= _NAME_LENGTH else row.name[: _NAME_LENGTH - 1] + "…" for row in rows]
    return Plot(
        name="gains",
        title="Gains over the start",
        x=linear_axis("points (metric × 100)", values, room=(0.04, 0.04), n_ticks=6),
        y=Axis(label="", low=-len(rows) + 0.4, high=0.6, ticks=[(-float(i), name) for i, name in enumerate(names)]),
        marks=[Rule(label="", at="x"), *marks],
        about=" ".join(
            f"{mark.label}: {', '.join(f'{rows[round(-y)].name} {short(x)}' for x, y in mark.points)}."
            for mark in marks
        ),
        height=60.0 + _UNITS_A_ROW * len(rows),
        left=14.0 + _UNITS_A_LETTER * max(map(len, names)),
    )


def length_plot(texts: "TextStatistics") -> Plot | None:
    """How many texts there are of each length; None where there are none."""
    edges, counts = texts["length_edges"], texts["length_counts"]
    if not texts["texts"]:
        return None
    shares = [100 * count / texts["texts"] for count in counts]
    return Plot(
        name="lengths",
        title="Length of the texts",
        x=linear_axis("characters", [float(edges[0]), float(edges[-1])], whole=True),
        y=linear_axis("% of the texts", [0.0, max(shares)], room=(0.0, 0.05)),
        marks=[Steps(label="texts", style="s1", edges=edges, heights=shares, is_filled=True)],
        about=f"Half of the texts have at most {texts['median_length']:,.0f} characters, the longest "
        f"{texts['longest']:,}; the last bar has all longer texts too.",
    )


def mined_plot(record: MiningRecord) -> Plot:
    """How the start scores mined pairs, and the candidates that they were drawn from."""
    edges, shares = record["histogram"]["edges"], {}
    for what in ("pairs", "candidates"):
        counts = record["histogram"][what]
        shares[what] = [100 * count / sum(counts) for count in counts]
    return Plot(
        name="mined",
        title="The start's scores of the mined pairs",
        x=linear_axis("start's score", [edges[0], edges[-1]]),
        y=linear_axis("% of each", [0.0, *shares["pairs"], *shares["candidates"]], room=(0.0, 0.05)),
        marks=[
            Steps(label="pairs", style="s1", edges=edges, heights=shares["pairs"], is_filled=True),
            Steps(label="candidates", style="s2", edges=edges, heights=shares["candidates"]),
        ],
        about=f"Pairs are drawn evenly from stretches of the score from {short(edges[0])} to {short(edges[-1])}, as "
        f"far as there are as many: {short(min(shares['pairs']))} to {short(max(shares['pairs']))} % of them in each.",
    )
