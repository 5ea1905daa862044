"""Students and their teacher: STS average against parameters, and against sentences per second in five runtimes.

    python benchmarks/sizes.py teacher=minilm mse-3=runs/embedding-mse/twin-3-seed-1 ...     # needs the extra `export`

A name may be given several times, for several seeds: its score is then their mean, and the size and speed are those of
the first model. Scores are read from the run's record; a model that is not a run is scored now. Writes
results/sizes.json, sizes.md and sizes.png.
"""

import argparse
import json
import os
import statistics
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from sentence_transformers import SentenceTransformer

from transencoder.devices import uses_bf16
from transencoder.encoders import count_parameters, encoding_speeds, fetch
from transencoder.evaluation import evaluate_tasks
from transencoder.export import ExportedEncoder, export_onnx
from transencoder.report.words import markdown_table
from transencoder.results import mean_over, read_result
from transencoder.runs.log import source_commit
from transencoder.scorers import BiScorer
from transencoder.tasks import SUITES, load

RUNTIMES = ("fp32", "bf16", "onnxruntime", "openvino", "openvino bf16")
REPEATS = 3

_LINE = 0.7
"""Height of a name in the plot, in points of STS."""


def main() -> None:
    """Measure each model; write record, table and plot."""
    options = _options()
    torch.set_num_threads(options.threads)
    sentences = list(dict.fromkeys(load("stsb", "test")["sentence1"][:]))[: options.sentences]
    groups: dict[str, list[str]] = {}
    for each in options.models:
        name, _, model = each.partition("=")
        groups.setdefault(name, []).append(model)
    folders = {name: fetch(models[0], form="bi") for name, models in groups.items()}
    speeds = _speeds(folders, sentences, options.threads)
    record = {
        name: {
            "models": models,
            "sts": [_sts(model) for model in models],
            "parameters": count_parameters(folders[name]),
            "megabytes": sum(file.stat().st_size for file in folders[name].rglob("*.safetensors")) / 1e6,
            "sentences_a_second": speeds[name],
        }
        for name, models in groups.items()
    }
    about: dict[str, Any] = {
        "threads": options.threads,
        "sentences": len(sentences),
        "has_bf16": uses_bf16("cpu", "auto"),
        "commit": source_commit(),
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "sizes.json").write_text(json.dumps({"about": about, "models": record}, indent=1) + "\n")
    page = f"{table(record, about)}\n![STS average against parameters and against speed](sizes.png)\n"
    (options.results / "sizes.md").write_text(page)
    plot(record, options.results / "sizes.png")
    print(page)


def _sts(model: str) -> float:
    """Return the average of the seven STS sets."""
    tests = SUITES["sts"]
    if (Path(model) / "result.json").exists():
        found = mean_over(read_result(model)["scores"]["bi"], tests)
        if found is not None:
            return found
    scorer = BiScorer(SentenceTransformer(str(fetch(model, form="bi")), device="cpu"), precision="fp32")
    return statistics.mean(evaluate_tasks(scorer, "sts").values())


def _speeds(folders: dict[str, Path], sentences: list[str], threads: int) -> dict[str, dict[str, float]]:
    """Return sentences per second by model and runtime; the models of a runtime are measured in turns."""
    found: dict[str, dict[str, float]] = {name: {} for name in folders}
    models = {name: SentenceTransformer(str(folder), device="cpu") for name, folder in folders.items()}
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{i}.onnx" for i, name in enumerate(models)}
        for name, model in models.items():
            export_onnx(model, files[name])
        for runtime in RUNTIMES:
            for name, speed in encoding_speeds(_encoders(runtime, models, files, threads), sentences, REPEATS).items():
                found[name][runtime] = speed
    return found


def _encoders(
    runtime: str, models: dict[str, SentenceTransformer], files: dict[str, Path], threads: int
) -> dict[str, Any]:
    if runtime == "fp32":
        return dict(models)
    if runtime == "bf16":
        return {name: _HalfPrecision(model) for name, model in models.items()} if uses_bf16("cpu", "auto") else {}
    library, _, half = runtime.partition(" ")
    if half and not uses_bf16("cpu", "auto"):
        return {}
    precision: Any = half or "fp32"
    return {
        name: ExportedEncoder(model, files[name], library, precision=precision, threads=threads)  # type: ignore[arg-type]
        for name, model in models.items()
    }


class _HalfPrecision:
    """A copy of a model with bf16 weights."""

    def __init__(self, model: SentenceTransformer) -> None:
        self.model = deepcopy(model).bfloat16()

    def encode(self, sentences: list[str]) -> Any:
        return self.model.encode(sentences, convert_to_tensor=True)


def table(record: dict[str, Any], about: dict[str, Any]) -> str:
    """Return the record as a Markdown table, the best model first."""
    lines = []
    for name, each in sorted(record.items(), key=lambda item: -statistics.mean(item[1]["sts"])):
        speeds = [each["sentences_a_second"].get(runtime) for runtime in RUNTIMES]
        spread = f" ± {statistics.stdev(each['sts']):.2f}" if len(each["sts"]) > 1 else ""
        lines.append(
            (
                name,
                f"{statistics.mean(each['sts']):.2f}{spread}",
                f"{each['parameters'] / 1e6:.1f}",
                f"{each['megabytes']:.0f}",
                *("–" if speed is None else f"{speed:.0f}" for speed in speeds),
            )
        )
    threads = "one thread" if about["threads"] == 1 else f"{about['threads']} threads"
    half = "" if about["has_bf16"] else " This processor has no bf16: those columns are empty."
    how = (
        f"Sentences a second: {about['sentences']} of STS-B's test set, {threads}, median of {REPEATS}.{half} "
        "Averages of trained models are those of their runs (bf16, training's length), others in fp32 at full length."
    )
    header = ("", "STS average", "million parameters", "MB", *RUNTIMES)
    return "\n".join([*markdown_table(header, lines), "", how, ""])


def plot(record: dict[str, Any], path: Path) -> None:
    """Plot the STS average against parameters and against speed in fp32."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    for ax, title in zip(
        figure.subplots(1, 2, sharey=True), ("million parameters", "sentences a second, fp32"), strict=True
    ):
        free = 0.0
        for name, each in sorted(record.items(), key=lambda item: statistics.mean(item[1]["sts"])):
            x = each["parameters"] / 1e6 if title.startswith("million") else each["sentences_a_second"]["fp32"]
            y = statistics.mean(each["sts"])
            color = "C3" if name == "teacher" else "C0"
            ax.plot(x, y, "o", color=color)
            free = max(y, free + _LINE)  # stacks the names of points that lie close together
            ax.annotate(f"{name}  ", (x, free), fontsize=7, ha="right", va="center", color=color)
        ax.set_xlim(0, 1.05 * ax.get_xlim()[1])
        ax.set_xlabel(title)
        ax.grid(alpha=0.3)
    figure.axes[0].set_ylabel("STS average (Spearman x 100)")
    figure.savefig(path, dpi=120)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL", help="runs, folders, or minilm")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
