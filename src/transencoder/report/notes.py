"""What to know before trusting a run's numbers, in sentences: the words are in notes.txt.jinja."""

from collections.abc import Iterator, Mapping

from transencoder.configs import Form
from transencoder.records import FORM_TITLES, DataRecord, Result
from transencoder.report.rendering import render
from transencoder.report.verdict import comparisons, forgot_its_pairs
from transencoder.report.words import missing_rows_line, transductive_line
from transencoder.results import (
    form_cycle,
    forms_of,
    has_cycles,
    mean_over,
    metric_mark,
    tests_by_metric,
    training_data,
    weak_cross_notes,
    weak_start_notes,
)

_ALIKE = -0.5
"""Uniformity above which embeddings are taken to be nearly all alike: a mean cosine of about 0.87. A collapsed SCT
ended at 0.96, from 0.74 (LOG.md, 2026-11-23)."""


def notes_of(result: Result) -> list[str]:
    """Return what to know before trusting the numbers: what follows from the record, then the run's own notes."""
    kind, record = training_data(result)
    criteria, scores = result.get("criteria", {}), result["scores"]
    values = {
        "result": result,
        "kind": kind,
        "record": record,
        "forms": forms_of(result),
        "n_members": len(result["config"].get("members") or []),
        "transductive": transductive_line(kind, record),
        "bad_files": _bad_files(result, record),
        "missing_rows": missing_rows_line(record),
        "had_a_choice": _had_a_choice(result),
        "costs": lambda regrets: _costs(result, regrets),
        "has_cycles": has_cycles(result),
        "is_tested": any(scores.values()),
        "undefined_forms": [form for form in FORM_TITLES if None in scores.get(form, {}).values()],
        "start_scores": list(_start_scores(result)),
        "worse": [
            (form, each)
            for form in FORM_TITLES
            for each in comparisons(result, form)
            if each.is_worse and not each.is_open
        ],
        "weak": [*weak_start_notes(criteria.get("start", {})), *weak_cross_notes(criteria.get("cross", {}))],
        "forgot_its_pairs": forgot_its_pairs(result),
        "collapse": _collapse(result.get("uniformity", {})),
    }
    return [*filter(None, render("notes.txt.jinja", values).split("\n")), *result["notes"]]


def _bad_files(result: Result, record: DataRecord) -> list[str]:
    more_files = {
        "bad-extra-rows.tsv": "extra" in record,
        "bad-documents.tsv": "documents" in record,
        "bad-rows-2.tsv and so on": bool(result["config"].get("more_labelled")),
    }
    return ["bad-rows.tsv", *(name for name, may_be in more_files.items() if may_be)]


def _had_a_choice(result: Result) -> bool:
    """Check whether some form was evaluated more than once."""
    trainings = {form: [form_cycle(cycle, form) for cycle in result["cycles"]] for form in forms_of(result)}
    return any(sum(len(each.get("criteria", ())) for each in parts if each) > 1 for parts in trainings.values())


def _costs(result: Result, regrets: Mapping[Form, float]) -> str:
    return " and ".join(f"{regrets[form]:.2f} ({FORM_TITLES[form]})" for form in forms_of(result))


def _start_scores(result: Result) -> Iterator[tuple[str, float | None, float | None]]:
    """Return for each metric its mark and the base model's averages, as it is and as the run reads it."""
    found, groups = result["scores"], tests_by_metric(result)
    for metric, names in groups.items() if "start_as_is" in found else ():
        own, run = (mean_over(found[name], names) for name in ("start_as_is", "start"))
        yield metric_mark(metric, groups), own, run


def _collapse(found: Mapping[str, float | None]) -> tuple[float, float] | None:
    """Return the uniformity before and after where the embeddings became all alike."""
    before, after = found.get("start"), found.get("bi")
    is_collapsed = before is not None and after is not None and after > max(_ALIKE, before / 2)
    return (before, after) if is_collapsed else None  # type: ignore[return-value]
