"""What the students of each cycle learned and what became of it, and the pairs on which the models disagree most."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import rankdata

from transencoder.finished import Evidence, Lesson, Sample
from transencoder.records import FORM_TITLES, IN_A_CYCLE, Result
from transencoder.report.figures import Axis, Plot, Rule, Steps, Whiskers, short

_N_SHOWN = 60
_N_BINS = 25
_N_GROUPS = 10


@dataclass(frozen=True)
class ShownLesson:
    """The labels and scores of one student."""

    title: str
    said: str
    plots: tuple[Plot, Plot]
    """The histogram of labels and scores, and the calibration."""


@dataclass(frozen=True)
class Disagreement:
    """One pair."""

    texts: tuple[str, str]
    scores: dict[str, float]
    """`start` and the forms -> the model's own score."""
    ranks: dict[str, float]
    """The same -> the score's rank in the sample, 0 to 100."""
    spread: float
    """Highest rank less lowest."""


@dataclass(frozen=True)
class Disagreements:
    """The pairs of a sample, the largest disagreement first."""

    models: Sequence[str]
    n_pairs: int
    said: str
    """How far the models agree over the whole sample."""
    pairs: Sequence[Disagreement]


def shown_lessons(evidence: Evidence) -> tuple[list[ShownLesson], str]:
    """Return the students whose scores are kept, and a sentence about the others, empty where there are none."""
    lessons = list(evidence.lessons())
    shown = [
        ShownLesson(f"Cycle {lesson.cycle}, {FORM_TITLES[lesson.form]}", _described(lesson), label_plots(lesson))
        for lesson in lessons
    ]
    return shown, _absent(evidence.result, lessons)


def _described(lesson: Lesson) -> str:
    labels, scores = lesson.labels.astype(np.float64), lesson.scores.astype(np.float64)
    said = f"Mean difference of score and label {np.abs(scores - labels).mean():.3f}"
    if labels.std() > 0 and scores.std() > 0:
        said += f", correlation {np.corrcoef(labels, scores)[0, 1]:.3f}"
    of = f"{len(labels):,} pairs" + (f", a sample of the {lesson.n_pairs:,}" if len(labels) < lesson.n_pairs else "")
    return f"{said}, on {of}."


def _absent(result: Result, lessons: Sequence[Lesson]) -> str:
    there = {(lesson.cycle, lesson.form) for lesson in lessons}
    absent = [
        f"{FORM_TITLES[form]} of cycle {cycle['cycle']}"
        for cycle in result["cycles"]
        for form in IN_A_CYCLE
        if form in cycle and (cycle["cycle"], form) not in there
    ]
    if not absent:
        return ""
    return (
        f"Not shown: {', '.join(absent)}. Scores of the training pairs are kept for the models that were teachers and, "
        "in a sample, for the final models; earlier versions kept no sample, and cleaning removes them."
    )


def label_plots(lesson: Lesson) -> tuple[Plot, Plot]:
    """Make the histogram of a student's labels and scores, and the calibration: score against label."""
    both = np.concatenate([lesson.labels, lesson.scores])
    limits = min(0.0, float(both.min())), max(1.0, float(both.max()))
    name, who = f"cycle-{lesson.cycle}-{lesson.form}", f"Cycle {lesson.cycle}, {FORM_TITLES[lesson.form]}"
    return _histogram(lesson, name, who, limits), _calibration(lesson, name, who, limits)


def _histogram(lesson: Lesson, name: str, who: str, limits: tuple[float, float]) -> Plot:
    edges = np.linspace(*limits, _N_BINS + 1)
    labels, scores = (
        (100 * np.histogram(values, edges)[0] / len(values)).tolist() for values in (lesson.labels, lesson.scores)
    )
    return Plot(
        name=f"labels-{name}",
        title=f"{who}: labels and scores",
        caption="Labels and scores",
        x=Axis(label="label or score"),
        y=Axis(label="% of the pairs"),
        marks=[
            Steps(label="teachers' labels", style="teacher", edges=edges.tolist(), heights=labels, is_filled=True),
            Steps(label="student's scores", style=lesson.form, edges=edges.tolist(), heights=scores),
        ],
        about=f"Teachers' labels {_spread(lesson.labels)}; the student's scores {_spread(lesson.scores)}.",
    )


def _calibration(lesson: Lesson, name: str, who: str, limits: tuple[float, float]) -> Plot:
    """Plot groups of equally many pairs by label: mean label, and median and middle half of the scores."""
    groups = [rows for rows in np.array_split(np.argsort(lesson.labels, kind="stable"), _N_GROUPS) if len(rows)]
    points = [(float(lesson.labels[rows].mean()), float(np.median(lesson.scores[rows]))) for rows in groups]
    quarters = [np.quantile(lesson.scores[rows], [0.25, 0.75]) for rows in groups]
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
                style=lesson.form,
                points=points,
                spans=[(float(low), float(high)) for low, high in quarters],
                along="y",
            ),
        ],
        about="The student's median score in ten groups of pairs by label: "
        + ", ".join(f"{short(y)} at {short(x)}" for x, y in points)
        + ".",
    )


def _spread(values: "np.ndarray") -> str:
    low, median, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"have the median {short(float(median))}, the middle 80 % from {short(float(low))} to {short(float(high))}"


def disagreements_of(sample: Sample) -> Disagreements:
    """Rank the sample's pairs by each model; ranks are compared, as cosines and probabilities are not."""
    models, n_pairs = list(sample.scores), len(sample.rows)
    ranks = np.array([100 * (rankdata(scores) - 0.5) / n_pairs for scores in sample.scores.values()])
    spreads = ranks.max(axis=0) - ranks.min(axis=0)
    pairs = [
        Disagreement(
            sample.texts[row],
            {model: float(scores[row]) for model, scores in sample.scores.items()},
            {model: float(ranks[i, row]) for i, model in enumerate(models)},
            float(spreads[row]),
        )
        for row in np.argsort(-spreads, kind="stable")[:_N_SHOWN]
    ]
    if not (ranks.std(axis=1) > 0).all():
        said = "The models' scores cannot be compared: one of them gives every pair the same."
    else:
        found = np.asarray(np.corrcoef(ranks))
        each = [
            f"{_title(models[i])} and {_title(models[j])} {found[i, j]:.2f}"
            for i, j in combinations(range(len(models)), 2)
        ]
        said = f"Rank correlations over the whole sample: {', '.join(each)}."
    return Disagreements(models, n_pairs, said, pairs)


def _title(model: str) -> str:
    return "base model" if model == "start" else model
