"""How numbers, sources, settings and notes are worded, in the report, the results page and the model card."""

import math
from collections.abc import Iterable, Iterator, Sized
from pathlib import PurePath
from typing import Any

from transencoder.config import Form
from transencoder.report.result import (
    FORM_TITLES,
    DataRecord,
    Result,
    best_start,
    forms_of,
    has_cycles,
    mean_over,
    tests_by_metric,
    training_data,
)

ABSENT = "–"

_METRIC_TITLES = {
    "spearman": "Spearman's rank correlation x 100",
    "roc_auc": "area under the ROC curve x 100",
    "map": "mean average precision x 100",
}

_SETTING_WORDS = (
    "start",
    "cycle",
    "epoch",
    "batch",
    "learning_rate",
    "max_length",
    "policy",
    "pooling",
    "init",
    "form",
    "loss",
    "share",
    "alternate",
    "weight",
    "ensemble",
    "test_length",
    "lora",
    "n_pairs",
    "extra",
    "precision",
    "head",
    "temperature",
    "projector",
    "negatives",
    "threshold",
    "noise",
    "mask",
    "detection",
    "generator",
    "complement",
    "document_words",
    "anchors",
    "positives",
    "relation",
    "span",
    "drophead",
    "dropout",
    "optimizer",
    "scratch",
    "layers",
    "width",
    "vocabulary",
)
_SHOWN_FINGERPRINT = 12


def number(value: float | None) -> str:
    """A metric with two decimals; a dash where there is none."""
    if value is None:
        return ABSENT
    return "nan" if math.isnan(value) else f"{value:.2f}"


def gain(value: float | None, start: float | None) -> str:
    """The signed difference of two unrounded metrics, with two decimals."""
    if value is None or start is None:
        return ABSENT
    difference = value - start
    return "nan" if math.isnan(difference) else f"{difference:+.2f}"


def metric_title(metric: str) -> str:
    """What the numbers are."""
    return _METRIC_TITLES.get(metric, metric)


def metric_titles(metrics: Iterable[str]) -> str:
    """What the numbers of a table are, with the word that marks its rows where there are several metrics."""
    metrics = list(dict.fromkeys(metrics))
    return " / ".join(metric_title(metric) + metric_mark(metric, metrics) for metric in metrics)


def metric_mark(metric: str, metrics: Sized) -> str:
    """What tells a set of this metric from others where there are several metrics: ` (map)`."""
    return f" ({metric})" if len(metrics) > 1 else ""


def shown_source(source: str) -> str:
    """A data set's or model's id as it is; of a path outside the current folder only the last two parts."""
    path = PurePath(source)
    if path.is_absolute() or ".." in path.parts or len(path.parts) > 3:
        return "/".join(part for part in path.parts[-2:] if part not in (path.anchor, ".."))
    return source


def data_line(record: DataRecord) -> str:
    """A data set in a few words: rows, source, fingerprint, and how models are measured on it."""
    fingerprint = record["fingerprint"].removeprefix("sha256:")[:_SHOWN_FINGERPRINT]
    measured = f", measured by {record['metric']}" if "metric" in record else ""
    extra = record.get("extra")
    if extra is None:
        return f"{_rows(record, record['rows'])}, fingerprint `{fingerprint}`{measured}"
    own = _rows(record, record["rows"] - extra["rows"])
    return f"{own} and {_rows(extra, extra['rows'])}, fingerprint `{fingerprint}`"


def _rows(record: DataRecord, n_rows: int) -> str:
    drawn = f" drawn from the {record['drawn_from']:,}" if "drawn_from" in record else ""
    return f"{n_rows:,} rows{drawn} of `{shown_source(record['source'])}`"


def settings_line(result: Result) -> str:
    """The settings that matter most, in a line; all of them are in result.json."""
    config = {name: value for name, value in result["config"].items() if name != "pretraining" or name in result}
    settings = [
        f"{name} {_shown(value)}" for name, value in _leaves(config, "") if value is not None and _matters(name)
    ]
    return ", ".join([*settings, f"seed {result['seed']}"])


def notes_of(result: Result) -> list[str]:
    """What to know before trusting the numbers: what follows from the record, then the run's own notes."""
    return [
        *_member_notes(result),
        *_data_notes(result),
        *_selection_notes(result),
        *_start_notes(result),
        *_order_notes(result),
        *_worse_notes(result),
        *result["notes"],
    ]


def starts_of(result: Result) -> list[str]:
    """The models the run's bi-encoders started from, as far as the config says."""
    members = result["config"].get("members") or []
    starts = [member.get("start") for member in members if isinstance(member, dict)] or [result["config"].get("start")]
    return [shown_source(str(start)) for start in starts if start]


def pretraining_lines(result: Result) -> list[str]:
    """What masked words taught, where there were some, and an empty line."""
    record = result.get("pretraining")
    if record is None:
        return []
    first, last = record["losses"][0][1], record["losses"][-1][1]
    who = "It learned to guess masked words"
    if "cross" in result["best"]:
        who = "Before that, the cross-encoder's start learned to guess masked words of the pairs"
    line = f"{who}: {_counted(record['steps'], 'step')}, cross-entropy {first:.2f} at first, {last:.2f} at the end"
    if "held_out" in record:
        before, after = record["held_out"]
        line += f"; on text that was held out {before:.2f} before, {after:.2f} after"
    return [f"{line}.", ""]


def reproduce_lines(result: Result) -> list[str]:
    """Commands and circumstances to make the run again."""
    environment = result["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in environment.get("versions", {}).items())
    threads = f", {environment['threads']} threads" if "threads" in environment else ""
    commit, device = environment.get("commit"), environment.get("device", "an unnamed device")
    recipe = result.get("recipe")
    own = f"{shown_source(str(result['config'].get('output', '.')))}/recipe.toml"
    return [
        "```bash",
        f"transencoder recipes run {recipe or own} --output NEW_FOLDER",
        "```",
        "",
        *(
            []
            if recipe
            else [
                "`recipe.toml` has every default written out; its paths start where the run was made.",
                "",
            ]
        ),
        f"Made at commit {f'`{commit}`' if commit else 'unknown'}, on {device}{threads}"
        + (f", with {versions}." if versions else "."),
    ]


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
        yield f"The training {texts} contain the test sentences, without their scores (transductive)."
    if excluded := record.get("excluded_rows"):
        left_out = f"{texts} that hold a sentence of a test set" if texts == "pairs" else "sentences of the test sets"
        yield f"{excluded:,} {left_out} were left out of training (inductive)."
    if bad := record.get("bad_rows"):
        files = "bad-rows.tsv" + (" or bad-extra-rows.tsv" if result["config"].get("extra_pairs") else "")
        yield f"{bad:,} bad rows of the training {texts} were skipped; {files} in the run folder has them."
    if short := record.get("short_rows"):
        yield f"{_counted(short, 'document')} of too few words were left out."
    if missing := record.get("missing_rows"):
        yield f"{missing:,} of the paper's training pairs are missing: they are not on the hub."


def _selection_notes(result: Result) -> Iterator[str]:
    if "mlm" in result["best"]:
        yield "The last weights were kept; tests take the mean over a text's tokens, of the start too."
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
        for where, before, after in _comparisons(result, form):
            if before is not None and after is not None and round(after, 2) < round(before, 2):
                yield (
                    f"The {title} is worse than its start {where} ({number(after)} against {number(before)}): "
                    "do not use it in the start's place."
                )


def _comparisons(result: Result, form: Form) -> Iterator[tuple[str, float | None, float | None]]:
    """Where, the start's metric, the form's: once for each metric of the tests."""
    groups, scores, dev = tests_by_metric(result), result["scores"], result["dev"] or {}
    for metric, names in groups.items():
        start = scores.get(best_start(result, names), {})
        where = f"on the tests{metric_mark(metric, groups)}"
        yield where, mean_over(start, names), mean_over(scores.get(form, {}), names)
    if not groups:
        yield "on dev", dev.get("start"), dev.get(form)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 (JSON)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for position, inner in enumerate(value, start=1):
            yield from _leaves(inner, name if len(value) == 1 else f"{name}[{position}]")
    else:
        yield name, value


def _matters(name: str) -> bool:
    return any(word in name.rsplit(".", 1)[-1] for word in _SETTING_WORDS)


def _shown(value: Any) -> str:  # noqa: ANN401 (JSON)
    return shown_source(value) if isinstance(value, str) else f"{value}"
