"""Whether to use what a run made: one sentence, from whatever was measured."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from transencoder.configs import Form
from transencoder.records import AVERAGE, DEV, FORM_TITLES, Result
from transencoder.report.words import gain, no_difference
from transencoder.results import (
    ENOUGH_AGREEMENT,
    best_start,
    forms_of,
    looks_weak,
    mean_over,
    metric_mark,
    tests_by_metric,
)
from transencoder.wording import number

Advice = Literal["use it", "use only the bi-encoder", "use only the cross-encoder", "keep the base model", "unknown"]

_ON_DEV = "on dev"

FALLEN_RETRIEVAL = 3.5
"""Points of self-retrieval by which a bi-encoder is below its base model. Of 26 bi-encoders of these runs the 6 that
fell so far were worse than it by 2 to 10 points of dev; of those that fell less 11 were worse and 9 better."""


class Comparison(NamedTuple):
    """One form against the base model."""

    where: str
    """`on the tests`, `on dev`."""
    start: float | None
    """Metric times 100; None where it was not measured."""
    trained: float | None
    interval: tuple[float, float] | None = None
    """Where 95 % of the bootstrap resamples of the gain lie, in points; None where none were drawn."""

    @property
    def is_measured(self) -> bool:
        """Check whether both have a metric: an encoder that collapsed has none."""
        return self.start is not None and self.trained is not None

    @property
    def is_worse(self) -> bool:
        """Check whether both were measured and the form is below the base model by two decimals."""
        return self.start is not None and self.trained is not None and round(self.trained, 2) < round(self.start, 2)

    @property
    def is_open(self) -> bool:
        """Check whether the two are equal, or the interval of their difference includes 0."""
        if self.start is None or self.trained is None:
            return False
        is_equal = round(self.trained, 2) == round(self.start, 2)
        return is_equal or (self.interval is not None and self.interval[0] <= 0.0 <= self.interval[1])

    @property
    def is_better(self) -> bool:
        """Check whether the form is to be used: measured, above the base model, and not by chance."""
        return self.is_measured and not self.is_worse and not self.is_open


class Verdict(NamedTuple):
    """The advice on a run's models."""

    advice: Advice
    sentence: str


def verdict_of(result: Result) -> Verdict:
    """Advise on a run's models: by the tests where there are any, else by dev, else it is unknown."""
    compared = {form: next(comparisons(result, form)) for form in forms_of(result)}
    if not any(each.is_measured for each in compared.values()):
        return _unmeasured(result)
    better = [form for form, each in compared.items() if each.is_better]
    unknown = [form for form, each in compared.items() if each.is_open]
    where, start, *_ = next(iter(compared.values()))
    gains = [f"the {FORM_TITLES[form]} {_gain(each)}" for form, each in compared.items()]
    chosen = ", which chose the checkpoints," if where == _ON_DEV else ""
    said = f"{where}{chosen} the base model has {number(start)}, {' and '.join(gains)}"
    advice = _advice(better, unknown, len(compared))
    sets = "this dev set" if where == _ON_DEV else "these tests"
    return Verdict(advice, f"{_to_do(advice, unknown, len(compared), sets)}: {said}.")


def _unmeasured(result: Result) -> Verdict:
    """Advise without labels: a run can be seen to have failed, not to have succeeded."""
    criteria = result.get("criteria", {})
    start, bi = (criteria.get(name, {}).get("self_retrieval") for name in ("start", "bi"))
    if start is not None and bi is not None and start - bi > FALLEN_RETRIEVAL:
        return Verdict(
            "keep the base model",
            "Keep the base model: nothing was measured with labels, but from half of its words the bi-encoder finds "
            f"a sentence less often than the base model (mean reciprocal rank {number(bi)} against {number(start)}).",
        )
    if looks_weak(criteria.get("cross", {})) or forgot_its_pairs(result):
        said = (
            "Do not use the cross-encoder, which did not learn its teacher's ranking. Whether the bi-encoder is better "
            "than the base model is unknown without labels"
        )
    else:
        said = "Whether these models are better than the base model is unknown without labels"
    return Verdict(
        "unknown",
        f"{said}: label a hundred pairs or more and run `transencoder evaluate` on them, the base model first.",
    )


def forgot_its_pairs(result: Result) -> bool:
    """Check whether the cross-encoder does not even rank the pairs that it learned from as the base model does.

    Known of runs without dev that had too few pairs to hold any out.
    """
    agreement = result.get("sample_agreement", {}).get("cross", ENOUGH_AGREEMENT)
    return agreement is None or agreement < ENOUGH_AGREEMENT


def comparisons(result: Result, form: Form) -> Iterator[Comparison]:
    """Compare a form with the base model: once for each metric of the tests, on dev where there are none."""
    groups, scores, dev = tests_by_metric(result), result["scores"], result["dev"] or {}
    for metric, names in groups.items():
        start = scores.get(best_start(result, names), {})
        mark = metric_mark(metric, groups)
        yield Comparison(
            f"on the tests{mark}",
            mean_over(start, names),
            mean_over(scores.get(form, {}), names),
            _interval(result, (AVERAGE if len(names) > 1 else names[0]) + mark, form),
        )
    if not groups:
        yield Comparison(_ON_DEV, dev.get("start"), dev.get(form), _interval(result, DEV, form))


def _interval(result: Result, row: str, form: Form) -> tuple[float, float] | None:
    found = result.get("intervals", {}).get(row)
    ends = found["gains"].get(form) if found else None
    return None if ends is None else (ends[0], ends[1])


def _advice(better: list[Form], unknown: list[Form], n_forms: int) -> Advice:
    if len(better) == n_forms:
        return "use it"
    if better:
        return "use only the cross-encoder" if better == ["cross"] else "use only the bi-encoder"
    return "unknown" if unknown else "keep the base model"


def _to_do(advice: Advice, unknown: list[Form], n_forms: int, sets: str) -> str:
    """Return the advice in words, and what the labelled sets are too small for."""
    titles = [f"the {FORM_TITLES[form]}" for form in unknown]
    open_question = f"; {no_difference(titles, 'the base model', sets)}" if unknown else ""
    if advice == "unknown":
        worse = {"bi": "Do not use the cross-encoder", "cross": "Keep the base model for embeddings"}
        found = f"{worse[unknown[0]]}{open_question}" if len(unknown) < n_forms else open_question.removeprefix("; ")
    elif advice == "use it":
        found = f"use {'them' if n_forms > 1 else 'it'}"
    elif advice == "keep the base model" or unknown:
        found = f"{advice}{open_question}"
    elif advice == "use only the cross-encoder":
        found = f"{advice} and keep the base model for embeddings"
    else:
        found = f"{advice}; do not use the cross-encoder"
    return found[0].upper() + found[1:]


def _gain(compared: Comparison) -> str:
    words = gain(compared.trained, compared.start)
    if not compared.is_open or compared.interval is None:
        return words
    low, high = compared.interval
    return f"{words} (95 % of resamples between {low:+.2f} and {high:+.2f})"
