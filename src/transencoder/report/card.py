"""Model card: README.md with the metadata that the hub reads, and what to know before relying on the model."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData
from markupsafe import Markup

from transencoder import results
from transencoder.configs import Form
from transencoder.encoders import CARD_NAME, REJECTION, card_of
from transencoder.errors import number, shown_source
from transencoder.models import hub_id
from transencoder.records import FORM_TITLES, Result
from transencoder.report import scores, words
from transencoder.report.verdict import notes_of, rejection_of, verdict_of

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_FILE = re.compile(r".*\.(tsv|csv|jsonl|parquet|txt|gz)")
_KINDS = {
    "bi": ("sentence-transformers", "sentence-similarity", "feature-extraction"),
    "cross": ("sentence-transformers", "text-ranking", "cross-encoder"),
    "mlm": ("transformers", "fill-mask", "masked-lm"),
}
"""Library, hub task and tag of each form."""
_TASKS = {
    "bi": ("semantic-similarity", "Semantic Similarity"),
    "cross": ("cross-encoder-correlation", "Cross Encoder Correlation"),
    "mlm": ("semantic-similarity", "Semantic Similarity"),
}
"""Task type and task name of each form's scores on pairs in the hub's lists of results."""


def write_cards(run_folder: Path) -> None:
    """Write the cards of a run's kept models again, with a person's grades."""
    result = results.with_grades(run_folder, results.read_result(run_folder))
    for form, best in result["best"].items():
        folder = run_folder / best["path"]
        if folder.is_dir():
            words.write_page(folder / CARD_NAME, model_card(result, form, card_of(folder)))


def model_card(result: Result, form: Form, base: Mapping[str, Any] | None = None, *, member: int | None = None) -> str:
    """Build the README.md of one of the run's models, with what a user must know before relying on it.

    Args:
        result: The run's record.
        form: Form of the model.
        base: Metadata of the base model's card, whose licence and language apply to this model too.
        member: Number of the member that the model is of, from 1; None: that of the kept model, if there are several.

    Returns:
        Markdown with YAML metadata at the top, as the hub reads it.
    """
    result = _of_member(result, member or result["best"][form].get("member"))
    kind, record = results.training_data(result)
    rows = scores.score_rows(result, with_dev=True)
    rejection = rejection_of(result, form)
    values = {
        "head": Markup(_head(result, form, base or {}, rejection).to_yaml()),
        "result": result,
        "form": form,
        "verdict": None if form == "mlm" else verdict_of(result),
        "rejection": rejection,
        "kind": kind,
        "record": record,
        "metrics": words.metric_titles(row.metric for row in rows),
        "rows": [
            (row.name, number(row.start), number(row.trained[form]), words.gain(row.trained[form], row.start))
            for row in rows
        ],
        "sizes": scores.size_cells(result["sizes"]) if "sizes" in result else None,
        "footnotes": scores.footnotes_of(result),
        "notes": notes_of(result),
    }
    return words.render("card.md.jinja", values)


def _of_member(result: Result, number: int | None) -> Result:
    """Return a record whose config and description name one of several members only."""
    if number is None:
        return result
    members = result["config"]["members"]
    others = [shown_source(str(member["start"])) for i, member in enumerate(members, 1) if i != number]
    about = (
        f"{result['about']} This model is of member {number} of {len(members)}; the others started from "
        f"{' and '.join(f'`{start}`' for start in others)}."
    )
    return {**result, "config": result["config"] | {"members": [members[number - 1]]}, "about": about}


def _head(result: Result, form: Form, base: Mapping[str, Any], rejection: str | None) -> ModelCardData:
    library, task, tag = _KINDS[form]
    title = f"{FORM_TITLES[form].capitalize()} of {result.get('recipe') or result['method']}"
    evaluations = _evaluations(result, form)
    head = ModelCardData(
        language=base.get("language"),
        license=base.get("license"),
        library_name=library,
        pipeline_tag=task,
        tags=[library, task, tag, "transencoder", result["method"], "unsupervised"],
        base_model=_base_models(result, form) or None,
        datasets=_datasets(result) or None,
        model_name=title if evaluations else None,
        eval_results=evaluations or None,
    )
    if rejection:
        head[REJECTION] = rejection
    return head


def _evaluations(result: Result, form: Form) -> list[EvalResult]:
    """Return the model's metrics on the test sets as the hub lists them, as fractions of 1."""
    task, task_name = _TASKS[form]
    tests = result["data"]["tests"]
    return [
        EvalResult(
            task_type=task,
            task_name=task_name,
            dataset_type=_hub_id(tests[name]["source"]) or name,
            dataset_name=name,
            metric_type=f"{row.metric}_cosine" if form == "bi" and row.metric == "spearman" else row.metric,
            metric_name=words.metric_titles([row.metric]).removesuffix(" x 100"),
            metric_value=round(value / 100, 6),
        )
        for row in scores.score_rows(result)
        if len(row.tests) == 1 and (name := row.tests[0]) in tests and (value := row.trained[form]) is not None
    ]


def _datasets(result: Result) -> list[str]:
    """Return the hub ids of the training data; files have none."""
    _, record = results.training_data(result)
    parts = [record, *(record[name] for name in ("extra", "labelled", "documents") if name in record)]
    sources = [source for part in parts for source in part["source"].split(" and ")]
    return list(dict.fromkeys(filter(None, map(_hub_id, sources))))


def _hub_id(source: str) -> str | None:
    """Return the hub id at the start of a record's source, without revision, config and split; None for a file."""
    name = source.partition(" ")[0]
    hub_id = re.split(r"[:@\[]", name)[0]
    is_file = _FILE.fullmatch(name) or Path(name).exists() or Path(hub_id).exists()
    return hub_id if "/" in hub_id and _HUB_ID.fullmatch(hub_id) and not is_file else None


def _base_models(result: Result, form: Form) -> list[str]:
    """Return the hub ids of this form's base models; local folders are left out, as they mean nothing elsewhere."""
    config = result["config"]
    members = config.get("members") or [config]
    starts = [(form == "cross" and member.get("cross_start")) or member.get("start") for member in members]
    hub_ids = [str(start) for start in starts if start and not Path(str(start)).exists()]
    ids = [hub_id(start).partition("@")[0] for start in hub_ids]
    return [name for name in ids if _HUB_ID.fullmatch(name)]
