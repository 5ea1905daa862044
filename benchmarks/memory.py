"""Measure the anonymous memory of reading, labelling and batching generated pairs, by phase, against a limit.

    python benchmarks/memory.py --pairs 2000000

The limit is 16 bytes per sentence plus 100 MB, above what the process holds after its imports with its models loaded.
Anonymous memory (RssAnon of /proc/<pid>/status, Linux only) is what the kernel cannot drop; it excludes memory-mapped
files. The phases run in a process of their own (memory_phases.py), which is sampled every 5 ms; shorter peaks can be
missed.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

BYTES_A_SENTENCE = 16
FREE_BYTES = 100_000_000
SAMPLE_SECONDS = 0.005
WORDS = [a + b + c for a in "bdfgklmnprst" for b in ("a", "e", "io", "u") for c in ("lo", "ma", "ne", "ri", "su")]


def main() -> None:
    """Generate the pairs, run the phases, write the record and print the table."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="transencoder-memory-", dir=options.work) as name:
        folder = Path(name)
        (folder / "words.txt").write_text("\n".join(WORDS))
        write_pairs(folder / "pairs.tsv", options.pairs)
        phases = watch(folder, options.threads)
    record = summary(phases, options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=2) + "\n")
    print(table(record))
    sys.exit(0 if record["within_limit"] else 1)


def write_pairs(path: Path, n_pairs: int, seed: int = 0) -> None:
    """Write a TSV of random sentences of 4 to 12 words; nearly all are distinct."""
    rng = random.Random(seed)
    with path.open("w") as file:
        for _ in range(n_pairs):
            words = rng.choices(WORDS, k=rng.randint(8, 24))
            half = len(words) // 2
            file.write(f"{' '.join(words[:half])}\t{' '.join(words[half:])}\n")


def watch(folder: Path, threads: int) -> list[dict[str, Any]]:
    """Run the phases; return each one's name, seconds, and bytes of anonymous memory at its start, end and peak."""
    script = Path(__file__).with_name("memory_phases.py")
    command = [sys.executable, str(script), "--folder", str(folder), "--pairs", str(folder / "pairs.tsv")]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, "--threads", str(threads)], stdin=pipe, stdout=pipe, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        sampler = Sampler(process.pid)
        phases: list[dict[str, Any]] = []
        for line in process.stdout:
            finished = {"end": anonymous_bytes(process.pid), **sampler.take()}
            now = time.monotonic()
            if phases:
                phases[-1] |= finished | {"seconds": now - phases[-1]["started"]}
            phases.append({"phase": line.strip(), "started": now, "start": finished["end"]})
            print(f"{line.strip()} ...", file=sys.stderr, flush=True)
            process.stdin.write("\n")
            process.stdin.flush()
        sampler.stop()
    if process.returncode or phases[-1]["phase"] != "end":
        raise SystemExit(f"memory_phases.py stopped with {process.returncode} in {phases[-1:]}")
    return phases[:-1]


class Sampler:
    """A thread that tracks the highest anonymous memory of a process since the last `take`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0
        self._is_stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self) -> dict[str, int]:
        """Return the peak so far, in bytes, and start a new one."""
        with self._lock:
            peak, self._peak = max(self._peak, anonymous_bytes(self._pid)), 0
        return {"peak": peak}

    def stop(self) -> None:
        """End the sampling."""
        self._is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopped.wait(SAMPLE_SECONDS):
            with self._lock:
                self._peak = max(self._peak, anonymous_bytes(self._pid))


def anonymous_bytes(pid: int) -> int:
    """Return the anonymous memory of a process in bytes, as the kernel counts it; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0)


def summary(phases: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Return the record: growth over the baseline by phase, and the limit."""
    baseline = phases[0]["start"]
    limit = BYTES_A_SENTENCE * 2 * options.pairs + FREE_BYTES
    growth = [
        {
            "phase": phase["phase"],
            "seconds": round(phase["seconds"], 1),
            "peak_growth_bytes": phase["peak"] - baseline,
            "growth_at_start_bytes": phase["start"] - baseline,
            "growth_at_end_bytes": phase["end"] - baseline,
        }
        for phase in phases
    ]
    highest = max(row["peak_growth_bytes"] for row in growth)
    return {
        "n_pairs": options.pairs,
        "n_sentences": 2 * options.pairs,
        "baseline_bytes": baseline,
        "limit_bytes": limit,
        "peak_growth_bytes": highest,
        "within_limit": highest <= limit,
        "phases": growth,
        "threads": options.threads,
        "versions": {name: version(name) for name in ("torch", "sentence-transformers", "datasets", "pyarrow")},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }


def table(record: dict[str, Any]) -> str:
    """Return the record as a Markdown table."""
    lines = [
        f"{record['n_pairs']:,} pairs; anonymous memory over a baseline of {record['baseline_bytes'] / 1e6:.0f} MB; "
        f"limit {record['limit_bytes'] / 1e6:.0f} MB ({'kept' if record['within_limit'] else 'exceeded'})",
        "",
        "| phase | seconds | peak growth, MB | at its start | at its end |",
        "|---|---|---|---|---|",
    ]
    for row in record["phases"]:
        numbers = [row[f"{name}_bytes"] for name in ("peak_growth", "growth_at_start", "growth_at_end")]
        cells = " | ".join(f"{number / 1e6:.0f}" for number in numbers)
        lines.append(f"| {row['phase']} | {row['seconds']:.1f} | {cells} |")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2_000_000, help="pairs to generate")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, help="folder for temporary files, about 2 KB a pair")
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results" / "memory.json", help="the record"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
