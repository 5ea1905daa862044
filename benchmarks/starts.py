"""Every encoder method on the same 20,000 sentences, from two small models, with three seeds: STS before and after.

    python benchmarks/starts.py --output runs/starts

The base models are plm-mini (a plain masked language model, 4 layers of width 256), and the first 3 layers of
all-MiniLM-L6-v2 without pooling or language-modelling head. The sentences are 1,250 stretches of 16 consecutive
sentences of sentences/english-mixed, drawn with a seed from all its sources; a stretch is a document for DeCLUTR.
Settings are those of small models, chosen on STS-B's dev set, which also selects checkpoints. Each run is an ordinary
run folder. A second call continues where the first one stopped, and a run in results/starts.json keeps its row when its
folder is gone. A run takes about 3 minutes on one core, and 40 for Contrastive Tension with 7 negatives.
"""

import argparse
import gzip
import json
import os
import random
import statistics
import sys
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from transformers import AutoModel, AutoTokenizer

from transencoder import DCLR, MLM, ContrastiveTension, DeCLUTR, DiffCSE, MirrorBERT, SimCSE, train
from transencoder.configs.run import RunConfig
from transencoder.models import MINILM, resolve_model

SEEDS = (1, 2, 3)
N_STRETCHES, STRETCH, DOCUMENT_WORDS = 1250, 16, 128
MINILM_LAYERS = 3
METHODS = (
    "mlm",
    "simcse",
    "mirror-bert",
    "contrastive-tension-in-batch",
    "declutr",
    "diffcse",
    "dclr",
    "contrastive-tension",
)
"""Methods in the order in which they run: helpers first, the longest last."""

HELPERS = {("any", "dclr"): "simcse", ("minilm-3", "declutr"): "mlm", ("minilm-3", "diffcse"): "mlm"}
"""Helper run that each (base model, method) needs first; its minutes come in addition."""

STARTS_FROM_HELPER = (("minilm-3", "declutr"),)
"""(Base model, method) that starts from its helper's model; the gain is over the helper's own base model."""


def main() -> None:
    """Write the text and the second base model, run the requested methods, write the table of all finished runs."""
    options = _options()
    text = options.output / "text"
    if not (text / "documents.txt").exists():
        write_text(options.data / "sentences" / "english-mixed" / "train.jsonl.gz", text)
    starts = {"plm-mini": options.plm_mini, "minilm-3": options.output / "models" / "minilm-3"}
    if not starts["minilm-3"].exists():
        write_first_layers(starts["minilm-3"])
    for name in options.starts:
        for seed in options.seeds:
            for method in options.methods:
                config = configs(name, starts[name], text, options.output, seed)[method]
                print(f"{name} {method} {seed}", file=sys.stderr)
                dev = {} if isinstance(config, MLM) else {"dev": "stsb"}
                train(replace(config, tests=() if options.no_tests else ("sts",), **dev))
    if not options.no_tests:
        options.results.mkdir(parents=True, exist_ok=True)
        record = summary(options.output, options.results / "starts.json")
        (options.results / "starts.json").write_text(json.dumps(record, indent=2) + "\n")
        (options.results / "starts.md").write_text(table(record) + "\n")
        print(table(record))


def write_text(source: Path, folder: Path) -> None:
    """Write the same sentences to sentences.txt, one a line, and to documents.txt, one stretch a line."""
    with gzip.open(source, "rt") as file:
        rows = [json.loads(line) for line in file]
    stretches = []
    for _, group in groupby(rows, key=lambda row: row["source"]):
        texts = [" ".join(row["text"].split()) for row in group]
        stretches += [texts[i : i + STRETCH] for i in range(0, len(texts) - STRETCH + 1, STRETCH)]
    long_enough = [stretch for stretch in stretches if len(" ".join(stretch).split()) >= DOCUMENT_WORDS]
    drawn = random.Random(0).sample(long_enough, N_STRETCHES)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sentences.txt").write_text("".join(f"{text}\n" for stretch in drawn for text in stretch))
    (folder / "documents.txt").write_text("".join(f"{' '.join(stretch)}\n" for stretch in drawn))


def write_first_layers(folder: Path) -> None:
    """Write all-MiniLM-L6-v2's embeddings and first layers as a plain model: no pooling, normalisation or head."""
    source = resolve_model(MINILM)
    model = AutoModel.from_pretrained(source)
    model.encoder.layer = model.encoder.layer[:MINILM_LAYERS]
    model.config.num_hidden_layers = MINILM_LAYERS
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)


def configs(name: str, start: Path, text: Path, output: Path, seed: int) -> dict[str, RunConfig]:
    """Return the config of each method; those after `mlm` and `simcse` may use the models of these two as helpers."""
    has_head = name == "plm-mini"

    def run(method: str) -> str:
        return str(output / name / f"{method}-{seed}")

    on_sentences = {"sentences": str(text / "sentences.txt"), "start": str(start), "seed": seed}
    small: dict[str, Any] = {"learning_rate": 1e-4, "batch_size": 128, "max_length": 32, "eval_steps": 20}
    return {
        "mlm": MLM(
            **on_sentences,
            output=run("mlm"),
            new_head=not has_head,
            fit=replace(MLM.fit, learning_rate=2e-4, batch_size=32, epochs=2),
        ),
        "simcse": SimCSE(**on_sentences, output=run("simcse"), pooling="mean", fit=replace(SimCSE.fit, **small)),
        "mirror-bert": MirrorBERT(
            **on_sentences,
            output=run("mirror-bert"),
            fit=replace(MirrorBERT.fit, **small | {"learning_rate": 2e-5, "eval_steps": 10}),
        ),
        "contrastive-tension": ContrastiveTension(
            **on_sentences,
            output=run("contrastive-tension"),
            fit=replace(ContrastiveTension.fit, max_length=32, eval_steps=500, checkpoint_steps=1000),
        ),
        "contrastive-tension-in-batch": ContrastiveTension(
            **on_sentences,
            output=run("contrastive-tension-in-batch"),
            negatives="in_batch",
            fit=replace(ContrastiveTension.fit, **small, optimizer="adamw", dropout=0.1),
        ),
        "declutr": DeCLUTR(
            documents=str(text / "documents.txt"),
            start=str(start) if has_head else run("mlm"),
            seed=seed,
            output=run("declutr"),
            document_words=DOCUMENT_WORDS,
            n_samples=4,
            fit=replace(DeCLUTR.fit, learning_rate=1e-4, batch_size=32, max_length=64, eval_steps=20),
        ),
        "diffcse": DiffCSE(
            **on_sentences,
            output=run("diffcse"),
            pooling="mean",
            generator=str(start) if has_head else run("mlm"),
            fit=replace(DiffCSE.fit, **small | {"epochs": 1}),
        ),
        "dclr": DCLR(
            **on_sentences,
            output=run("dclr"),
            pooling="mean",
            complement=run("simcse"),
            fit=replace(DCLR.fit, **small | {"epochs": 1}),
        ),
    }


def summary(folder: Path, earlier: Path) -> dict[str, Any]:
    """Return each finished run's test averages and minutes, by base model, method and seed, added to `earlier`."""
    found: dict[str, Any] = json.loads(earlier.read_text()) if earlier.exists() else {}
    for path in sorted(folder.glob("*/*-*/result.json")):
        result = json.loads(path.read_text())
        method, _, seed = path.parent.name.rpartition("-")
        if result["scores"]:
            found.setdefault(path.parent.parent.name, {}).setdefault(method, {})[seed] = _row(result)
    return found


def _row(result: dict[str, Any]) -> dict[str, Any]:
    trained = next(result["scores"][form] for form in ("bi", "mlm") if form in result["scores"])
    before = [result["scores"][name] for name in ("start", "start_as_is") if name in result["scores"]]
    training = next(stage for stage in result["stages"] if stage["name"] in ("bi-encoder", "masked-language-model"))
    return {
        "start": max(statistics.mean(scores.values()) for scores in before),
        "trained": statistics.mean(trained.values()),
        "tests": trained,
        "dev": None if result["dev"] is None else result["dev"]["bi"],
        "minutes": training["seconds"] / 60,
        "commit": result["environment"]["commit"],
        "threads": result["environment"]["threads"],
    }


def table(record: dict[str, Any]) -> str:
    """Return the record as Markdown: averages of seven tests over seeds, before and after, and minutes of training."""
    lines = [
        "Average of the seven STS test sets. Before: the start at the length of the method's texts. Minutes: the "
        "median over seeds, of one core, mostly beside another job; of mlm, DeCLUTR and DiffCSE those of earlier runs, "
        "since the present ones had a slower processor.",
        "",
    ]
    for start, methods in record.items():
        lines += [
            f"| {start} | before | after | gain | seeds | minutes | after |",
            "|---|---:|---:|---:|---:|---:|---|",
        ]
        for method in (method for method in METHODS if method in methods):
            runs = methods[method].values()
            after, minutes = ([row[name] for row in runs] for name in ("trained", "minutes"))
            spread = f" ± {statistics.stdev(after):.2f}" if len(after) > 1 else ""
            mean = statistics.mean(after)
            of_start = "mlm" if (start, method) in STARTS_FROM_HELPER else method
            before = statistics.mean(row["start"] for row in methods[of_start].values())
            helper = HELPERS.get((start, method)) or HELPERS.get(("any", method), "")
            lines.append(
                f"| {method} | {before:.2f} | {mean:.2f}{spread} | {mean - before:+.2f} | {len(after)} "
                f"| {statistics.median(minutes):.1f} | {helper} |"
            )
        lines.append("")
    return "\n".join(lines).rstrip()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("TRANSENCODER_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--plm-mini", type=Path, default=data.parent / "models" / "plm-mini")
    parser.add_argument("--output", type=Path, default=Path("runs/starts"))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--starts", nargs="+", default=["plm-mini", "minilm-3"], choices=["plm-mini", "minilm-3"])
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--no-tests", action="store_true", help="dev only: for choosing settings")
    return parser.parse_args()


if __name__ == "__main__":
    main()
