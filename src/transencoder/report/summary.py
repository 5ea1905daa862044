"""What a run's scores come to: the averages, what their gains say, and what the intervals do not say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transencoder.bootstrap import LEVEL, N_RESAMPLES, RowIntervals
from transencoder.config import Form
from transencoder.records import AVERAGE, GOLD, Result
from transencoder.report.tables import ScoreRow, shown_metrics
from transencoder.report.text import metric_title
from transencoder.results import metric_mark, tests_by_metric
from transencoder.wording import plural

BRACKETS = f"Brackets hold {100 * LEVEL:.0f} % of {N_RESAMPLES:,} bootstrap samples of the test's pairs"
GAIN_BRACKETS = "for a gain, of both models on the same samples"

_ADD_RECORDS = "Run its command again: finished stages are reused, and what is missing is added."


@dataclass(frozen=True)
class Group:
    """What is shown first of the tests of one metric."""

    title: str
    row: ScoreRow
    intervals: RowIntervals | None
    words: dict[Form, str]
    """What each form's gain says."""


def summary_of(result: Result, rows: Sequence[ScoreRow], intervals: Mapping[str, RowIntervals]) -> list[Group]:
    """The average of each metric's tests, or the only test, or dev."""
    by_name, metrics = {row.name: row for row in rows}, tests_by_metric(result)
    groups = []
    for metric, names in metrics.items():
        is_single = len(names) == 1
        row = by_name[(names[0] if is_single else AVERAGE) + metric_mark(metric, metrics)]
        which = names[0] if is_single else f"Average of {plural(len(names), 'test')}"
        groups.append(_group(f"{which}: {metric_title(metric)}", row, intervals))
    if not groups and rows:
        groups.append(_group(f"Dev: {metric_title(result['metric'])}", rows[0], intervals))
    return groups


def gain_words(gain: float | None, found: RowIntervals | None, form: Form) -> str:
    """What a gain says, for who does not see its colour."""
    if gain is None:
        return "not measured"
    interval = found.gains.get(form) if found else None
    if interval is None:
        shown = round(gain, 2)
        return "above its start" if shown > 0 else "below its start" if shown < 0 else "as its start"
    if interval.low > 0:
        return "better than its start"
    return "worse than its start" if interval.high < 0 else "no clear difference from its start"


def score_caption(result: Result, intervals: Mapping[str, RowIntervals]) -> str:
    """What the numbers of the score table are."""
    caption = f"{shown_metrics(result)}. Below a model's score stands its gain over the start."
    if not intervals:
        return caption
    return f"{caption} {BRACKETS}; {GAIN_BRACKETS}."


def score_remarks(result: Result, rows: Sequence[ScoreRow], intervals: Mapping[str, RowIntervals]) -> list[str]:
    """How to read the intervals, and why there are none."""
    remarks = []
    if intervals:
        remarks = [
            "A line through zero: the test has too few pairs to tell the model from its start.",
            "The lines say what other test pairs of this kind would have given. What another seed would have given, "
            "they do not say: for that, run the recipe with several.",
        ]
    without = [row.name for row in rows if row.name not in intervals]
    if without and len(without) == len(rows):
        remarks.append(f"There are no intervals. {why_absent(result, GOLD, 'the gold scores of its tests')}")
    elif without:
        remarks.append(f"No interval for {', '.join(without)}: single scores of it are not kept, or not here any more.")
    return remarks


def why_absent(result: Result, stage: str, what: str) -> str:
    """Why a page goes without something that a stage keeps, and what to do."""
    if any(each["name"] == stage for each in result["stages"]):
        return f"This run kept {what}, but its stages were removed."
    return f"This run is of an earlier version, which did not keep {what}. {_ADD_RECORDS}"


def _group(title: str, row: ScoreRow, intervals: Mapping[str, RowIntervals]) -> Group:
    found = intervals.get(row.name)
    return Group(title, row, found, {form: gain_words(row.gain(form), found, form) for form in row.trained})
