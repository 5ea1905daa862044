"""How numbers, data sets and settings are worded in reports, results pages and model cards."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transencoder.errors import InputError
from transencoder.records import DataRecord, Result
from transencoder.results import metric_mark, training_data
from transencoder.runs import atomic_write_text
from transencoder.settings import settings_of
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

_SHOWN_FINGERPRINT = 12

_SHOWN_ELSEWHERE = {"output", "pairs", "sentences", "documents", "dev", "tests", "seed"}
_NO_OUTCOME = {"reuse_from", "data_dir", "cache_dir", "token", "device", "workers", "report_to"}
"""Settings that change no number."""


def gain(value: float | None, start: float | None) -> str:
    """Return the signed difference of two unrounded metrics, with two decimals."""
    if value is None or start is None:
        return ABSENT
    difference = value - start
    return "nan" if math.isnan(difference) else f"{difference:+.2f}"


def no_difference(models: Sequence[str], other: str, data: str) -> str:
    """Say that a gain's interval includes 0: `no significant difference between A and B on these 100 pairs`."""
    *first, last = models
    names = f"{', '.join(first)} and {last}" if first else last
    return f"no significant difference between {names} and {other} on {data}"


def metric_title(metric: str) -> str:
    """Say what the numbers are."""
    return _METRIC_TITLES.get(metric, metric)


def metric_titles(metrics: Iterable[str]) -> str:
    """Say what the numbers of a table are, with the word that marks its rows where there are several metrics."""
    metrics = list(dict.fromkeys(metrics))
    return " / ".join(metric_title(metric) + metric_mark(metric, metrics) for metric in metrics)


def short_metric(metric: str) -> str:
    """Return a metric in two or three words, for the axis of a plot."""
    return f"{_SHORT_METRICS.get(metric, metric)} × 100"


def data_line(record: DataRecord) -> str:
    """Describe a data set in a few words: rows, source, fingerprint, and how models are measured on it."""
    fingerprint = record["fingerprint"].removeprefix("sha256:")[:_SHOWN_FINGERPRINT]
    measured = f", measured by {record['metric']}" if "metric" in record else ""
    others = [record[part] for part in ("extra", "labelled") if part in record]
    own = record["rows"] - sum(other["rows"] for other in others)
    rows = [_rows(record, own), *(_rows(other, other["rows"]) for other in others)]
    classes = f" of the classes {', '.join(record['classes'])}" if "classes" in record else ""
    return f"{' and '.join(rows)}{classes}, fingerprint `{fingerprint}`{measured}"


def _rows(record: DataRecord, n_rows: int) -> str:
    source = f"`{shown_source(record['source'])}`"
    drawn = f" drawn from the {record['drawn_from']:,}" if "drawn_from" in record else ""
    if "mined" not in record:
        return f"{n_rows:,} rows{drawn} of {source}"
    line = f"{n_rows:,} pairs mined from the {record['mined']['sentences']['rows']:,} sentences{drawn} of {source}"
    if "documents" in record:
        documents = shown_source(record["documents"]["source"])
        line += f" and the {record['mined']['documents']['rows']:,} documents of `{documents}`"
    return line


def data_sets(result: Result) -> Iterator[tuple[str, str]]:
    """Return each data set of a run, and it in a few words."""
    texts, record = training_data(result)
    yield f"training {texts}", f"{data_line(record)}, {gold_or('unlabelled', record)}"
    dev, tests = result["data"]["dev"], result["data"]["tests"]
    yield "dev", data_line(dev) if dev else NONE
    if not tests:
        yield "test", NONE
    for name, record in tests.items():
        yield f"test {name}", data_line(record)


def transductive_line(texts: str, record: DataRecord) -> str:
    """Say that the training text has sentences of the test sets: in how many rows, where that was counted."""
    which = f"{record['transductive_rows']:,} of the {record['rows']:,}" if "transductive_rows" in record else "The"
    return f"{which} training {texts} contain sentences of the test sets, without their scores (transductive)."


def missing_rows_line(record: DataRecord) -> str:
    """Say how much of the paper's training text could not be had; empty where nothing is missing."""
    missing = record.get("missing_rows")
    return f"{missing:,} of the paper's training pairs are missing: they are not on the hub." if missing else ""


def gold_or(without: str, record: DataRecord) -> str:
    """Say how many gold labels a training text has; where there are none, what is given."""
    return f"with {plural(record['gold_rows'], 'gold label')}" if "gold_rows" in record else without


def starts_of(result: Result) -> list[str]:
    """Return the models that the run's bi-encoders started from, as far as the config says."""
    members = result["config"].get("members") or []
    starts = [member.get("start") for member in members if isinstance(member, dict)] or [result["config"].get("start")]
    return [shown_source(str(start)) for start in starts if start]


def pretraining_line(result: Result) -> str:
    """Say how masked language modelling went; empty where there was none."""
    record = result.get("pretraining")
    if record is None:
        return ""
    first, last = record["losses"][0][1], record["losses"][-1][1]
    who = "It learned to guess masked words"
    if "cross" in result["best"]:
        who = "Before that, the cross-encoder's base model learned to guess masked words of the pairs"
    line = f"{who}: {plural(record['steps'], 'step')}, cross-entropy {first:.2f} at first, {last:.2f} at the end"
    if "held_out" in record:
        before, after = record["held_out"]
        line += f"; on held-out text {before:.2f} before, {after:.2f} after"
    return f"{line}."


@dataclass(frozen=True)
class Change:
    """A setting that differs from the method's default."""

    name: str
    """In full, `bi.epochs`."""
    value: str
    default: str
    about: str
    """The docstring of the field."""


def changed_settings(result: Result) -> list[Change]:
    """Return the settings of a run that differ from its method's defaults and may change a number."""
    from transencoder.methods import METHODS

    config_class = METHODS.get(result["method"])
    values = {name: value for name, value in result["config"].items() if name != "pretraining" or name in result}
    return [] if config_class is None else list(_changes(values, config_class, None, ""))


def _changes(values: Mapping[str, Any], config_class: type, defaults: object, prefix: str) -> Iterator[Change]:
    """Compare nested values with an instance that holds the defaults; None: with those of the class."""
    for name, setting in settings_of(config_class).items():
        value, default = values.get(name), getattr(defaults, name, setting.default)
        if name not in values or name in _NO_OUTCOME or (not prefix and name in _SHOWN_ELSEWHERE):
            continue
        if setting.is_nested and value is not None:
            tables = value if setting.is_list else [value]
            own_defaults = None if setting.is_list else default
            for position, table in enumerate(tables, 1):
                place = f"{name}[{position}]" if len(tables) > 1 else name
                kind = setting.kind if own_defaults is None else type(own_defaults)
                yield from _changes(table, kind, own_defaults, f"{prefix}{place}.")
        elif in_full(value) != in_full(default):
            yield Change(f"{prefix}{name}", in_full(value), in_full(default), setting.help)


def settings_line(result: Result) -> str:
    """List the settings that differ from the defaults, in a line; all of them are in result.json."""
    return ", ".join([*(f"{each.name} {each.value}" for each in changed_settings(result)), f"seed {result['seed']}"])


def all_settings(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return every setting of a run by its full name, `bi.epochs`, and its value."""
    return [(name, in_full(value)) for name, value in _leaves(dict(config), "")]


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 (JSON)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for position, inner in enumerate(value, start=1):
            yield from _leaves(inner, name if len(value) == 1 else f"{name}[{position}]")
    else:
        yield name, value


def in_full(value: Any) -> str:  # noqa: ANN401 (JSON)
    """Return a value as a recipe or a flag has it."""
    if isinstance(value, list | tuple):
        return ", ".join(map(in_full, value)) or NONE
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return NONE
    return shown_source(value) if isinstance(value, str) else f"{value}"


def reproduce_command(result: Result) -> str:
    """Return the command that makes the run again."""
    own = f"{shown_source(str(result['config'].get('output', '.')))}/recipe.toml"
    return f"transencoder recipes run {result.get('recipe') or own} --output NEW_FOLDER"


def environment_of(result: Result) -> list[tuple[str, str]]:
    """Return what the run was made with, each part and its value."""
    environment = result["environment"]
    parts = [("Commit", short_commit(environment.get("commit")))]
    parts += [(name, environment.get(name.lower(), "unknown")) for name in ("Device", "Threads", "Python")]  # type: ignore[misc]
    return [(name, str(value)) for name, value in parts] + list(environment.get("versions", {}).items())


def short_commit(commit: str | None) -> str:
    """Return each commit by its first ten digits."""
    return " + ".join(part[:10] + part[40:] for part in commit.split(" + ")) if commit else "unknown"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table whose first column is text and the others numbers."""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *escaped)]


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
