"""How numbers, sources and settings are worded, in the report, the results page and the model card."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transencoder.errors import InputError
from transencoder.records import DataRecord, Result
from transencoder.results import metric_mark
from transencoder.runs import atomic_write_text
from transencoder.wording import ABSENT, plural, shown_source

NONE = "none"
"""A setting that is not set."""

_METRIC_TITLES = {
    "spearman": "Spearman's rank correlation x 100",
    "roc_auc": "area under the ROC curve x 100",
    "map": "mean average precision x 100",
    "accuracy": "accuracy x 100",
}

_SHORT_METRICS = {"spearman": "Spearman", "roc_auc": "ROC AUC", "map": "MAP", "mrr_at_10": "MRR@10"}

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
    "labelled",
    "precision",
    "head",
    "temperature",
    "projector",
    "projection",
    "two_step",
    "schedule",
    "student",
    "prune",
    "negatives",
    "threshold",
    "noise",
    "mask",
    "detection",
    "generator",
    "complement",
    "teacher",
    "queue",
    "view_kind",
    "comparison",
    "objective",
    "momentum",
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
_OWN_RECIPE = "`recipe.toml` has every default written out; its paths start where the run was made."


def gain(value: float | None, start: float | None) -> str:
    """The signed difference of two unrounded metrics, with two decimals."""
    if value is None or start is None:
        return ABSENT
    difference = value - start
    return "nan" if math.isnan(difference) else f"{difference:+.2f}"


def cannot_be_told(models: Sequence[str], other: str, data: str) -> str:
    """What a gain says whose interval holds 0: `whether A and B are better than C cannot be told from these tests`."""
    *first, last = models
    names = f"{', '.join(first)} and {last}" if first else last
    return f"whether {names} {'are' if first else 'is'} better than {other} cannot be told from {data}"


def metric_title(metric: str) -> str:
    """What the numbers are."""
    return _METRIC_TITLES.get(metric, metric)


def short_metric(metric: str) -> str:
    """The same in two or three words, for the axis of a plot."""
    return f"{_SHORT_METRICS.get(metric, metric)} × 100"


def metric_titles(metrics: Iterable[str]) -> str:
    """What the numbers of a table are, with the word that marks its rows where there are several metrics."""
    metrics = list(dict.fromkeys(metrics))
    return " / ".join(metric_title(metric) + metric_mark(metric, metrics) for metric in metrics)


def data_line(record: DataRecord) -> str:
    """A data set in a few words: rows, source, fingerprint, and how models are measured on it."""
    fingerprint = record["fingerprint"].removeprefix("sha256:")[:_SHOWN_FINGERPRINT]
    measured = f", measured by {record['metric']}" if "metric" in record else ""
    others = [record[part] for part in ("extra", "labelled") if part in record]
    own = record["rows"] - sum(other["rows"] for other in others)
    rows = [_rows(record, own), *(_rows(other, other["rows"]) for other in others)]
    classes = f" of the classes {', '.join(record['classes'])}" if "classes" in record else ""
    return f"{' and '.join(rows)}{classes}, fingerprint `{fingerprint}`{measured}"


def transductive_line(texts: str, record: DataRecord) -> str:
    """That the training text has sentences of the test sets: in how many rows, where that was counted."""
    which = f"{record['transductive_rows']:,} of the {record['rows']:,}" if "transductive_rows" in record else "The"
    return f"{which} training {texts} contain sentences of the test sets, without their scores (transductive)."


def gold_or(without: str, record: DataRecord) -> str:
    """How many gold labels a training text has; where there are none, what is given."""
    return f"with {plural(record['gold_rows'], 'gold label')}" if "gold_rows" in record else without


def _rows(record: DataRecord, n_rows: int) -> str:
    source = f"`{shown_source(record['source'])}`"
    drawn = f" drawn from the {record['drawn_from']:,}" if "drawn_from" in record else ""
    if "mined" in record:
        n_sentences = record["mined"]["sentences"]["rows"]
        with_documents = ""
        if "documents" in record:
            n_documents, documents = record["mined"]["documents"]["rows"], shown_source(record["documents"]["source"])
            with_documents = f" and the {n_documents:,} documents of `{documents}`"
        return f"{n_rows:,} pairs mined from the {n_sentences:,} sentences{drawn} of {source}{with_documents}"
    return f"{n_rows:,} rows{drawn} of {source}"


def settings_line(result: Result) -> str:
    """The settings that matter most, in a line; all of them are in result.json."""
    config = {name: value for name, value in result["config"].items() if name != "pretraining" or name in result}
    settings = [
        f"{name} {_shown(value)}" for name, value in _leaves(config, "") if value is not None and _matters(name)
    ]
    return ", ".join([*settings, f"seed {result['seed']}"])


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
    line = f"{who}: {plural(record['steps'], 'step')}, cross-entropy {first:.2f} at first, {last:.2f} at the end"
    if "held_out" in record:
        before, after = record["held_out"]
        line += f"; on text that was held out {before:.2f} before, {after:.2f} after"
    return [f"{line}.", ""]


def reproduce_command(result: Result) -> str:
    """What makes the run again."""
    own = f"{shown_source(str(result['config'].get('output', '.')))}/recipe.toml"
    return f"transencoder recipes run {result.get('recipe') or own} --output NEW_FOLDER"


def made_line(result: Result) -> str:
    """What the run was made with."""
    environment = result["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in environment.get("versions", {}).items())
    threads = f", {environment['threads']} threads" if "threads" in environment else ""
    commit, device = environment.get("commit"), environment.get("device", "an unnamed device")
    own = "" if result.get("recipe") else f"{_OWN_RECIPE} "
    return f"{own}Made at commit {f'`{commit}`' if commit else 'unknown'}, on {device}{threads}" + (
        f", with {versions}." if versions else "."
    )


def environment_of(result: Result) -> list[tuple[str, str]]:
    """What the run was made with, each part and its value."""
    environment = result["environment"]
    parts = [("Commit", short_commit(environment.get("commit")))]
    parts += [(name, environment.get(name.lower(), "unknown")) for name in ("Device", "Threads", "Python")]  # type: ignore[misc]
    return [(name, str(value)) for name, value in parts] + list(environment.get("versions", {}).items())


def short_commit(commit: str | None) -> str:
    """Each commit by its first ten digits."""
    return " + ".join(part[:10] + part[40:] for part in commit.split(" + ")) if commit else "unknown"


def reproduce_lines(result: Result) -> list[str]:
    """Commands and circumstances to make the run again, as Markdown."""
    return ["```bash", reproduce_command(result), "```", "", made_line(result)]


def settings_of(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every setting of a run by its full name, `bi.epochs`, and its value."""
    return [(name, _in_full(value)) for name, value in _leaves(dict(config), "")]


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


def _in_full(value: Any) -> str:  # noqa: ANN401 (JSON)
    """A value as a recipe or a flag has it."""
    if isinstance(value, list):
        return ", ".join(map(_in_full, value)) or NONE
    if isinstance(value, bool):
        return str(value).lower()
    return NONE if value is None else _shown(value)


def _shown(value: Any) -> str:  # noqa: ANN401 (JSON)
    return shown_source(value) if isinstance(value, str) else f"{value}"


def write_page(path: Path, text: str) -> Path:
    """Write a page; its folder is made.

    Raises:
        InputError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(path, text)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}). Choose another --output.") from error
    return path
