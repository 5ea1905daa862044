"""The README.md of a saved model: what the hub shows, and what a user must know before relying on it."""

import json
import re
from pathlib import Path

from transencoder.config import Form
from transencoder.models import MINILM, MINILM_HUB_ID
from transencoder.records import FORM_TITLES, Result
from transencoder.report.notes import notes_of
from transencoder.report.tables import markdown_table, size_table
from transencoder.report.text import (
    data_line,
    gain,
    gold_or,
    metric_titles,
    pretraining_lines,
    reproduce_lines,
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

_PIPELINE_TAGS: dict[Form, str] = {"bi": "sentence-similarity", "cross": "text-ranking", "mlm": "fill-mask"}

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")

_USES: dict[Form, str] = {
    "bi": """```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
embeddings = model.encode(["How do I reset it?", "Where is the reset button?"])
similarity = model.similarity(embeddings[0], embeddings[1])  # cosine, -1 to 1
```""",
    "cross": """```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("path/to/this/folder")
scores = model.predict([("How do I reset it?", "Where is the reset button?")])  # sigmoid, 0 to 1
```""",
    "mlm": """```python
from transformers import AutoModelForMaskedLM, AutoTokenizer

model = AutoModelForMaskedLM.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
```""",
}

_QUERY_USE = """```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
query = model.encode_query("How do I reset it?")
documents = model.encode_document(["Hold the red button for ten seconds.", "The reset button is red."])
similarity = model.similarity(query, documents)  # cosine, -1 to 1
```"""

_STRENGTHS: dict[Form, str] = {
    "bi": "It gives each sentence an embedding: use it for search, clustering and finding duplicates.",
    "cross": "It scores two sentences read together: use it to re-rank or to score pairs. "
    "It gives no embeddings and reads every pair anew.",
    "mlm": "It guesses masked words: start a bi-encoder or a cross-encoder from it.",
}


def model_card(result: Result, form: Form) -> str:
    """Write the card of one of the run's models.

    Args:
        result: The run's record.
        form: Which one.

    Returns:
        Markdown with a YAML head, as the hub reads it.
    """
    name = result.get("recipe") or result["method"]
    labels = gold_or("without labels", training_data(result)[1])
    sections = [
        "\n".join(_front_matter(result, form)),
        f"# {FORM_TITLES[form].capitalize()} of {name}",
        f"A {FORM_TITLES[form]}{'' if form == 'mlm' else ' for pairs of sentences'}, trained {labels} by "
        f"transencoder's `{result['method']}`. {_STRENGTHS[form]}",
        f"## Use\n\nPlain {_library(form)} loads it; transencoder is not needed.\n\n{_use(result, form)}",
        "\n".join(["## Method", "", *_method(result, form)]),
        "\n".join(["## Data", "", *_data(result)]),
        "\n".join(["## Metrics", "", *_metrics(result, form)]),
        *(["\n".join(["## Size and speed", "", *size_table(result["sizes"])])] if "sizes" in result else []),
        "\n".join(["## Limits", "", *_limits(result, form)]),
        "\n".join(["## How to make it again", "", *reproduce_lines(result)]),
    ]
    return "\n\n".join(section.rstrip() for section in sections) + "\n"


def base_models(result: Result, form: Form) -> list[str]:
    """Hub ids of the models this form started from; none for local folders, which mean nothing elsewhere."""
    config = result["config"]
    members = [member for member in config.get("members") or [] if isinstance(member, dict)] or [config]
    starts = [(form == "cross" and member.get("cross_start")) or member.get("start") for member in members]
    hub_ids = [str(start) for start in starts if start and not Path(str(start)).exists()]
    ids = [MINILM_HUB_ID if start == MINILM else start.partition("@")[0] for start in hub_ids]
    return [name for name in ids if _HUB_ID.fullmatch(name)]


def _use(result: Result, form: Form) -> str:
    members = result["config"].get("members") or [{}]
    if form == "bi" and members[0].get("document_prompt") is not None:
        return _QUERY_USE
    gives_logits = result["config"].get("cross_loss") == "mse"
    return (
        _USES[form].replace("sigmoid, 0 to 1", "the model's raw output, not bounded") if gives_logits else _USES[form]
    )


def _library(form: Form) -> str:
    return "transformers" if form == "mlm" else "sentence-transformers"


def _front_matter(result: Result, form: Form) -> list[str]:
    """The hub's metadata; JSON strings are YAML strings, so a name with any character is safe."""
    form_tags = {"bi": "feature-extraction", "cross": "cross-encoder", "mlm": "masked-lm"}
    tags = [
        _library(form),
        _PIPELINE_TAGS[form],
        form_tags[form],
        "transencoder",
        result["method"],
        "unsupervised",
    ]
    bases = base_models(result, form)
    return [
        "---",
        f"library_name: {_library(form)}",
        f"pipeline_tag: {_PIPELINE_TAGS[form]}",
        "tags:",
        *(f"- {json.dumps(tag)}" for tag in tags),
        *(["base_model:", *(f"- {json.dumps(base)}" for base in bases)] if bases else []),
        "---",
    ]


def _method(result: Result, form: Form) -> list[str]:
    starts = ", ".join(f"`{start}`" for start in starts_of(result)) or "a model that the record does not name"
    if result["config"].get("from_scratch"):
        starts = "random weights"
    lines = [
        f"The training started from {starts}. {result.get('about', '')}".rstrip(),
        "",
        *pretraining_lines(result),
        f"Settings: {settings_line(result)}.",
    ]
    best = result["best"].get(form)
    if best:
        how = "the last one" if best["dev"] is None else f"the best on dev ({number(best['dev'])})"
        of_cycle = f"of cycle {best['cycle']} of {len(result['cycles'])}, " if has_cycles(result) else ""
        lines += ["", f"This {FORM_TITLES[form]} is {of_cycle}{how}."]
    return lines


def _data(result: Result) -> list[str]:
    (texts, record), dev = training_data(result), result["data"]["dev"]
    settings = {
        True: transductive_line(texts, record),
        False: f"No sentence of the test sets is among the training {texts} by construction (inductive).",
        None: f"Whether sentences of the test sets are among the training {texts} was not recorded.",
    }
    return [
        f"- training {texts}, {gold_or('no labels', record)}: {data_line(record)}",
        f"- dev, labelled, to choose checkpoints: {data_line(dev)}" if dev else "- dev: none",
        *([f"- {settings[record.get('transductive')]}"] if scored_tests(result) else []),
    ]


def _metrics(result: Result, form: Form) -> list[str]:
    own, groups = result["scores"].get(form, {}), tests_by_metric(result)
    metrics = dict.fromkeys([*groups, result["metric"]] if result["dev"] or not groups else groups)
    rows = []
    for metric, names in groups.items():
        start, mark = result["scores"].get(best_start(result, names), {}), metric_mark(metric, metrics)
        rows += [(name + mark, start.get(name), own.get(name)) for name in names]
        if len(names) > 1:
            rows.append((f"average{mark}", mean_over(start, names), mean_over(own, names)))
    if result["dev"]:
        mark = metric_mark(result["metric"], metrics)
        rows.append((f"dev{mark}", result["dev"].get("start"), result["dev"].get(form)))
    if not rows:
        return ["Nothing was measured: the run had neither a test set nor a dev set."]
    cells = [(name, number(before), number(after), gain(after, before)) for name, before, after in rows]
    header = ("", "start (bi-encoder)", f"this {FORM_TITLES[form]}", "gain")
    return [f"{metric_titles(metrics)}.", "", *markdown_table(header, cells)]


def _limits(result: Result, form: Form) -> list[str]:
    scale = {
        "bi": "Cosines rank pairs; they are no probabilities: set a threshold on your own data.",
        "cross": "Scores rank pairs; learned from another model's, they are no calibrated probabilities.",
        "mlm": "The mean over its tokens is a poor embedding: train a bi-encoder from it first.",
    }
    own = [
        "No person graded what it learned from: what its start gets wrong, it may keep.",
        "It was trained for the language and domain of its text; elsewhere, measure before use.",
        *_length_limit(result, form),
        scale[form],
    ]
    return [f"- {text}" for text in [*own, *notes_of(result)]]


def _length_limit(result: Result, form: Form) -> list[str]:
    """What a bi-encoder does not read; its start often reads more."""
    config = result["config"]
    length = (config.get("bi") or config.get("fit") or {}).get("max_length")
    if form != "bi" or length is None:
        return []
    return [
        f"It reads the first {length} tokens of a text, as it did in training. `model.max_seq_length` changes that; "
        "nothing was measured with more."
    ]
