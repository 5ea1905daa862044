"""Measurement of a run's models by a person's grades of its pairs."""

import logging
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from datasets import Dataset

from transencoder.errors import InputError, RunError, plural, shorten
from transencoder.grading.choice import Pair, ScoredPairs
from transencoder.grading.tools import SCALES, Scale, grades_from
from transencoder.metrics import METRICS, Draws, metric_draws, row_intervals
from transencoder.pairs import fingerprint
from transencoder.records import GRADES, Result
from transencoder.results import forms_of

logger = logging.getLogger(__name__)

GRADED, GRADED_WITH_MARKS = "dev.tsv", "dev.csv"
"""Names of the file of grades in a run folder. The second is used if a text has a tab or a line break."""

HOW_DRAWN = "The pairs were drawn where the models disagree: differences are three to four times as large as elsewhere."


@dataclass(frozen=True)
class Judgement:
    """Metrics of a run's models, measured by a person's grades."""

    result: Result
    """The run's record, with the grades as its only test."""
    scores: Mapping[str, float]
    """Metric times 100 of `start` and of each form."""
    draws: Draws | None
    """Metrics of the base model and of each form on resamples, (models, samples); None where they are undefined."""


def judge(scored: ScoredPairs, grades: Mapping[Pair, float], scale: Scale) -> Judgement:
    """Measure a run's models on pairs that a person graded, with the scores that the run keeps.

    Pairs that were chosen where models disagree show a difference with fewer grades than random pairs, and show it
    larger.

    Args:
        scored: Scored pairs of the run.
        grades: Grades of some of these pairs.
        scale: Scale of the grades, which defines how agreement is measured.

    Raises:
        InputError: Pairs that the run does not keep, too few grades, or grades that are all the same.
    """
    check_known(scored, grades)
    run, sample = scored.result, scored.sample
    row_of = {text: row for row, text in enumerate(sample.texts)}
    if len(set(grades.values())) < 2:
        raise InputError(
            f"{plural(len(grades), 'grade')} with {plural(len(set(grades.values())), 'different value')} cannot be "
            "compared with scores; grade more pairs"
        )
    gold, rows = np.array(list(grades.values()), np.float64), [row_of[pair] for pair in grades]
    models = ["start", *forms_of(run)]
    scores = {model: sample.scores[model][rows] for model in models}
    draws = metric_draws(scale.metric, gold, np.array(list(scores.values())), name=GRADES, seed=run["seed"])
    measured = {model: METRICS[scale.metric](gold, each) for model, each in scores.items()}
    first, second = zip(*grades, strict=True)
    graded = Dataset.from_dict({"sentence1": first, "sentence2": second, "score": gold})
    test = {"source": GRADES, "rows": len(gold), "fingerprint": fingerprint(graded), "metric": scale.metric}
    result = dict(run) | {
        "metric": scale.metric,
        "dev": None,
        "scores": {model: {GRADES: value} for model, value in measured.items()},
        "data": run["data"] | {"dev": None, "tests": {GRADES: test}},
        "intervals": {} if draws is None else {GRADES: row_intervals(draws, models)},
        "notes": [HOW_DRAWN, *run["notes"]],
    }
    return Judgement(cast(Result, result), measured, draws)


def check_known(scored: ScoredPairs, graded: Iterable[Pair]) -> None:
    """Refuse graded pairs that a run does not keep.

    Raises:
        InputError: There are such pairs.
    """
    if unknown := scored.unknown(graded):
        evaluate = f"transencoder evaluate {shlex.quote(str(scored.folder))} --pairs FILE"
        raise InputError(
            f"{plural(len(unknown), 'graded pair')}, such as {shorten(unknown[0])}, not among those of "
            f"{scored.folder}; measure its models on them with `{evaluate}`"
        )


def with_grades(folder: Path, result: Result) -> Result:
    """Return the record of a run that had no dev set and no tests with the grades in its folder, if any, as its test.

    Every other record is returned as it is: graded pairs are ones on which the models disagree, so that their metrics
    and those of a test cannot be averaged. A file of grades that cannot be used is named in a warning.
    """
    path = next((each for name in (GRADED, GRADED_WITH_MARKS) if (each := folder / name).is_file()), None)
    if path is None or result["dev"] or result["data"]["tests"]:
        return result
    scale = SCALES[result["config"].get("task_kind", "graded")]
    try:
        scored, grades = ScoredPairs.of_run(folder, result), grades_from(path, scale)
        unknown = {*scored.unknown(grades)}
        return judge(scored, {pair: grade for pair, grade in grades.items() if pair not in unknown}, scale).result
    except (InputError, RunError) as error:
        logger.warning("the report leaves out the grades in %s: %s", path, error)
        return result
