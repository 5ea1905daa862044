"""Verdict on a run's models: whether to use them, and what to know before, from whatever was measured.

The texts are in verdict.txt.jinja and notes.txt.jinja.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from transencoder import results
from transencoder.configs import Form
from transencoder.errors import number
from transencoder.metrics import includes_zero
from transencoder.records import FORM_TITLES, GRADES, Interval, Result
from transencoder.report.scores import ScoreRow, summary_rows
from transencoder.report.words import render

Finding = Literal["better", "worse", "open", "unmeasured"]

FALLEN_RETRIEVAL = 3.5
"""Drop in self-retrieval, in points below the base model, beyond which a bi-encoder is likely worse than it. Of 26
bi-encoders that were measured, the 6 that dropped this far were 2 to 10 points of dev worse than their base model. Of
those that dropped less, 11 were worse and 9 better."""

_ALIKE = -0.5
"""Uniformity above which embeddings count as nearly all alike: a mean cosine of about 0.87. In an SCT run that
collapsed, the mean cosine rose from 0.74 to 0.96 (LOG.md, 2026-11-23)."""


_ACCURACY = "accuracy"


class Comparison(NamedTuple):
    """Comparison of one form with the base model."""

    where: str
    """Name of the data: `on the tests`, `on dev` or `on the graded pairs`."""
    start: float | None
    """Base model's metric times 100; None where it was not measured."""
    trained: float | None
    interval: Interval | None
    """Interval of the gain, in points; None where none was drawn."""

    @property
    def finding(self) -> Finding:
        """Finding by metrics rounded to two decimals: `open` where equal or where the gain's interval includes 0."""
        if self.start is None or self.trained is None:
            return "unmeasured"  # an encoder that collapsed has no metric
        start, trained = round(self.start, 2), round(self.trained, 2)
        if trained == start or (self.interval is not None and includes_zero(self.interval)):
            return "open"
        return "worse" if trained < start else "better"


def verdict_of(result: Result) -> str:
    """Return one sentence of advice on a run's models, based on the tests where there are any, else on dev.

    Without labels it can be seen that a run failed, but not that it succeeded.
    """
    compared = {form: found[0] for form in results.forms_of(result) if (found := comparisons(result, form))}
    retrieval = retrieval_of(result)
    values = {
        "forms": results.forms_of(result),
        "compared": compared,
        "better": [form for form, each in compared.items() if each.finding == "better"],
        "open_forms": [form for form, each in compared.items() if each.finding == "open"],
        "is_measured": any(each.finding != "unmeasured" for each in compared.values()),
        "retrieval": retrieval,
        "has_fallen": has_fallen(*retrieval),
        "cross_is_weak": cross_is_weak(result),
        "can_be_graded": can_be_graded(result),
    }
    sentence = render("verdict.txt.jinja", values)
    return sentence[0].upper() + sentence[1:]


class Use(NamedTuple):
    """Recommended use of a run's models."""

    form: Form
    """The model to load."""
    next: Literal["search", "score", "grade", "label"]
    """Command to run next."""


def use_of(result: Result) -> Use | None:
    """Recommend a next step from the verdict's findings; None where no measured model is better than its base model."""
    findings = {form: found[0].finding for form in results.forms_of(result) if (found := comparisons(result, form))}
    forms: list[Form] = [form for form in results.forms_of(result) if form != "mlm" and not rejection_of(result, form)]
    better = [form for form in forms if findings.get(form) == "better"]
    if better:
        return Use(better[0], "search" if better[0] == "bi" else "score")
    has_failed = "bi" in result["best"] and "bi" not in forms and findings.get("bi", "unmeasured") == "unmeasured"
    unmeasured = [form for form in forms if findings.get(form, "unmeasured") == "unmeasured"]
    if not unmeasured or has_failed:
        return None
    return Use(unmeasured[0], "grade" if can_be_graded(result) else "label")


def can_be_graded(result: Result) -> bool:
    """Check whether the run keeps scores of pairs, which a person can grade with `transencoder grade`."""
    return results.sample_key(result) is not None


def rejection_of(result: Result, form: Form) -> str | None:
    """Return why one of a run's models should not be used, as the end of a sentence; None if there is no reason."""
    first = next(iter(comparisons(result, form)), None)
    if first is not None and first.finding == "worse":
        return f"{first.where} it has {number(first.trained)}, and its base model {number(first.start)}"
    is_unmeasured = first is None or first.finding == "unmeasured"
    if form == "cross" and is_unmeasured and cross_is_weak(result):
        return "it did not learn its teacher's ranking of the training pairs"
    retrieval = retrieval_of(result)
    if form == "bi" and is_unmeasured and has_fallen(*retrieval):
        return (
            "from half of its words it finds a sentence less often than its base model (mean reciprocal rank "
            f"{number(retrieval[1])} against {number(retrieval[0])})"
        )
    return None


def cross_is_weak(result: Result) -> bool:
    """Check whether the cross-encoder failed to learn its teacher's scores, judging by pairs without labels."""
    return results.looks_weak(result.get("criteria", {}).get("cross", {})) or forgot_its_pairs(result)


def retrieval_of(result: Result) -> tuple[float | None, float | None]:
    """Return the self-retrieval of the base model and of the bi-encoder, where it was measured."""
    before, after = (result.get("criteria", {}).get(name, {}).get("self_retrieval") for name in ("start", "bi"))
    return before, after


def has_fallen(before: float | None, after: float | None) -> bool:
    """Check whether self-retrieval fell so far that the bi-encoder is likely worse than its base model."""
    return before is not None and after is not None and before - after > FALLEN_RETRIEVAL


def forgot_its_pairs(result: Result) -> bool:
    """Check whether the cross-encoder disagrees with the base model's ranking even of the pairs that it learned from.

    This is known only for runs without a dev set that had too few pairs to hold any out.
    """
    agreement = result.get("sample_agreement", {}).get("cross", results.ENOUGH_AGREEMENT)
    return agreement is None or agreement < results.ENOUGH_AGREEMENT


def comparisons(result: Result, form: Form) -> list[Comparison]:
    """Compare a form with the base model, once for each metric of the tests, or on dev where there are no tests.

    Accuracy is no metric of cross-encoders, which have no embeddings to train a classifier on.
    """
    rows, intervals = summary_rows(result), result.get("intervals", {})
    metrics = [row.metric for row in rows]
    return [
        Comparison(
            _where(row, metrics),
            row.start,
            row.trained.get(form),
            intervals[row.name]["gains"].get(form) if row.name in intervals else None,
        )
        for row in rows
        if (form, row.metric) != ("cross", _ACCURACY)
    ]


def _where(row: ScoreRow, metrics: Sequence[str]) -> str:
    if row.tests == [GRADES]:
        return f"on the {GRADES}"
    return f"on the tests{results.metric_mark(row.metric, metrics)}" if row.tests else "on dev"


def notes_of(result: Result) -> list[str]:
    """Return what to know before trusting the numbers: notes derived from the record, then the run's own notes.

    The comparison by the first metric is left out, because the verdict reports it.
    """
    first = 0 if "mlm" in result["best"] else 1
    compared = [(form, each) for form in FORM_TITLES for each in comparisons(result, form)[first:]]
    values = {
        "result": result,
        "had_a_choice": _had_a_choice(result),
        "worse": [(form, each) for form, each in compared if each.finding == "worse"],
        "forgot_its_pairs": forgot_its_pairs(result),
        "measures_no_cross": "cross" in result["best"] and bool(_tests_of_classes(result)),
        "undefined": _undefined(result),
        "collapse": _collapse(result.get("uniformity", {})),
    }
    return [*filter(None, render("notes.txt.jinja", values).split("\n")), *result["notes"]]


def _had_a_choice(result: Result) -> bool:
    """Check whether some form was evaluated more than once."""
    parts = {form: [cycle[form] for cycle in result["cycles"] if form in cycle] for form in results.forms_of(result)}
    return any(sum(len(part.get("criteria", ())) for part in of_form) > 1 for of_form in parts.values())


def _tests_of_classes(result: Result) -> set[str]:
    """Return the tests on which a classifier is trained on embeddings: they measure no cross-encoder."""
    return {name for name, test in result["data"]["tests"].items() if test["metric"] == _ACCURACY}


def _undefined(result: Result) -> list[Form]:
    """Return the forms that a test should have measured and could not."""
    scores, of_classes = result["scores"], _tests_of_classes(result)
    found = {form: {name for name, value in scores.get(form, {}).items() if value is None} for form in FORM_TITLES}
    return [form for form, names in found.items() if names - (of_classes if form == "cross" else set())]


def _collapse(found: Mapping[str, float | None]) -> tuple[float, float] | None:
    """Return the uniformity before and after training if the embeddings became nearly all alike; else None."""
    before, after = found.get("start"), found.get("bi")
    if before is None or after is None or after <= max(_ALIKE, before / 2):
        return None
    return before, after
