"""One Trans-Encoder cycle on real pairs: plain sentence-transformers (plain_cycle.py) against ours (our_cycle.py).

    python benchmarks/vs_sentence_transformers.py --repeats 3

Both sides label with the base model, train a cross-encoder on both orders of each pair, label with it, train a
bi-encoder, evaluate on the dev set of STS-B every 200 steps and at the end (ours at the end of every epoch too), and
save both models. Each run has its own process; the sides take turns, and each repeat has its own seed. Variants that
show where the difference comes from run once each. Nothing else should keep the CPUs busy.
"""

import argparse
import gzip
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch

from transencoder.devices import has_bf16
from transencoder.runs.log import source_commit

HERE = Path(__file__).parent
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STAGES = ("labels for the cross-encoder", "cross-encoder", "labels for the bi-encoder", "bi-encoder")
PACKAGES = ("torch", "transformers", "sentence-transformers", "tokenizers", "datasets", "numpy")


@dataclass(frozen=True)
class Side:
    """A way to run the cycle."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()


PLAIN = Side("plain", "plain_cycle.py")
OURS = Side("ours", "our_cycle.py")
VARIANTS = (
    Side("plain, trained in bf16", "plain_cycle.py", ("--bf16",)),
    Side("ours, fp32, random batches", "our_cycle.py", ("--precision", "fp32", "--bucket-batches", "1")),
    Side("ours, fp32", "our_cycle.py", ("--precision", "fp32")),
    Side("ours, random batches", "our_cycle.py", ("--bucket-batches", "1")),
)


def main() -> None:
    """Run the sides in turn, then the variants, and write the record after every run."""
    options = _options()
    order = [(side, i) for i in range(options.repeats) for side in (PLAIN, OURS)]
    variants = VARIANTS if has_bf16(DEVICE) else VARIANTS[3:]  # without bf16, the others take hours or are "ours"
    order += [(side, i) for i in range(options.variant_repeats) for side in variants]
    for record in measured(order, options):
        _write(record, options.results)
    print((options.results / "vs_sentence_transformers.md").read_text())


def measured(order: list[tuple[Side, int]], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run each side with the seed of its repeat; yield the record after every run."""
    options.results.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"settings": _settings(options), "environment": _environment(), "runs": []}
    with tempfile.TemporaryDirectory(prefix="transencoder-benchmark-") as name:
        folder = Path(name)
        _write_data(options, folder)
        for i, (side, repeat) in enumerate(order):
            run = _run(side, options.seed + repeat, folder / str(i), folder, options)
            print(
                f"{side.name}: {run['seconds']:.1f} s, {run['peak_rss_bytes'] / 1e6:.0f} MB",
                file=sys.stderr,
                flush=True,
            )
            record["runs"].append(run)
            record["summary"] = summary(record["runs"])
            yield record


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians by side and, once both sides have run, ratios of plain to ours and the difference on dev."""
    names = dict.fromkeys(run["side"] for run in runs)
    sides = {name: _medians([run for run in runs if run["side"] == name]) for name in names}
    found: dict[str, Any] = {"sides": sides}
    if PLAIN.name in sides and OURS.name in sides:
        plain, ours = sides[PLAIN.name], sides[OURS.name]
        found["plain_over_ours"] = {
            name: plain[name] / ours[name] for name in ("seconds", "process_seconds", "peak_rss_bytes")
        }
        found["stages_plain_over_ours"] = {name: plain["stages"][name] / ours["stages"][name] for name in STAGES}
        found["dev_ours_minus_plain"] = {form: ours["dev"][form] - plain["dev"][form] for form in ("cross", "bi")}
    return found


def table(record: dict[str, Any]) -> str:
    """Return the record as Markdown."""
    settings, environment, found = record["settings"], record["environment"], record["summary"]
    sides = found["sides"]
    lines = [
        "# One cycle against plain sentence-transformers",
        "",
        f"{settings['n_pairs']:,} pairs of sts-sickr, start {settings['start']}, 1 cross-encoder and "
        f"{settings['bi_epochs']} bi-encoder epochs, {settings['threads']} threads, {environment['machine']}, "
        f"{environment['date']}{', from a changed work tree' if environment['source']['is_changed'] else ''}. Medians; "
        "dev is Spearman x 100 on STS-B dev by sentence-transformers' evaluators in fp32.",
        "",
        "| side | runs | cycle, s | plain / this | peak memory, MB | dev cross | dev bi |",
        "|---|---|---|---|---|---|---|",
        *(_side_row(name, side, sides.get(PLAIN.name)) for name, side in sides.items()),
        "",
        "| stage, s | " + " | ".join(sides) + " |",
        "|---|" + "---|" * len(sides),
    ]
    for stage in (*STAGES, "the rest"):
        lines.append(f"| {stage} | " + " | ".join(f"{side['stages'][stage]:.1f}" for side in sides.values()) + " |")
    if "plain_over_ours" in found:
        lines += ["", *_ratio_lines(found, environment)]
    return "\n".join([*lines, ""])


def _side_row(name: str, side: dict[str, Any], plain: dict[str, Any] | None) -> str:
    ratio = f"{plain['seconds'] / side['seconds']:.2f}" if plain else ""
    dev = f"{side['dev']['cross']:.2f} | {side['dev']['bi']:.2f}"
    memory = f"{side['peak_rss_bytes'] / 1e6:.0f}"
    return f"| {name} | {side['n_runs']} | {side['seconds']:.1f} | {ratio} | {memory} | {dev} |"


def _ratio_lines(found: dict[str, Any], environment: dict[str, Any]) -> list[str]:
    ratios, differences = found["plain_over_ours"], found["dev_ours_minus_plain"]
    plain, ours = found["sides"][PLAIN.name], found["sides"][OURS.name]
    lines = [
        f"- Plain over ours: time {ratios['seconds']:.2f} (with start-up and imports {ratios['process_seconds']:.2f}), "
        f"peak memory {ratios['peak_rss_bytes']:.2f}.",
        f"- Dev, ours minus plain: cross-encoder {differences['cross']:+.2f}, bi-encoder {differences['bi']:+.2f}.",
        f"- Start-up and imports: plain {plain['import_seconds']:.1f} s, ours {ours['import_seconds']:.1f} s; "
        f"`import transencoder` alone {environment['import_transencoder_seconds']:.2f} s.",
    ]
    return lines + _factor_lines(found["sides"])


def _factor_lines(sides: dict[str, Any]) -> list[str]:
    """Return lines on how much of the speed-up comes from each change alone."""
    steps = (
        ("tokens made once, one forward for both sides, each sentence scored once", PLAIN, VARIANTS[1]),
        ("batches of like length, in fp32", VARIANTS[1], VARIANTS[2]),
        ("batches of like length, in bf16", VARIANTS[3], OURS),
        ("bf16, with random batches", VARIANTS[1], VARIANTS[3]),
        ("bf16, with batches of like length", VARIANTS[2], OURS),
        ("bf16, in plain training", PLAIN, VARIANTS[0]),
    )
    return [
        f"- {what}: x{sides[before.name]['seconds'] / sides[after.name]['seconds']:.2f} "
        f'(from "{before.name}" to "{after.name}").'
        for what, before, after in steps
        if before.name in sides and after.name in sides
    ]


def _medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("seconds", "process_seconds", "import_seconds", "peak_rss_bytes")
    stages = {name: median(run["stages"].get(name, 0.0) for run in runs) for name in STAGES}
    seconds = median(run["seconds"] for run in runs)
    return {
        "n_runs": len(runs),
        **{name: median(run[name] for run in runs) for name in names},
        "stages": stages | {"the rest": seconds - sum(stages.values())},
        "dev": {form: median(run["dev"][form] for run in runs) for form in ("cross", "bi")},
    }


def _run(side: Side, seed: int, output: Path, data: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run a side, then evaluate its models with judge.py."""
    output.mkdir()
    common = ["--pairs", str(data / "pairs.jsonl"), "--dev", str(data / "dev.jsonl"), "--output", str(output)]
    more = ["--start", options.start, "--bi-epochs", str(options.bi_epochs), "--seed", str(seed)]
    started = time.perf_counter()
    _python([str(HERE / side.script), *common, *more, *side.arguments], options.threads, output / "log.txt")
    process_seconds = time.perf_counter() - started
    usage = json.loads((output / "usage.json").read_text())
    models = output if (output / "bi-encoder").is_dir() else output / "run"
    judge = [str(HERE / "judge.py"), "--models", str(models), "--dev", str(data / "dev.jsonl")]
    _python([*judge, "--output", str(output / "judged.json")], options.threads, output / "judge.txt")
    usage["own_dev"], usage["dev"] = usage["dev"], json.loads((output / "judged.json").read_text())
    return {"side": side.name, "seed": seed, "arguments": side.arguments, "process_seconds": process_seconds, **usage}


def _python(command: list[str], threads: int, log: Path) -> None:
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "BENCHMARK_STARTED": str(time.time()),
    }
    with log.open("w") as file:
        code = subprocess.run(
            [sys.executable, *command], env=environment, stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode
    if code:
        raise SystemExit(f"{command[0]} ended with {code}:\n{log.read_text()[-3000:]}")


def _write_data(options: argparse.Namespace, folder: Path) -> None:
    """Write a seeded sample of the training pairs, and the whole dev set."""
    pairs = _read(options.data_dir / "pairs" / "sts-sickr" / "train.jsonl.gz", ("sentence1", "sentence2"))
    dev = _read(
        options.data_dir / "mteb" / "stsbenchmark-sts" / "validation.jsonl.gz", ("sentence1", "sentence2", "score")
    )
    sample = random.Random(options.seed).sample(pairs, options.pairs)
    for name, rows in (("pairs", sample), ("dev", dev)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _read(path: Path, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return [{name: row[name] for name in columns} for row in map(json.loads, file)]


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    names = ("repeats", "variant_repeats", "bi_epochs", "threads", "seed", "start")
    return {"n_pairs": options.pairs} | {name: getattr(options, name) for name in names}


def _environment() -> dict[str, Any]:
    code = "import time; t = time.perf_counter(); import transencoder; print(time.perf_counter() - t)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "load_at_start": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "source": source_commit(),
        "import_transencoder_seconds": float(imported),
    }


def _write(record: dict[str, Any], results: Path) -> None:
    (results / "vs_sentence_transformers.json").write_text(json.dumps(record, indent=2) + "\n")
    (results / "vs_sentence_transformers.md").write_text(table(record))


def _options() -> argparse.Namespace:
    data = os.environ.get("TRANSENCODER_DATA") or HERE.resolve().parents[1] / "shared" / "data"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4000, help="pairs to sample")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side")
    parser.add_argument("--variant-repeats", type=int, default=1, help="runs of each variant; 0 leaves them out")
    parser.add_argument("--bi-epochs", type=int, default=10, help="the paper's Table 16 has 10")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--start", default="minilm", help="a folder, or minilm")
    parser.add_argument("--seed", type=int, default=2021, help="of the sample and the first repeat")
    parser.add_argument("--data-dir", type=Path, default=Path(data))
    parser.add_argument("--results", type=Path, default=HERE / "results", help="where the two files go")
    return parser.parse_args()


if __name__ == "__main__":
    main()
