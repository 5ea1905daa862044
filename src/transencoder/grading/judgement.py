"""Measurement of a run's models by a person's grades of its pairs."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from datasets import Dataset

from transencoder.errors import InputError, plural, shorten
from transencoder.grading.choice import Pair, ScoredPairs
from transencoder.grading.tools import Scale
from transencoder.metrics import METRICS, Draws, defined, metric_draws, row_intervals
from transencoder.pairs import fingerprint
from transencoder.records import GRADED_FILE, GRADES, Result
from transencoder.report.verdict import verdict_of
from transencoder.results import forms_of, sample_key, training_data
from transencoder.runs.files import write_checked_json

HOW_DRAWN = "The pairs were drawn where the models disagree: differences are three to four times as large as elsewhere."


@dataclass(frozen=True)
class Judgement:
    """Metrics of a run's models, measured by a person's grades."""

    run: Result
    """The run's record."""
    found: Mapping[str, Any]
    """Entries of that record that change when the grades are its only test."""
    scores: Mapping[str, float]
    """Metric times 100 of `start` and of each form."""
    draws: Draws | None
    """Metrics of the base model and of each form on resamples, (models, samples); None where they are undefined."""

    @property
    def verdict(self) -> str:
        """Advice in one sentence on whether to use the models."""
        return verdict_of(self.result)

    @property
    def result(self) -> Result:
        """The run's record, with the grades as its only test."""
        return cast(Result, {**self.run, **self.found})

    def save(self, run_folder: Path) -> None:
        """Keep what was found in the run folder, for its report and its model cards."""
        write_checked_json(run_folder / GRADED_FILE, {"sample": sample_key(self.run), "record": self.found})


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
    kind, training = training_data(run)
    found = {
        "metric": scale.metric,
        "dev": None,
        "scores": {model: {GRADES: value} for model, value in defined(measured).items()},
        "data": run["data"] | {kind: training | {"transductive": True}, "dev": None, "tests": {GRADES: test}},
        "intervals": {} if draws is None else {GRADES: row_intervals(draws, models)},
        "notes": [HOW_DRAWN, *run["notes"]],
    }
    return Judgement(run, found, measured, draws)


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
