"""Measure time and memory of mining pairs, by step, from sentences/english-mixed and sentences made from it.

    python benchmarks/mining.py --sentences 1000000 --start runs/models/minilm-3

Up to 500,000 sentences are drawn from the real ones; each further one joins the first half of one with the second half
of another. Anonymous memory (RssAnon of /proc/self/status, Linux only) is what the kernel cannot drop; it excludes
embeddings and tokens, which are memory-mapped files. It is sampled every 5 ms, and reported above what the process
holds after its imports. results/mining.json has a row for each number of sentences; another call replaces the row.
"""

import argparse
import json
import os
import platform
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from memory import Sampler, anonymous_bytes
from usage import peak_rss_bytes

from transencoder import mine, progress, read_sentences
from transencoder.mining import Mined
from transencoder.report.words import mining_text
from transencoder.runs.log import source_commit

RESULTS = Path(__file__).parent / "results" / "mining.json"
MOST_REAL = 500_000


def main() -> None:
    """Make the sentences, mine, write the record, print the tables."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="transencoder-mining-", dir=options.work) as name:
        file = Path(name, "sentences.txt")
        write_sentences(file, options.sentences, options.data)
        steps = Steps()
        with progress.use(steps.task):
            mined = mine(file, options.start, n_pairs=options.n_pairs, device=options.device, cache_folder=name)
        record = summary(steps, mined, options)
    records = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    records[str(options.sentences)] = record
    RESULTS.write_text(json.dumps(dict(sorted(records.items(), key=lambda item: int(item[0]))), indent=1) + "\n")
    print(mining_text(mined.record))
    print(table(record))


def write_sentences(file: Path, n_sentences: int, data: Path, seed: int = 0) -> None:
    """Write one sentence a line: real ones in random order, then ones that join halves of two real ones."""
    rng = random.Random(seed)
    real = read_sentences("sentences/english-mixed", data_folder=data)["text"][:]
    drawn = rng.sample(real, min(n_sentences, MOST_REAL))
    with file.open("w") as lines:
        lines.writelines(f"{text}\n" for text in drawn)
        for _ in range(n_sentences - len(drawn)):
            first, second = (text.split() for text in rng.sample(drawn, 2))
            lines.write(" ".join(first[: (len(first) + 1) // 2] + second[len(second) // 2 :]) + "\n")


class Steps:
    """Seconds and highest anonymous memory of each task that mining reports as progress, and between tasks."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.baseline = anonymous_bytes(os.getpid())
        self._sampler = Sampler(os.getpid())
        self._since = time.monotonic()

    @contextmanager
    def task(self, description: str, total: int) -> Iterator[progress.Advance]:
        """Record the time since the last task, then this task."""
        self.end("between")
        yield lambda n_more: None
        self.end(description, total)

    def end(self, name: str, n_items: int | None = None) -> None:
        """Record a step that has ended; all times between tasks share one row."""
        now, grown = time.monotonic(), self._sampler.take()["peak"] - self.baseline
        row = {"step": name, "items": n_items, "seconds": now - self._since, "peak_growth_bytes": grown}
        self._since = now
        before = next((each for each in self.rows if each["step"] == name == "between"), None)
        if before is None:
            self.rows.append(row)
        else:
            before["seconds"] += row["seconds"]
            before["peak_growth_bytes"] = max(before["peak_growth_bytes"], grown)


def summary(steps: Steps, mined: Mined, options: argparse.Namespace) -> dict[str, Any]:
    """Return the record of this call."""
    steps.end("between")
    return {
        "commit": source_commit(),
        "n_sentences": options.sentences,
        "n_pairs": len(mined.pairs),
        "start": Path(options.start).name,
        "seconds": sum(row["seconds"] for row in steps.rows),
        "peak_growth_bytes": max(row["peak_growth_bytes"] for row in steps.rows),
        "peak_rss_bytes": peak_rss_bytes(),
        "steps": steps.rows,
        "mined": mined.record,
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "versions": {name: version(name) for name in ("torch", "sentence-transformers", "faiss-cpu", "bm25s")},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }


def table(record: dict[str, Any]) -> str:
    """Return the steps as a Markdown table."""
    lines = [
        f"{record['n_sentences']:,} sentences, {record['n_pairs']:,} pairs: {record['seconds']:.0f} s, anonymous "
        f"memory +{record['peak_growth_bytes'] / 1e6:.0f} MB, resident {record['peak_rss_bytes'] / 1e6:.0f} MB, mapped "
        f"files included; load at the end {record['load']:.1f}",
        "",
        "| step | items | seconds | memory, MB |",
        "|---|---|---|---|",
    ]
    for row in record["steps"]:
        items = "" if row["items"] is None else f"{row['items']:,}"
        lines.append(f"| {row['step']} | {items} | {row['seconds']:.1f} | {row['peak_growth_bytes'] / 1e6:.0f} |")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=20_000, help="how many are mined")
    parser.add_argument("--start", required=True, help="the bi-encoder")
    parser.add_argument("--n-pairs", type=int, help="pairs wanted (default: mining's own)")
    parser.add_argument("--device")
    parser.add_argument("--data", type=Path, default=os.environ.get("TRANSENCODER_DATA"), help="folder of data sets")
    parser.add_argument("--work", type=Path, help="folder for temporary files, about 2 KB a sentence")
    return parser.parse_args()


if __name__ == "__main__":
    main()
