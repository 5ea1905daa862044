"""Facts about a finished run: its tests by metric, its forms, models that look weak."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import NamedTuple, cast

from transencoder.configs import Form
from transencoder.errors import RunError, number
from transencoder.records import AVERAGE, FORM_TITLES, GRADED_FILE, SAMPLE, DataRecord, Result
from transencoder.runs.files import DamagedError, read_checked_json

logger = logging.getLogger(__name__)

_CLOSE_TOGETHER = -2.0
"""Uniformity above which a base model counts as weak. Of six base models on STS pairs, the three above it had 62.7 to
66.9 on STS-B's dev set, and the three below it 71.4 to 86.6 (LOG.md, 2026-11-22)."""

ENOUGH_AGREEMENT = 60.0
"""Spearman's correlation times 100 with its teacher on held-out pairs, below which a cross-encoder counts as weak. In
runs with a dev set, all 24 cross-encoders below it were worse than their base model, and so were 15 of the 24
bi-encoders that learned from them."""


def read_result(run_folder: str | Path) -> Result:
    """Read result.json of a finished run.

    Raises:
        RunError: no such folder, the run is not finished, or the file is not a result of this version.
    """
    path = Path(run_folder) / "result.json"
    if not path.parent.is_dir():
        raise RunError(f"no run folder at {path.parent}; give the folder that --output named")
    if not path.exists():
        raise RunError(
            f"the run in {path.parent} is not finished (it has no result.json); run the same command again to go on"
        )
    try:
        record = read_checked_json(path)
    except (OSError, DamagedError) as error:
        raise RunError(f"{error}. Run the same command again: finished stages are reused") from error
    tests = record["data"]["tests"] if "data" in record else {}
    absent = {f"data.tests.{name}.metric" for name, test in tests.items() if "metric" not in test}
    absent |= (Result.__required_keys__ | {"intervals"}) - set(record)
    if absent:
        raise RunError(
            f"{path} lacks {', '.join(sorted(absent))}; it was not written by this version: run the same command again"
        )
    return cast(Result, record)


def with_grades(run_folder: str | Path, result: Result) -> Result:
    """Return a run's record with a person's grades as its test, if its models were graded and nothing else measured."""
    path = Path(run_folder) / GRADED_FILE
    if result["dev"] or result["data"]["tests"] or not path.exists():
        return result
    try:
        graded = read_checked_json(path)
    except (OSError, DamagedError) as error:
        logger.warning("%s; the grades are left out: run transencoder grade again", error)
        return result
    return cast(Result, {**result, **graded["record"]}) if graded["sample"] == sample_key(result) else result


def sample_key(result: Result) -> str | None:
    """Return the key of the stage that keeps scores of training pairs, which follows from the models and the pairs."""
    return next((stage["key"] for stage in result["stages"] if stage["name"] == SAMPLE), None)


def of_member(result: Result, number: int) -> Result:
    """Return the record of one of several members, numbered from 1, as if it were a run of its own."""
    own: Result = {**result, **result["members"][number - 1]}
    for name in ("pretraining", "criteria", "intervals"):
        if name not in result["members"][number - 1]:
            own.pop(name, None)  # type: ignore[misc]
    return own


def of_ensemble(result: Result) -> Result:
    """Return the record of the members' weighted mean as if it were a run; it has no cycles or models of its own."""
    ensemble = result["ensemble"]
    own: Result = {**result, "dev": ensemble["dev"], "scores": ensemble["scores"]}
    own.pop("intervals", None)
    return own


def mean_over(scores: Mapping[str, float | None], names: Sequence[str]) -> float | None:
    """Return the plain mean over all of `names`; None where one was not measured."""
    values = [scores.get(name) for name in names]
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured and len(measured) == len(values) else None


def tests_by_metric(result: Result) -> dict[str, list[str]]:
    """Return the scored test sets of each metric; averages are only taken over test sets of one metric."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for form in ("start", *FORM_TITLES) for name in result["scores"].get(form, {})):
        groups.setdefault(result["data"]["tests"][name]["metric"], []).append(name)
    return groups


class TableRow(NamedTuple):
    """A row of a table of scores: a test set, or the average of the test sets of a metric."""

    name: str
    """Name of the row, with its metric where there are several metrics."""
    metric: str
    tests: Sequence[str]


def table_rows(groups: Mapping[str, Sequence[str]], metrics: Sized | None = None) -> Iterator[TableRow]:
    """Yield for each metric a row per test set and, if there are several, a row for their average.

    Args:
        groups: Test sets of each metric.
        metrics: All metrics of the table; None: those of the tests.
    """
    for metric, names in groups.items():
        mark = metric_mark(metric, metrics or groups)
        yield from (TableRow(name + mark, metric, [name]) for name in names)
        if len(names) > 1:
            yield TableRow(AVERAGE + mark, metric, names)


def best_start(result: Result, names: list[str]) -> str:
    """Return the base model to count gains from: `start` or `start_as_is`, the better one on average on these tests.

    `start` is measured in the run's precision and length, `start_as_is` in fp32 at the model's own length.
    """

    def mean(name: str) -> float:
        average = mean_over(result["scores"].get(name, {}), names)
        return -math.inf if average is None else average

    return max(("start", "start_as_is"), key=mean)


def training_data(result: Result) -> tuple[str, DataRecord]:
    """Return the kind of data that the run was trained on, `pairs`, `sentences` or `documents`, and its record."""
    data = result["data"]
    kind = next(kind for kind in ("pairs", "sentences", "documents") if kind in data)
    return kind, data[kind]


def has_cycles(result: Result) -> bool:
    """Check whether the run went through cycles, of which one is kept."""
    return len(result["cycles"]) > 1 or len(forms_of(result)) > 1


def forms_of(result: Result) -> list[Form]:
    """Return the forms that the run trained."""
    return [form for form in FORM_TITLES if form in result["best"]]


def metric_mark(metric: str, metrics: Sized) -> str:
    """Return the suffix that names a set's metric, such as ` (map)`; empty where there is only one metric."""
    return f" ({metric})" if len(metrics) > 1 else ""


def looks_weak(cross: Mapping[str, float | None]) -> bool:
    """Check whether a cross-encoder failed to learn its teacher's ranking.

    Args:
        cross: Its criteria on held-out pairs, which need no labels; empty where none were held out.
    """
    agreement = cross.get("teacher_agreement", ENOUGH_AGREEMENT)
    return agreement is None or agreement < ENOUGH_AGREEMENT


def weak_start_notes(criteria: Mapping[str, float | None]) -> Iterator[str]:
    """Yield a note if a base model looks too weak to teach.

    Args:
        criteria: Its criteria on held-out pairs, which need no labels; empty where none were held out.
    """
    evenness = criteria.get("uniformity")
    if evenness is not None and -evenness > _CLOSE_TOGETHER:
        yield (
            f"The base model looks weak on these texts: its embeddings lie close together (uniformity {-evenness:.2f}; "
            "even would be -4). Where such models could be measured with labels they were the worse ones; "
            "`transencoder train simcse` on your sentences makes a better base model."
        )


def weak_cross_notes(criteria: Mapping[str, float | None]) -> Iterator[str]:
    """Yield a note if a cross-encoder looks too weak to teach.

    Args:
        criteria: Its criteria on held-out pairs, which need no labels; empty where none were held out.
    """
    if looks_weak(criteria):
        yield (
            "The cross-encoder looks weak: on pairs that it did not learn, its ranking and its teacher's have a rank "
            f"correlation of {number(criteria['teacher_agreement'])}, of 100. Where such ones were measured by labels "
            "all were worse than the base model, and five of eight bi-encoders that learned from them: more pairs "
            "or epochs, a higher learning rate, or masked words to guess first (pretraining.epochs) may help."
        )
