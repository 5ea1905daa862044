"""What can be read off a result: its tests by metric, its forms, one member's record, which models look weak."""

import json
import math
from collections.abc import Iterator, Mapping, Sized
from pathlib import Path

from transencoder.configs import Form
from transencoder.errors import RunError
from transencoder.records import FORM_TITLES, Cycle, DataRecord, FormCycle, Result
from transencoder.wording import number

_CLOSE_TOGETHER = -2.0
"""Uniformity above which a start is taken to be weak. Of six starts on STS pairs the three above had 62.7 to 66.9 on
STS-B's dev set, the three below 71.4 to 86.6 (LOG.md, 2026-11-22)."""

ENOUGH_AGREEMENT = 60.0
"""Spearman's correlation times 100 of a cross-encoder with its teacher on held-out pairs. Of runs that had a dev set
all 24 cross-encoders below it were worse than their start, and 15 of the 24 bi-encoders that learned from them."""


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
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(
            f"{path} is damaged ({error}); delete it and run the same command again: finished stages are reused"
        ) from error
    absent = sorted(Result.__required_keys__ - set(record)) if isinstance(record, dict) else ["everything"]
    if absent:
        raise RunError(
            f"{path} lacks {', '.join(absent)}; it was not written by this version: run the same command again"
        )
    result: Result = record
    return result


def of_member(result: Result, number: int) -> Result:
    """The record of one of several members, from 1, as if it were a run of its own."""
    own: Result = {**result, **result["members"][number - 1]}
    for name in ("pretraining", "criteria", "intervals"):
        if name not in result["members"][number - 1]:
            own.pop(name, None)  # type: ignore[misc]
    return own


def of_ensemble(result: Result) -> Result:
    """The members' weighted mean as if it were a run of its own; it has no cycles and no models."""
    ensemble = result["ensemble"]
    own: Result = {**result, "dev": ensemble["dev"], "scores": ensemble["scores"]}
    own.pop("intervals", None)
    return own


def mean_over(scores: Mapping[str, float | None], names: list[str]) -> float | None:
    """The plain mean over all of `names`; None where one was not measured."""
    values = [scores.get(name) for name in names]
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured and len(measured) == len(values) else None


def scored_tests(result: Result) -> list[str]:
    """The scored test sets, in the order of the record."""
    return list(dict.fromkeys(name for form in ("start", *FORM_TITLES) for name in result["scores"].get(form, {})))


def tests_by_metric(result: Result) -> dict[str, list[str]]:
    """Metric -> the scored test sets that are measured by it; only these have a mean."""
    groups: dict[str, list[str]] = {}
    for name in scored_tests(result):
        metric = result["data"]["tests"][name].get("metric", result["metric"])
        groups.setdefault(metric, []).append(name)
    return groups


def best_start(result: Result, names: list[str]) -> str:
    """The start that gains are counted from: `start` or `start_as_is`, the better on average over these tests.

    `start` is measured in the run's precision and length, `start_as_is` in fp32 at the model's own length.
    """

    def mean(name: str) -> float:
        average = mean_over(result["scores"].get(name, {}), names)
        return -math.inf if average is None else average

    return max(("start", "start_as_is"), key=mean)


def training_data(result: Result) -> tuple[str, DataRecord]:
    """`pairs`, `sentences` or `documents`, and the record of those that the run was trained on."""
    data = result["data"]
    kind = next(kind for kind in ("pairs", "sentences", "documents") if kind in data)
    return kind, data[kind]


def has_cycles(result: Result) -> bool:
    """Whether the run went through cycles, of which one is kept."""
    return len(result["cycles"]) > 1 or len(forms_of(result)) > 1


def forms_of(result: Result) -> list[Form]:
    """The forms that the run trained."""
    return [form for form in FORM_TITLES if form in result["best"]]


def form_cycle(cycle: Cycle, form: Form) -> FormCycle | None:
    """One form's part of a cycle, where the cycle has it."""
    return cycle.get(form)


def metric_mark(metric: str, metrics: Sized) -> str:
    """What tells a set of this metric from others where there are several metrics: ` (map)`."""
    return f" ({metric})" if len(metrics) > 1 else ""


def looks_weak(cross: Mapping[str, float | None]) -> bool:
    """Whether a cross-encoder did not learn its teacher's ranking.

    Args:
        cross: What held-out pairs say of it without labels; empty where none were held out.
    """
    agreement = cross.get("teacher_agreement", ENOUGH_AGREEMENT)
    return agreement is None or agreement < ENOUGH_AGREEMENT


def weak_start_notes(criteria: Mapping[str, float | None]) -> Iterator[str]:
    """Say that a base model looks too weak to teach, if it does.

    Args:
        criteria: What held-out pairs say of it without labels; empty where none were held out.
    """
    evenness = criteria.get("uniformity")
    if evenness is not None and -evenness > _CLOSE_TOGETHER:
        yield (
            f"The base model looks weak on these texts: its embeddings lie close together (uniformity {-evenness:.2f}; "
            "even would be -4). Where such models could be measured with labels they were the worse ones; "
            "`transencoder train simcse` on your sentences makes a better base model."
        )


def weak_cross_notes(criteria: Mapping[str, float | None]) -> Iterator[str]:
    """Say that a cross-encoder looks too weak to teach, if it does.

    Args:
        criteria: What held-out pairs say of it without labels; empty where none were held out.
    """
    if looks_weak(criteria):
        yield (
            "The cross-encoder looks weak: on pairs that it did not learn, its ranking and its teacher's have a rank "
            f"correlation of {number(criteria['teacher_agreement'])}, of 100. Where such ones were measured by labels "
            "all were worse than the base model, and five of eight bi-encoders that learned from them: more pairs "
            "or epochs, a higher learning rate, or masked words to guess first (pretraining.epochs) may help."
        )
