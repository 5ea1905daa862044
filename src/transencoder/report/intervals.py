"""Bootstrap intervals of a run's scores and of their gains, drawn from what its stages keep."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from transencoder import progress
from transencoder.bootstrap import Interval, RowIntervals, metric_draws, row_intervals
from transencoder.report.evidence import DEV, Evidence
from transencoder.report.reading import best_start, forms_of, tests_by_metric
from transencoder.report.result import IntervalRecord, Result
from transencoder.report.tables import AVERAGE
from transencoder.report.text import metric_mark

if TYPE_CHECKING:
    from transencoder.bootstrap import Draws


def intervals_of(result: Result) -> dict[str, RowIntervals]:
    """Intervals for the rows of the score table, by the row's name; rows without kept scores have none."""
    return {
        name: RowIntervals(
            {model: Interval(*ends) for model, ends in row["scores"].items()},
            {form: Interval(*ends) for form, ends in row["gains"].items()},
        )
        for name, row in result.get("intervals", {}).items()
    }


def intervals_record(intervals: Mapping[str, RowIntervals]) -> dict[str, IntervalRecord]:
    """The intervals for result.json."""
    return {
        name: {
            "scores": {model: (each.low, each.high) for model, each in row.scores.items()},
            "gains": {form: (each.low, each.high) for form, each in row.gains.items()},
        }
        for name, row in intervals.items()
    }


def drawn_intervals(evidence: Evidence) -> dict[str, RowIntervals]:
    """Intervals by resampling pairs, or queries, of the tests, of dev where there are none; by the row's name.

    About 0.05 ms a thousand pairs, model and resample. Training with another seed is not in these intervals.
    """
    result = evidence.result
    shown = ["start", *forms_of(result)]
    groups, found = tests_by_metric(result), {}
    if not groups and result["dev"]:
        on_dev = draws_of([(evidence, model) for model in shown], None, result["metric"])
        return {} if on_dev is None else {DEV: row_intervals(on_dev, shown)}
    with progress.task("intervals of the tests", sum(map(len, groups.values()))) as advance:
        for metric, names in groups.items():
            mark = metric_mark(metric, groups)
            models = [best_start(result, names), *forms_of(result)]
            draws = {}
            for name in names:
                drawn = draws_of([(evidence, model) for model in models], name, metric)
                if drawn is not None:
                    draws[name] = drawn
                    found[name + mark] = row_intervals(drawn, shown)
                advance(1)
            if len(names) > 1 and len(draws) == len(names):
                found[AVERAGE + mark] = row_intervals(np.mean(list(draws.values()), axis=0), shown)
    return found


def draws_of(models: Sequence[tuple[Evidence, str]], test: str | None, metric: str) -> "Draws | None":
    """Metrics of several models on the same resamples of a test's pairs, or of its queries where it is a ranking.

    Args:
        models: A run's evidence, and which of its models: `start`, `start_as_is` or a form.
        test: The test's name, the same data in all runs; None: dev.
        metric: How it is measured.

    Returns:
        Metrics times 100, (models, N_RESAMPLES), or None where gold or a model's scores were not kept.
    """
    gold = models[0][0].gold(test)
    scores = [evidence.scores(model, test) for evidence, model in models]
    if gold is None or any(each is None or each.shape != gold.scores.shape for each in scores):
        return None
    return metric_draws(
        metric, gold.scores, np.array(scores), gold.queries, name=test or DEV, seed=models[0][0].result["seed"]
    )
