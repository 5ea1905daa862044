"""A run's figures as data: curves of the metric, gains, labels and scores, training text and mined pairs."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard, TypeVar

import numpy as np

from transencoder.configs import Form
from transencoder.evidence import StudentLabels
from transencoder.records import FORM_TITLES, FormCycle, IntervalRecord, MiningRecord, Result, TextStatistics
from transencoder.report.figures import SEVERAL, Axis, Line, Mark, Plot, Points, Rule, Steps, Whiskers, short
from transencoder.report.scores import ScoreRow
from transencoder.report.words import short_metric
from transencoder.results import has_cycles, tests_by_metric

Value = TypeVar("Value")

IN_TRAINING: tuple[Form, ...] = ("cross", "bi", "mlm")
"""The forms in the order in which a cycle trains them."""

_STEPS = Axis(label="step", is_whole=True)
_STEPS_OF_CYCLES = Axis(label="step, cycles one after another", is_whole=True)

_NAME_LENGTH = 22
"""Maximum length of a test's name in a plot, in characters."""

_N_BINS = 25
_N_GROUPS = 10


def curve_plots(result: Result) -> Iterator[Plot]:
    """Yield the plots of the curves that a run recorded.

    They show the dev metric by cycle (Trans-Encoder, Figure 4) and by step; without a dev set, the criteria that chose
    checkpoints in its place; and in analysis mode the test metrics.
    """
    forms, metric = [form for form in IN_TRAINING if form in result["best"]], short_metric(result["metric"])
    if has_cycles(result):
        by_cycle = {form: _by_cycle(result, form) for form in forms}
        lines = [
            Line(label=FORM_TITLES[form], style=form, points=points) for form, points in by_cycle.items() if points
        ]
        yield from _curves("dev-by-cycle", "Dev by cycle", lines, _cycles(len(result["cycles"])), metric)
    for form in forms:
        start = (result["dev"] or {}).get("start")
        lines = _lines_of_cycles(result, form, lambda part: part["curve"])
        yield from _curves(f"dev-{form}", f"{FORM_TITLES[form]}, dev by step", lines, _STEPS, metric, start)
    for form in forms:
        yield from _criterion_plot(result, form)
    for form in forms:
        lines = [nth_line(name, i, points) for i, (name, points) in enumerate(_analysis(result, form).items())]
        metrics = " / ".join(map(short_metric, tests_by_metric(result)))
        yield from _curves(f"tests-{form}", f"{FORM_TITLES[form]}, tests by step", lines, _STEPS_OF_CYCLES, metrics)


def plots_together(results: Mapping[str, Result]) -> Iterator[Plot]:
    """Yield, for each form that any of the runs has, plots of its dev metric by cycle and by step.

    Args:
        results: Short name of a run -> its record.
    """
    ways = [("step", _by_step, _STEPS_OF_CYCLES)]
    if any(map(has_cycles, results.values())):
        ways.insert(0, ("cycle", _by_cycle, _cycles(max(len(result["cycles"]) for result in results.values()))))
    for form in IN_TRAINING:
        for unit, points_of, axis in ways:
            found = {name: points_of(result, form) for name, result in results.items() if form in result["best"]}
            lines = [nth_line(name, i, found[name]) for i, name in enumerate(results) if found.get(name)]
            metrics = dict.fromkeys(short_metric(results[line.label]["metric"]) for line in lines)
            title = f"{FORM_TITLES[form]}, dev by {unit}"
            yield from _curves(f"dev-{form}-by-{unit}", title, lines, axis, " / ".join(metrics))


def nth_line(name: str, position: int, points: Points) -> Line:
    """Return a line whose style follows from its position among several lines of one kind."""
    is_dashed = position // len(SEVERAL) % 2 == 1
    return Line(label=name, style=SEVERAL[position % len(SEVERAL)], points=points, is_dashed=is_dashed)


def _curves(
    name: str, title: str, lines: Sequence[Line], x: Axis, y_label: str, start: float | None = None
) -> Iterator[Plot]:
    """Yield a plot of the lines, if there are any, with the base model's value as a reference line."""
    if not lines:
        return
    marks: list[Mark] = list(lines)
    if _is_number(start):
        marks.append(Rule(label="base model (bi-encoder)", at="y", value=start, style="start"))
    about = " ".join(map(_described, lines))
    title = title[0].upper() + title[1:]
    yield Plot(name=name, title=title, x=x, y=Axis(label=y_label), marks=marks, about=about)


def _described(line: Line) -> str:
    values = [value for _, value in line.points]
    return f"{line.label}: from {short(values[0])} to {short(values[-1])}, at best {short(max(values))}."


def _cycles(n_cycles: int) -> Axis:
    names = {0.0: "base model"} | {float(cycle): str(cycle) for cycle in range(1, n_cycles + 1)}
    return Axis(label="cycle", limits=(-0.25, n_cycles + 0.25), names=names)


def _by_cycle(result: Result, form: Form) -> Points:
    """Return a form's dev metric after each cycle, from 1; the bi-encoder's points begin with the base model, at 0."""
    points = [(cycle["cycle"], part["dev"]) for cycle in result["cycles"] if (part := cycle.get(form))]
    start = [(0, (result["dev"] or {}).get("start"))] if form == "bi" else []
    return _finite([*start, *points])


def _by_step(result: Result, form: Form) -> Points:
    """Return the dev metric at each evaluation, with steps counted on from cycle to cycle."""
    curves = {cycle["cycle"]: cycle[form]["curve"] for cycle in result["cycles"] if form in cycle}
    return _finite(_in_a_row((cycle, step, value) for cycle, curve in curves.items() for step, value in curve))


def _in_a_row(records: Iterable[tuple[int, int, Value]]) -> Iterator[tuple[int, Value]]:
    """Yield (step, value) with steps counted on from cycle to cycle, given (cycle, step within it, value)."""
    offset, previous, last = 0, None, 0
    for cycle, step, value in records:
        offset += last if cycle != previous else 0
        previous, last = cycle, step
        yield offset + step, value


def _lines_of_cycles(
    result: Result, form: Form, recorded: Callable[[FormCycle], list[tuple[int, float | None]]]
) -> list[Line]:
    """Make one line per cycle; the steps of each cycle start at 0, as its training does."""
    lines: list[Line] = []
    for cycle in result["cycles"]:
        points = _finite(recorded(cycle[form])) if form in cycle else []
        if points and has_cycles(result):
            lines.append(nth_line(f"cycle {cycle['cycle']}", len(lines), points))
        elif points:
            lines.append(Line(label=FORM_TITLES[form], style=form, points=points))
    return lines


def _criterion_plot(result: Result, form: Form) -> Iterator[Plot]:
    """Yield the plot of the criterion that chose a form's checkpoints without a dev set."""
    parts = [cycle[form] for cycle in result["cycles"] if form in cycle]
    criterion = next((part["chosen_by"] for part in parts if "chosen_by" in part), None)
    if criterion is None:
        return
    lines = _lines_of_cycles(
        result, form, lambda part: [(step, found.get(criterion)) for step, found in part.get("criteria", ())]
    )
    start = result.get("criteria", {}).get("start", {}).get(criterion)
    name = criterion.replace("_", " ")
    title = f"{FORM_TITLES[form]}, {name} on held-out pairs by step"
    yield from _curves(f"criterion-{form}", title, lines, _STEPS, name, start)


def _analysis(result: Result, form: Form) -> dict[str, Points]:
    """Return the points of each test set scored in analysis mode, with steps counted on from cycle to cycle."""
    records = sorted((result["analysis"] or {}).get(form, []), key=lambda record: (record[0], record[1]))
    lines: dict[str, list[tuple[float, float]]] = {}
    for step, scores in _in_a_row(records):
        for name, value in scores.items():
            if _is_number(value):
                lines.setdefault(name, []).append((float(step), value))
    return dict(lines)


def _finite(points: Iterable[tuple[int, float | None]]) -> list[tuple[float, float]]:
    return [(float(x), y) for x, y in points if _is_number(y)]


def _is_number(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def gain_plot(rows: Sequence[ScoreRow], intervals: Mapping[str, IntervalRecord]) -> Plot | None:
    """Make the plot of each form's gain on each test; None where nothing was measured."""
    forms = list(rows[0].trained) if rows else []
    marks = []
    for position, form in enumerate(forms):
        found = [(i, row.name, gain) for i, row in enumerate(rows) if (gain := row.gain(form)) is not None]
        points = [(gain, -i - 0.3 * (position - (len(forms) - 1) / 2)) for i, _, gain in found]
        spans = [intervals[name]["gains"].get(form) if name in intervals else None for _, name, _ in found]
        if points:
            marks.append(Whiskers(label=FORM_TITLES[form], style=form, points=points, spans=spans, along="x"))
    if not marks:
        return None
    names = [row.name if len(row.name) <= _NAME_LENGTH else row.name[: _NAME_LENGTH - 1] + "…" for row in rows]
    said = [
        f"{mark.label}: {', '.join(f'{rows[round(-y)].name} {short(x)}' for x, y in mark.points)}." for mark in marks
    ]
    return Plot(
        name="gains",
        title="Gains over the base model",
        x=Axis(label="points (metric × 100)"),
        y=Axis(limits=(-len(rows) + 0.4, 0.6), names={-float(i): name for i, name in enumerate(names)}),
        marks=[Rule(at="x"), *marks],
        about=" ".join(said),
        inches_high=0.9 + 0.36 * len(rows),
    )


def label_plots(learned: StudentLabels) -> tuple[Plot, Plot]:
    """Make the histogram of a student's labels and scores, and the calibration plot of score against label."""
    both = np.concatenate([learned.labels, learned.scores])
    limits = min(0.0, float(both.min())), max(1.0, float(both.max()))
    name, who = f"cycle-{learned.cycle}-{learned.form}", f"Cycle {learned.cycle}, {FORM_TITLES[learned.form]}"
    return _histogram(learned, name, who, limits), _calibration(learned, name, who, limits)


def _histogram(learned: StudentLabels, name: str, who: str, limits: tuple[float, float]) -> Plot:
    edges = np.linspace(*limits, _N_BINS + 1)
    labels, scores = (
        (100 * np.histogram(values, edges)[0] / len(values)).tolist() for values in (learned.labels, learned.scores)
    )
    return Plot(
        name=f"labels-{name}",
        title=f"{who}: labels and scores",
        caption="Labels and scores",
        x=Axis(label="label or score"),
        y=Axis(label="% of the pairs"),
        marks=[
            Steps(label="teachers' labels", style="teacher", edges=edges.tolist(), heights=labels, is_filled=True),
            Steps(label="student's scores", style=learned.form, edges=edges.tolist(), heights=scores),
        ],
        about=f"Teachers' labels {_spread(learned.labels)}; the student's scores {_spread(learned.scores)}.",
    )


def _spread(values: np.ndarray) -> str:
    low, median, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"have the median {short(float(median))}, the middle 80 % from {short(float(low))} to {short(float(high))}"


def _calibration(learned: StudentLabels, name: str, who: str, limits: tuple[float, float]) -> Plot:
    """Plot equal-sized groups of pairs, sorted by label: mean label against median and middle half of the scores."""
    groups = [rows for rows in np.array_split(np.argsort(learned.labels, kind="stable"), _N_GROUPS) if len(rows)]
    points = [(float(learned.labels[rows].mean()), float(np.median(learned.scores[rows]))) for rows in groups]
    quarters = [np.quantile(learned.scores[rows], [0.25, 0.75]) for rows in groups]
    room = 0.04 * (limits[1] - limits[0])
    ends = (limits[0] - room, limits[1] + room)
    return Plot(
        name=f"calibration-{name}",
        title=f"{who}: score against label",
        caption="Score against label",
        x=Axis(label="teachers' label", limits=ends),
        y=Axis(label="student's score", limits=ends),
        marks=[
            Rule(label="equal", at="diagonal"),
            Whiskers(
                label="median, middle half",
                style=learned.form,
                points=points,
                spans=[(float(low), float(high)) for low, high in quarters],
                along="y",
            ),
        ],
        about="The student's median score in ten groups of pairs by label: "
        + ", ".join(f"{short(y)} at {short(x)}" for x, y in points)
        + ".",
    )


def length_plot(texts: TextStatistics) -> Plot | None:
    """Make the histogram of the texts' lengths; None where there are no texts."""
    if not texts["texts"]:
        return None
    shares = [100 * count / texts["texts"] for count in texts["length_counts"]]
    return Plot(
        name="lengths",
        title="Length of the texts",
        x=Axis(label="characters", is_whole=True),
        y=Axis(label="% of the texts"),
        marks=[Steps(label="texts", style="s1", edges=texts["length_edges"], heights=shares, is_filled=True)],
        about=f"Half of the texts have at most {texts['median_length']:,.0f} characters, the longest "
        f"{texts['longest']:,}; the last bar includes all longer texts.",
    )


def mined_plot(record: MiningRecord) -> Plot:
    """Make the histogram of the base model's scores of the mined pairs and of the candidates they were drawn from."""
    histogram = record["histogram"]
    edges = histogram["edges"]
    pairs, candidates = (
        [100 * count / sum(counts) for count in counts] for counts in (histogram["pairs"], histogram["candidates"])
    )
    return Plot(
        name="mined",
        title="The base model's scores of the mined pairs",
        x=Axis(label="base model's score"),
        y=Axis(label="% of each"),
        marks=[
            Steps(label="pairs", style="s1", edges=edges, heights=pairs, is_filled=True),
            Steps(label="candidates", style="s2", edges=edges, heights=candidates),
        ],
        about=f"Pairs are drawn evenly over the scores from {short(edges[0])} to {short(edges[-1])}, as far as there "
        f"are enough: {short(min(pairs))} to {short(max(pairs))} % of them in each bin.",
    )
