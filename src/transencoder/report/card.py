"""The README.md of a saved model: what the hub shows, and what a user must know before relying on it."""

import re
from pathlib import Path

from transencoder.configs import Form
from transencoder.models import MINILM, MINILM_HUB_ID
from transencoder.records import FORM_TITLES, Result
from transencoder.report.notes import notes_of
from transencoder.report.rendering import render
from transencoder.report.scores import size_cells
from transencoder.report.words import (
    gain,
    metric_titles,
    pretraining_line,
    reproduce_command,
    settings_line,
    starts_of,
    transductive_line,
)
from transencoder.results import (
    best_start,
    has_cycles,
    mean_over,
    metric_mark,
    scored_tests,
    tests_by_metric,
    training_data,
)
from transencoder.wording import number

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def model_card(result: Result, form: Form) -> str:
    """Write the card of one of the run's models.

    Args:
        result: The run's record.
        form: Which one.

    Returns:
        Markdown with a YAML head, as the hub reads it.
    """
    config, (kind, record) = result["config"], training_data(result)
    first_member = (config.get("members") or [{}])[0]
    metrics, rows = _metrics(result, form)
    values = {
        "result": result,
        "form": form,
        "title": FORM_TITLES[form],
        "library": "transformers" if form == "mlm" else "sentence-transformers",
        "base_models": _base_models(result, form),
        "has_prompts": form == "bi" and first_member.get("document_prompt") is not None,
        "gives_logits": config.get("cross_loss") == "mse",
        "starts": starts_of(result),
        "pretraining": pretraining_line(result),
        "settings": settings_line(result),
        "has_cycles": has_cycles(result),
        "kind": kind,
        "record": record,
        "is_tested": bool(scored_tests(result)),
        "transductive": transductive_line(kind, record),
        "metrics": metrics,
        "rows": rows,
        "sizes": size_cells(result["sizes"]) if "sizes" in result else None,
        "max_length": (config.get("bi") or config.get("fit") or {}).get("max_length"),
        "notes": notes_of(result),
        **reproduction(result),
    }
    return render("card.md.jinja", values)


def reproduction(result: Result) -> dict[str, object]:
    """Return what the templates say of how to make a run again: `command`, `environment`, `commit`."""
    environment = result["environment"]
    commit = environment.get("commit")
    return {
        "command": reproduce_command(result),
        "environment": environment,
        "commit": f"`{commit}`" if commit else "unknown",
    }


def _base_models(result: Result, form: Form) -> list[str]:
    """Return hub ids of the models this form started from; none for local folders, which mean nothing elsewhere."""
    config = result["config"]
    members = [member for member in config.get("members") or [] if isinstance(member, dict)] or [config]
    starts = [(form == "cross" and member.get("cross_start")) or member.get("start") for member in members]
    hub_ids = [str(start) for start in starts if start and not Path(str(start)).exists()]
    ids = [MINILM_HUB_ID if start == MINILM else start.partition("@")[0] for start in hub_ids]
    return [name for name in ids if _HUB_ID.fullmatch(name)]


def _metrics(result: Result, form: Form) -> tuple[str, list[tuple[str, str, str, str]]]:
    """Return what is measured, and rows of tests, their average and dev: base model, this model, gain."""
    own, groups, dev = result["scores"].get(form, {}), tests_by_metric(result), result["dev"]
    metrics = dict.fromkeys([*groups, result["metric"]] if dev or not groups else groups)
    rows = []
    for metric, names in groups.items():
        start, mark = result["scores"].get(best_start(result, names), {}), metric_mark(metric, metrics)
        rows += [(name + mark, start.get(name), own.get(name)) for name in names]
        if len(names) > 1:
            rows.append((f"average{mark}", mean_over(start, names), mean_over(own, names)))
    if dev:
        rows.append((f"dev{metric_mark(result['metric'], metrics)}", dev.get("start"), dev.get(form)))
    cells = [(name, number(before), number(after), gain(after, before)) for name, before, after in rows]
    return metric_titles(metrics), cells
