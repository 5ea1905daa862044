"""Wording of numbers, data sets and settings in reports, results pages and model cards; rendering of templates."""

import base64
import hashlib
import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from transencoder import results
from transencoder.errors import ABSENT, number, plural, shown_source, visible
from transencoder.files import make_folder
from transencoder.progress import duration
from transencoder.records import FORM_TITLES, HELD_ROWS, DataRecord, Interval, MiningRecord, Result
from transencoder.report.figures import SHAPES
from transencoder.runs import atomic_write_bytes
from transencoder.settings import Setting, help_of, settings_of

NONE = "none"
"""Text shown for a setting that is not set."""

_METRICS = {
    "spearman": (
        "Spearman's rank correlation x 100",
        "100 means that the model sorts the pairs exactly as people do, 0 that there is no relation",
    ),
    "roc_auc": (
        "area under the ROC curve x 100",
        "how often the model scores a pair that belongs together above one that does not; 50 is chance",
    ),
    "map": (
        "mean average precision x 100",
        "100 means that the right candidates of each query come before all others",
    ),
    "accuracy": ("accuracy x 100", "how many texts get their own class from a classifier on their embeddings"),
}
"""Title of each metric, and what its numbers mean."""
_SHORT_METRICS = {"spearman": "Spearman", "roc_auc": "ROC AUC", "map": "MAP", "mrr_at_10": "MRR@10"}

_SHOWN_FINGERPRINT = 12

_SHOWN_ELSEWHERE = {"output", "pairs", "sentences", "documents", "dev", "tests", "seed"}
_WITHOUT_EFFECT = {
    "reuse_from",
    "data_dir",
    "cache_dir",
    "token",
    "device",
    "attn_implementation",
    "workers",
    "report_to",
}
"""Settings that change no number."""

_ACTS = re.compile(r"<(?=[A-Za-z/!?])|(?<=\])\(")
"""Pattern of the characters that begin HTML, or the address of a link, in Markdown."""


def render(template: str, values: dict[str, Any]) -> str:
    """Render a template; in HTML and Markdown, text that is not `Markup` is escaped and invisible characters shown."""
    return _environment(template.split(".")[-2]).get_template(template).render(**values)


@cache
def _environment(form: str) -> Environment:
    loader = PackageLoader("transencoder.report")
    environment = Environment(
        loader=loader,
        autoescape=form == "html",
        undefined=StrictUndefined,
        finalize={"html": _visible, "md": in_markdown}.get(form),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "data_line": data_line,
        "digest": _digest,
        "direction": _direction,
        "duration": duration,
        "gain_over": gain,
        "gold_or": gold_or,
        "number": number,
        "plural": plural,
        "shell": lambda text: Markup(shlex.quote(_line(text))),
        "quoted": lambda text: Markup(json.dumps(text)),
        "share_of": _share_of,
        "shown": _shown,
        "table": lambda rows, header: Markup("\n".join(markdown_table(header, rows))),
        "ticked": _ticked,
        "title_of": FORM_TITLES.__getitem__,
        "verbatim": lambda text: Markup(_line(text)),
    }
    functions = (
        all_settings,
        changed_settings,
        data_sets,
        environment_of,
        missing_rows_line,
        no_difference,
        pretraining_line,
        reproduce_command,
        settings_line,
        starts_of,
    )
    style, script = (Markup(loader.get_source(environment, name)[0]) for name in ("style.css", "page.js"))
    environment.globals |= {each.__name__: each for each in functions}
    environment.globals |= {"results": results, "style": style, "script": script, "shapes": SHAPES}
    return environment


def _visible(value: Any) -> Any:  # noqa: ANN401 (whatever a template prints)
    return value if isinstance(value, Markup) or not isinstance(value, str) else visible(value)


def in_markdown(value: Any) -> Any:  # noqa: ANN401 (whatever a template prints)
    """Escape a text to one line of Markdown that begins no HTML and no link; `Markup` and numbers stay unchanged."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _ACTS.sub(lambda found: {"<": "&lt;", "(": "&#40;"}[found[0]], _line(value))


def _line(text: str) -> str:
    return visible(re.sub("[\r\n]+", " ", text))


def _shown(value: float, form: str) -> str:
    """Format a number by a Python format specification, such as `+.2f`, with a true minus sign."""
    return f"{value:{form}}".replace("-", "\N{MINUS SIGN}")


def _share_of(count: int, total: int) -> str:
    """Format a share in percent with one decimal; 0 and 100 are shown only where they are exact."""
    share = 100 * count / total
    if 0 < share < 0.1:
        return "below 0.1 %"
    return "above 99.9 %" if 99.9 < share < 100 else f"{share:.1f} %"


def _direction(gain: float, interval: Interval | None) -> str:
    """Return the CSS class of a gain: `up`, `down`, or empty where it is not significant or rounds to zero."""
    low, high = interval or (round(gain, 2), round(gain, 2))
    return "up" if low > 0 else "down" if high < 0 else ""


def _ticked(text: str) -> Markup:
    """Escape a text for HTML, and mark what is between backticks as code, as in Markdown."""
    parts = visible(text).split("`")
    return Markup("").join(
        Markup("<code><bdi>{}</bdi></code>").format(part) if position % 2 else escape(part)
        for position, part in enumerate(parts)
    )


def _digest(content: str) -> str:
    """Return the hash by which the page's content security policy allows a script or style; nothing else may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table whose first column is text and the others numbers; cells are escaped."""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    escaped = [[in_markdown(cell).replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *escaped)]


def write_page(path: Path, text: str) -> Path:
    """Write a page in UTF-8, with `?` for lone surrogates, which it cannot encode; create its folder if needed."""
    make_folder(path.parent)
    atomic_write_bytes(path, text.encode("utf-8", "replace"))
    return path


def gain(value: float | None, start: float | None) -> str:
    """Return the signed difference of two unrounded metrics, with two decimals."""
    if value is None or start is None:
        return ABSENT
    difference = value - start
    return "nan" if math.isnan(difference) else f"{difference:+.2f}"


def no_difference(models: Sequence[str], other: str, data: str) -> str:
    """Return the phrase for a gain whose interval includes 0: `no significant difference between A and B on DATA`."""
    *first, last = models
    names = f"{', '.join(first)} or {last}" if first else last
    return f"no significant difference between {names} and {other} on {data}"


def metric_titles(metrics: Iterable[str]) -> str:
    """Return the titles of a table's metrics; where there are several, each with the mark of its rows."""
    metrics = list(dict.fromkeys(metrics))
    return " / ".join(_METRICS.get(each, (each,))[0] + results.metric_mark(each, metrics) for each in metrics)


def metrics_explained(metrics: Sequence[str]) -> str:
    """Explain what the numbers mean, in one sentence per metric."""
    said = [
        f"{metric_titles([each])}{results.metric_mark(each, metrics)}: {_METRICS[each][1]}"
        for each in metrics
        if each in _METRICS
    ]
    return " ".join(f"{each[0].upper()}{each[1:]}." for each in said)


def short_metric(metric: str) -> str:
    """Return a short title of a metric, for the axis of a plot."""
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
    """Yield the role of each data set of a run, and a short description of it."""
    texts, record = results.training_data(result)
    yield f"training {texts}", f"{data_line(record)}, {gold_or(record, 'unlabelled')}"
    dev, tests = result["data"]["dev"], result["data"]["tests"]
    yield "dev", data_line(dev) if dev else NONE
    if not tests:
        yield "test", NONE
    for name, record in tests.items():
        yield f"test {name}", data_line(record)


def missing_rows_line(record: DataRecord) -> str:
    """Say how many of the paper's training pairs are not available; empty where none is missing."""
    missing = record.get("missing_rows")
    return f"{missing:,} of the paper's training pairs are missing: they are not on the hub." if missing else ""


def gold_or(record: DataRecord, without: str) -> str:
    """Say how many gold labels the training data has; where it has none, return `without`."""
    return f"with {plural(record['gold_rows'], 'gold label')}" if "gold_rows" in record else without


def mining_text(record: MiningRecord) -> str:
    """Describe the mining in Markdown: its input, the pairs of each source, and the base model's scores of them."""
    return render("mining.md.jinja", {"mined": record}).rstrip("\n")


def starts_of(result: Result) -> list[str]:
    """Return the base models of the run's bi-encoders, as far as the config names them."""
    starts = [member.get("start") for member in result["config"].get("members") or [result["config"]]]
    return [shown_source(str(start)) for start in starts if start]


def pretraining_line(result: Result) -> str:
    """Summarise the masked language modelling; empty where there was none."""
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


class Change(NamedTuple):
    """A setting that differs from the method's default."""

    name: str
    """Full name, such as `bi.epochs`."""
    value: str
    default: str
    about: str
    """Reason why it was chosen for the user or, where the user set it, the docstring of the field."""


def changed_settings(result: Result) -> list[Change]:
    """Return the settings of a run that differ from its method's defaults and may change a number."""
    from transencoder.methods import METHODS

    config_class = METHODS.get(result["method"])
    values = {name: value for name, value in result["config"].items() if name != "pretraining" or name in result}
    if config_class is None:
        return []
    reasons = {each["setting"]: f"Chosen for you: {each['because']}." for each in result.get("choices", [])}
    found = _changes(values, settings_of(config_class), "")
    return [each._replace(about=reasons.get(each.name, each.about)) for each in found]


def _changes(values: Mapping[str, Any], settings: Mapping[str, Setting], prefix: str) -> Iterator[Change]:
    for name, setting in settings.items():
        if name not in values or name in _WITHOUT_EFFECT or (not prefix and name in _SHOWN_ELSEWHERE):
            continue
        value = values[name]
        if setting.is_nested and value is not None:
            tables = value if setting.is_list else [value]
            for position, table in enumerate(tables, 1):
                place = f"{name}[{position}]" if len(tables) > 1 else name
                yield from _changes(table, setting.inner, f"{prefix}{place}.")
        elif in_full(value) != in_full(setting.default):
            yield Change(f"{prefix}{name}", in_full(value), in_full(setting.default), help_of(setting))


def settings_line(result: Result) -> str:
    """List the settings that differ from the defaults, on one line; result.json has all settings."""
    return ", ".join([*(f"{each.name} {each.value}" for each in changed_settings(result)), f"seed {result['seed']}"])


def all_settings(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the full name, such as `bi.epochs`, and the value of every setting of a run."""
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
    """Format a value as in a recipe or a flag."""
    if isinstance(value, list | tuple):
        return ", ".join(map(in_full, value)) or NONE
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return NONE
    return shown_source(value) if isinstance(value, str) else f"{value}"


def reproduce_command(result: Result) -> str:
    """Return the command that reproduces the run; FILE stands for rows that were given in Python."""
    held = [name for name, value in result["config"].items() if isinstance(value, str) and value.endswith(HELD_ROWS)]
    files = "".join(f" --set {name}=FILE" for name in held)
    own = f"{shown_source(str(result['config'].get('output', '.')))}/recipe.toml"
    return f"transencoder recipes run {shlex.quote(result.get('recipe') or own)} --output NEW_FOLDER{files}"


def environment_of(result: Result) -> list[tuple[str, str]]:
    """Return the names and values of the run's environment: commit, device, threads, Python and package versions."""
    environment = result["environment"]
    parts = [("Commit", short_commit(environment.get("commit")))]
    parts += [(name, environment.get(name.lower(), "unknown")) for name in ("Device", "Threads", "Python")]  # type: ignore[misc]
    return [(name, str(value)) for name, value in parts] + list(environment.get("versions", {}).items())


def short_commit(commit: str | None) -> str:
    """Shorten each commit to its first ten digits, and keep its `-dirty` mark."""
    return " + ".join(part[:10] + part[40:] for part in commit.split(" + ")) if commit else "unknown"
