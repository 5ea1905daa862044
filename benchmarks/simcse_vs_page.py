"""SimCSE as on the sentence-transformers docs page (`fit` with MultipleNegativesRankingLoss) against ours.

    python benchmarks/simcse_vs_page.py --repeats 3

Both sides use the same base model, sentences, batch size, learning rate, warm-up and length, mean pooling, no
projector, one epoch, the last weights, and no dev set during training. Each run has its own process, the sides take
turns, and each repeat has its own seed. Both models are then evaluated in the same way on STS-B's dev set in fp32.
Nothing else should keep the CPUs busy.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from usage import Usage

HERE = Path(__file__).parent
SIDES = ("page", "ours")
BATCH_SIZE, LEARNING_RATE, WARMUP_RATIO, MAX_LENGTH = 128, 5e-5, 0.1, 32
PACKAGES = ("torch", "transformers", "sentence-transformers", "tokenizers", "datasets", "numpy")


def main() -> None:
    """Run the sides in turn and write the record, or run the one side that `--side` names."""
    options = _options()
    if options.side is not None:
        {"page": train_page, "ours": train_ours}[options.side](options)
        return
    with tempfile.TemporaryDirectory(prefix="transencoder-benchmark-") as name:
        runs = [
            _run(side, options.seed + repeat, Path(name) / f"{side}-{repeat}", options)
            for repeat in range(options.repeats)
            for side in SIDES
        ]
    record = {"settings": _settings(options), "environment": _environment(), "runs": runs, "summary": summary(runs)}
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "simcse_vs_page.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record["summary"], indent=2))


def train_page(options: argparse.Namespace) -> None:
    """Train with the code of the docs page, and the values of its script for a file of sentences."""
    from sentence_transformers import InputExample, SentenceTransformer, losses, models
    from torch.utils.data import DataLoader
    from transformers import set_seed

    usage = Usage()
    set_seed(options.seed)
    with usage.stage("all"):
        transformer = models.Transformer(str(options.start), max_seq_length=MAX_LENGTH)
        pooling = models.Pooling(transformer.get_embedding_dimension())
        model = SentenceTransformer(modules=[transformer, pooling])
        sentences = options.sentences.read_text().strip("\n").split("\n")
        examples = [InputExample(texts=[sentence, sentence]) for sentence in sentences]
        loader = DataLoader(examples, batch_size=BATCH_SIZE, shuffle=True)  # type: ignore[arg-type, var-annotated]
        loss = losses.MultipleNegativesRankingLoss(model)
        model.fit(
            train_objectives=[(loader, loss)],
            epochs=1,
            warmup_steps=round(WARMUP_RATIO * len(loader)),
            optimizer_params={"lr": LEARNING_RATE},
            checkpoint_path=str(options.output / "checkpoints"),
            checkpoint_save_steps=500,
        )
        model.save(str(options.output / "bi-encoder"))
    usage.write(options.output / "usage.json")


def train_ours(options: argparse.Namespace) -> None:
    """Train the same with transencoder."""
    from transencoder import SimCSE, train

    usage = Usage()
    with usage.stage("all"):
        fit = replace(
            SimCSE.fit,
            learning_rate=LEARNING_RATE,
            batch_size=BATCH_SIZE,
            max_length=MAX_LENGTH,
            warmup_ratio=WARMUP_RATIO,
            weight_decay=0.01,
            checkpoint_steps=500,
        )
        train(
            SimCSE(
                sentences=str(options.sentences),
                start=str(options.start),
                output=str(options.output / "run"),
                pooling="mean",
                projector=False,
                precision=options.precision,
                seed=options.seed,
                fit=fit,
            )
        )
    usage.write(options.output / "usage.json")


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians by side, ratios of page to ours, and the difference on dev."""
    found: dict[str, Any] = {}
    for side in SIDES:
        own = [run for run in runs if run["side"] == side]
        found[side] = {name: median(run[name] for run in own) for name in ("seconds", "peak_rss_bytes", "dev")}
    page, ours = found["page"], found["ours"]
    ratios = {f"page_over_ours_{name}": page[name] / ours[name] for name in ("seconds", "peak_rss_bytes")}
    return found | ratios | {"dev_ours_minus_page": ours["dev"] - page["dev"]}


def _run(side: str, seed: int, output: Path, options: argparse.Namespace) -> dict[str, Any]:
    output.mkdir()
    command = [sys.executable, str(Path(__file__).resolve()), "--side", side, "--seed", str(seed)]
    command += ["--output", str(output), "--start", str(options.start), "--sentences", str(options.sentences)]
    command += ["--precision", options.precision]
    environment = os.environ | {
        "OMP_NUM_THREADS": str(options.threads),
        "HF_HUB_OFFLINE": "1",
        "BENCHMARK_STARTED": str(time.time()),
    }
    log = output / "log.txt"
    with log.open("w") as file:
        code = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    if code:
        raise SystemExit(f"{side} ended with {code}:\n{log.read_text()[-3000:]}")
    model = output / ("bi-encoder" if side == "page" else "run/bi-encoder")
    run = {"side": side, "seed": seed, "dev": _judge(model)} | json.loads((output / "usage.json").read_text())
    print(f"{side}: {run['seconds']:.1f} s, dev {run['dev']:.2f}", file=sys.stderr, flush=True)
    return run


def _judge(folder: Path) -> float:
    """Return Spearman's correlation x 100 on STS-B's dev set, in fp32."""
    from sentence_transformers import SentenceTransformer

    from transencoder import BiScorer
    from transencoder.evaluation import evaluate
    from transencoder.tasks import load

    return evaluate(BiScorer(SentenceTransformer(str(folder)), precision="fp32"), load("stsb", "dev"))


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    fixed = {"batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE, "warmup_ratio": WARMUP_RATIO}
    n_sentences = len(options.sentences.read_text().strip("\n").split("\n"))
    names = ("repeats", "threads", "seed", "precision")
    more = {"max_length": MAX_LENGTH, "n_sentences": n_sentences, "start": options.start.name}
    return fixed | more | {name: getattr(options, name) for name in names}


def _environment() -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "load_at_start": os.getloadavg()[0],
        "versions": {name: version(name) for name in PACKAGES},
        "commit": commit or None,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("TRANSENCODER_DATA", "../shared/data"))
    parser.add_argument("--sentences", type=Path, required=True, help="one a line, such as those of starts.py")
    parser.add_argument("--start", type=Path, default=data.parent / "models" / "plm-mini", help="a model's folder")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--precision", choices=("auto", "bf16", "fp32"), default="auto", help="of our side")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
