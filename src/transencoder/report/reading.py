"""What can be read off a result: its tests by metric, its forms, the record of one member."""

import math
from collections.abc import Mapping

from transencoder.config import Form
from transencoder.report.result import FORM_TITLES, Cycle, DataRecord, FormCycle, Result


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
