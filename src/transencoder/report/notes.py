"""What to know before trusting a run's numbers, in sentences."""

from collections.abc import Iterator, Mapping

from transencoder.config import Form
from transencoder.records import FORM_TITLES, DataRecord, Result, SelectionRecord
from transencoder.report.text import transductive_line
from transencoder.report.verdict import comparisons, forgot_its_pairs
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
from transencoder.wording import number, plural

_ALIKE = -0.5
"""Uniformity above which embeddings are taken to be nearly all alike: a mean cosine of about 0.87. A collapsed SCT
ended at 0.96, from 0.74 (LOG.md, 2026-11-23)."""


def notes_of(result: Result) -> list[str]:
    """What to know before trusting the numbers: what follows from the record, then the run's own notes."""
    return [
        *_member_notes(result),
        *_data_notes(result),
        *_selection_notes(result),
        *_start_notes(result),
        *_order_notes(result),
        *_worse_notes(result),
        *weak_start_notes(result.get("criteria", {}).get("start", {})),
        *weak_cross_notes(result.get("criteria", {}).get("cross", {})),
        *_forgetful_cross_notes(result),
        *_collapse_notes(result.get("uniformity", {})),
        *result["notes"],
    ]


def _collapse_notes(found: Mapping[str, float | None]) -> Iterator[str]:
    before, after = found.get("start"), found.get("bi")
    if before is not None and after is not None and after > max(_ALIKE, before / 2):
        yield (
            f"The encoder seems to have collapsed: its embeddings of training texts are nearly all alike (uniformity "
            f"{after:.2f}, before {before:.2f}; even would be -4), which a loss need not show. A lower rate, fewer "
            "steps, a dev set that chooses among them, or, of SCT, --no-projector may help."
        )


def missing_rows_note(record: DataRecord) -> Iterator[str]:
    """How much of the paper's training text could not be had.

    Args:
        record: Of the training text.
    """
    if missing := record.get("missing_rows"):
        yield f"{missing:,} of the paper's training pairs are missing: they are not on the hub."


def _forgetful_cross_notes(result: Result) -> Iterator[str]:
    if forgot_its_pairs(result):
        yield (
            "The cross-encoder looks weak: even on pairs that it learned from, its ranking and the start's have a rank "
            f"correlation of {number(result['sample_agreement']['cross'])}, of 100. More pairs or epochs, or a higher "
            "rate, may help."
        )


def _member_notes(result: Result) -> Iterator[str]:
    members = result["config"].get("members") or []
    if len(members) < 2:
        return
    if "members" in result:
        how = "the first" if result["dev"] is None else "whose bi-encoder is the best on dev"
        yield (
            f"Scores and models are those of member {result['member']} of {len(members)}, {how}; all members' models "
            "lie in `members`."
        )
    else:
        owners = [
            f"the {FORM_TITLES[form]} is of member {result['best'][form].get('member')}" for form in forms_of(result)
        ]
        how = "the first" if result["dev"] is None else "the best of the starts on dev"
        yield f"Members learned in turn: {', '.join(owners)}; gains are over member {result['start_member']}, {how}."


def _data_notes(result: Result) -> Iterator[str]:
    texts, record = training_data(result)
    if record.get("transductive"):
        yield transductive_line(texts, record)
    if labelled := record.get("labelled"):
        yield (
            f"{labelled['rows']:,} training pairs have gold scores, whose share of their targets grew from 0 to 1 in "
            "each stage: the models were not trained without labels."
        )
    labelled_record = record.get("labelled", record)
    if n_rows := labelled_record.get("test_rows"):
        yield f"Of the labelled pairs {n_rows:,} that are in the test sets too were left out."
    if n_rows := labelled_record.get("rows_without_class"):
        yield f"Of the labelled pairs {n_rows:,} that have no class were left out."
    if excluded := record.get("excluded_rows"):
        is_paired = texts == "pairs" and "mined" not in record
        left_out = "pairs that hold a sentence of a test set" if is_paired else "sentences of the test sets"
        yield f"{excluded:,} {left_out} were left out of training (inductive)."
    if bad := record.get("bad_rows"):
        more_files = {
            "bad-extra-rows.tsv": "extra" in record,
            "bad-documents.tsv": "documents" in record,
            "bad-rows-2.tsv and so on": bool(result["config"].get("more_labelled")),
        }
        files = " or ".join(["bad-rows.tsv", *(name for name, may_be in more_files.items() if may_be)])
        yield f"{bad:,} bad rows of the training {texts} were skipped; {files} in the run folder has them."
    if short := record.get("short_rows"):
        yield f"{plural(short, 'document')} of too few words were left out."
    yield from missing_rows_note(record)


def _selection_notes(result: Result) -> Iterator[str]:
    if "mlm" in result["best"]:
        yield "The last weights were kept; tests take the mean over a text's tokens, of the start too."
    elif "selection" in result and _had_a_choice(result):
        yield _choice_without_labels(result, result["selection"])
    elif "selection" in result:
        yield "There was no dev set, and of each form one checkpoint to choose from: it was kept."
    elif result["data"]["dev"] is None:
        of_cycle = " of the last cycle" if has_cycles(result) else ""
        yield f"There was no dev set: the last checkpoint{of_cycle} was kept, not the best one."
    else:
        chosen = "Checkpoints and cycles were" if has_cycles(result) else "The checkpoint was"
        yield f"{chosen} chosen on the dev set, whose scores are labels."
    if not any(result["scores"].values()):
        yield "No test set was scored."
    if result["analysis"]:
        yield "Test sets were scored during training, for analysis; no choice was made by them."
    for form, title in FORM_TITLES.items():
        if None in result["scores"].get(form, {}).values():
            yield f"The {title} gave every pair of a set the same score, so its metric is undefined."


def _had_a_choice(result: Result) -> bool:
    """Whether some form was evaluated more than once."""
    trainings = {form: [form_cycle(cycle, form) for cycle in result["cycles"]] for form in forms_of(result)}
    return any(sum(len(each.get("criteria", ())) for each in parts if each) > 1 for parts in trainings.values())


def _choice_without_labels(result: Result, selection: SelectionRecord) -> str:
    forms = forms_of(result)

    def of_each(regrets: dict[Form, float]) -> str:
        return " and ".join(f"{regrets[form]:.2f} ({FORM_TITLES[form]})" for form in forms)

    how = " and ".join(f"the {FORM_TITLES[form]}'s by {selection['criteria'][form]}" for form in forms)
    return (
        f"There was no dev set: checkpoints and cycles were chosen without labels, {how}, on "
        f"{result['data']['pairs']['held_out_rows']:,} pairs that were held out. On {selection['runs']} runs of "
        f"{selection['starts']} starts that had a dev set, a criterion that was picked on the other starts' runs cost "
        f"{of_each(selection['left_out_regrets'])} points of dev on average, the last checkpoint "
        f"{of_each(selection['last_regrets'])}."
    )


def _start_notes(result: Result) -> Iterator[str]:
    found = result["scores"]
    if "start_as_is" not in found:
        return
    groups = tests_by_metric(result)
    for metric, names in groups.items():
        own, run = (mean_over(found[name], names) for name in ("start_as_is", "start"))
        yield (
            f"The start scores {number(run)}{metric_mark(metric, groups)} in the run's precision and length, "
            f"{number(own)} as it is, in fp32 at its own length; gains are over the better."
        )


def _order_notes(result: Result) -> Iterator[str]:
    if result["config"].get("label_both_orders") and result["config"].get("is_symmetric"):
        yield (
            "The cross-encoder's metrics are of the mean of its scores for both orders of a pair; `predict` gives one "
            "order's, and `transencoder evaluate --both-orders` the mean."
        )


def _worse_notes(result: Result) -> Iterator[str]:
    """Which form is below the start: on the tests' average where there are tests, else on dev."""
    for form, title in FORM_TITLES.items():
        for where, before, after, _ in (
            each for each in comparisons(result, form) if each.is_worse and not each.is_open
        ):
            yield (
                f"The {title} is worse than its start {where} ({number(after)} against {number(before)}): "
                "do not use it in the start's place."
            )
