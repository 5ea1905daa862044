"""What the students of each cycle were taught and what became of it, for the page."""

from collections.abc import Sequence
from dataclasses import dataclass

from transencoder.finished import Evidence, Lesson
from transencoder.records import FORM_TITLES, IN_A_CYCLE, Result
from transencoder.report.plots import Plot, label_plots


@dataclass(frozen=True)
class ShownLesson:
    """One student's."""

    title: str
    said: str
    plots: tuple[Plot, Plot]
    """The histogram of labels and scores, and the calibration."""


def shown_lessons(evidence: Evidence) -> tuple[list[ShownLesson], str]:
    """Those whose scores are kept, and a sentence about the others, empty where there are none."""
    lessons = list(evidence.lessons())
    shown = [ShownLesson(_title(lesson.cycle, lesson.form), _said(lesson), label_plots(lesson)) for lesson in lessons]
    return shown, _absent(evidence.result, lessons)


def _title(cycle: int, form: str) -> str:
    return f"Cycle {cycle}, {FORM_TITLES[form]}"  # type: ignore[index]


def _said(lesson: Lesson) -> str:
    import numpy as np

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
        f"Not shown: {', '.join(absent)}. Scores of the training pairs are kept of the models that taught and, in a "
        "sample, of those that were kept at the end; earlier versions kept no sample, and cleaning removes them."
    )
