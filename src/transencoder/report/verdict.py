"""Whether to use what a run made: one sentence, from whatever was measured."""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from transencoder.config import Form
from transencoder.report.result import (
    FORM_TITLES,
    Result,
    best_start,
    forms_of,
    mean_over,
    tests_by_metric,
)
from transencoder.report.text import gain, metric_mark, number

Advice = Literal["use it", "use only the bi-encoder", "use only the cross-encoder", "keep your start", "cannot tell"]


ENOUGH_AGREEMENT = 60.0
"""Spearman's correlation times 100 of a cross-encoder with its teacher on held-out pairs, from which on it can teach.
Of the runs that had a dev set no bi-encoder beat its start below it (benchmarks/results/selection.md)."""


class Comparison(NamedTuple):
    """One form against its start."""

    where: str
    """`on the tests`, `on dev`."""
    start: float | None
    """Metric times 100; None where it was not measured."""
    trained: float | None

    @property
    def is_measured(self) -> bool:
        """Whether both have a metric: an encoder that collapsed has none."""
        return self.start is not None and self.trained is not None

    @property
    def is_worse(self) -> bool:
        """Whether both were measured and the form is below its start by two decimals."""
        return self.start is not None and self.trained is not None and round(self.trained, 2) < round(self.start, 2)


class Verdict(NamedTuple):
    """What to do with a run's models."""

    advice: Advice
    sentence: str


def verdict_of(result: Result) -> Verdict:
    """What to do with a run's models: by the tests where there are any, else by dev, else nobody can tell."""
    compared = {form: next(comparisons(result, form)) for form in forms_of(result)}
    if not any(each.is_measured for each in compared.values()):
        return _unmeasured(result.get("criteria", {}).get("cross", {}))
    better = [form for form, each in compared.items() if each.is_measured and not each.is_worse]
    return Verdict(_advice(better, compared), _sentence(better, compared))


def _unmeasured(cross: Mapping[str, float | None]) -> Verdict:
    """Without labels a run can be seen to have failed, not to have succeeded."""
    agreement = cross.get("teacher_agreement", ENOUGH_AGREEMENT)
    if agreement is None or agreement < ENOUGH_AGREEMENT:
        return Verdict(
            "keep your start",
            "Keep your start: nothing was measured with labels, but the cross-encoder, the bi-encoder's teacher, did "
            f"not learn its teacher's ranking (rank correlation {number(agreement)} on pairs that were held out).",
        )
    return Verdict(
        "cannot tell",
        "Whether to use these models cannot be told: nothing was measured. Label a hundred pairs or more and run "
        "`transencoder evaluate` on them, start included.",
    )


def comparisons(result: Result, form: Form) -> Iterator[Comparison]:
    """A form against its start: once for each metric of the tests, on dev where there are none."""
    groups, scores, dev = tests_by_metric(result), result["scores"], result["dev"] or {}
    for metric, names in groups.items():
        start = scores.get(best_start(result, names), {})
        where = f"on the tests{metric_mark(metric, groups)}"
        yield Comparison(where, mean_over(start, names), mean_over(scores.get(form, {}), names))
    if not groups:
        yield Comparison("on dev", dev.get("start"), dev.get(form))


def _advice(better: list[Form], compared: Mapping[Form, Comparison]) -> Advice:
    if not better:
        return "keep your start"
    if len(better) == len(compared):
        return "use it"
    return "use only the cross-encoder" if better == ["cross"] else "use only the bi-encoder"


def _sentence(better: list[Form], compared: Mapping[Form, Comparison]) -> str:
    where, start, _ = next(iter(compared.values()))
    gains = [f"the {FORM_TITLES[form]} {gain(each.trained, each.start)}" for form, each in compared.items()]
    said = f"{where} the start has {number(start)}, {' and '.join(gains)}"
    if not better:
        return f"Keep your start: {said}."
    if len(better) == len(compared):
        return f"Use {'them' if len(better) > 1 else 'it'}: {said}."
    other = "keep your start for embeddings" if better == ["cross"] else "leave the cross-encoder"
    return f"Use only the {FORM_TITLES[better[0]]} and {other}: {said}."
