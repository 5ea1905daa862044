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
"""Spearman's correlation times 100 of a cross-encoder with its teacher on held-out pairs. Of runs that had a dev set
all 16 cross-encoders below it were worse than their start, and 11 of the 16 bi-encoders that learned from them."""

FALLEN_RETRIEVAL = 3.5
"""Points of self-retrieval by which a bi-encoder is below its start. Of the same 16 bi-encoders the 4 that fell so far
were worse than their start by 4 to 9 points of dev; of those that fell less 7 were worse and 5 better."""


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
        return _unmeasured(result.get("criteria", {}))
    better = [form for form, each in compared.items() if each.is_measured and not each.is_worse]
    return Verdict(_advice(better, compared), _sentence(better, compared))


def _unmeasured(criteria: Mapping[str, Mapping[str, float | None]]) -> Verdict:
    """Without labels a run can be seen to have failed, not to have succeeded."""
    start, bi = (criteria.get(name, {}).get("self_retrieval") for name in ("start", "bi"))
    if start is not None and bi is not None and start - bi > FALLEN_RETRIEVAL:
        return Verdict(
            "keep your start",
            "Keep your start: nothing was measured with labels, but from half of its words the bi-encoder finds a "
            f"sentence less often than its start (mean reciprocal rank {number(bi)} against {number(start)}).",
        )
    leave = (
        "Leave the cross-encoder, which did not learn its teacher's ranking; whether"
        if looks_weak(criteria.get("cross", {}))
        else "Whether"
    )
    models = "the bi-encoder is better than its start" if leave != "Whether" else "to use these models"
    return Verdict(
        "cannot tell",
        f"{leave} {models} cannot be told: nothing was measured. Label a hundred pairs or more and run "
        "`transencoder evaluate` on them, start included.",
    )


def looks_weak(cross: Mapping[str, float | None]) -> bool:
    """Whether a cross-encoder did not learn its teacher's ranking.

    Args:
        cross: What held-out pairs say of it without labels; empty where none were held out.
    """
    agreement = cross.get("teacher_agreement", ENOUGH_AGREEMENT)
    return agreement is None or agreement < ENOUGH_AGREEMENT


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
