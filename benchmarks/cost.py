"""Compare the speed of two commits: time of the demo, and of a run with many small stages.

    python benchmarks/cost.py BEFORE [AFTER]       # two commits; about 20 minutes of two idle cores

Both commits run at the same time, on one core each, so that a disturbance affects both. They swap cores after each pair
of runs. Each pair adds a line to `results/cost.jsonl`; `results/cost.md` has the medians of all lines.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).with_name("results") / "cost.jsonl"
RUNS = {"many small stages": 12, "demo": 2}
"""Repeats of each kind of run. `many small stages` has four cycles on tiny models and a checkpoint every two steps."""


def main() -> None:
    """Measure, and write the record and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after", nargs="?", default="HEAD")
    parser.add_argument("--times", type=int, help=f"of each run; default: {RUNS}")
    args = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    from tests.chaos.commands import write_given

    with tempfile.TemporaryDirectory(prefix="cost-") as name, _tree(args.before) as before, _tree(args.after) as after:
        folder = Path(name)
        write_given(folder / "given")
        for kind, times in RUNS.items():
            for number in range(args.times or times):
                seconds = _side_by_side(kind, (before, after), folder / f"{kind}-{number}".replace(" ", "-"), number)
                commits = [_git("rev-parse", "--short", commit) for commit in (args.before, args.after)]
                row = {"run": kind, "commits": commits, "seconds": seconds}
                print(json.dumps(row), flush=True)
                with RECORD.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    rows = [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]
    RECORD.with_suffix(".md").write_text(page(rows), encoding="utf-8")


def page(rows: list[dict]) -> str:
    """Return the page of results: a row for each run and pair of commits."""
    lines = [
        "# What a change costs",
        "",
        "Made by `benchmarks/cost.py`, which says what is run. Medians over pairs of runs side by side, a core each.",
        "",
        "| run | before | after | pairs | wall, s | ratio | processor, s | ratio |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for run, *commits in sorted({(row["run"], *row["commits"]) for row in rows}, reverse=True):
        pairs = [row["seconds"] for row in rows if [row["run"], *row["commits"]] == [run, *commits]]
        cells = []
        for what in ("wall", "processor"):
            before, after = (statistics.median(pair[what][i] for pair in pairs) for i in (0, 1))
            ratio = statistics.median(pair[what][1] / pair[what][0] for pair in pairs)
            cells += [f"{before:.2f}, {after:.2f}", f"{ratio:.3f}"]
        lines.append(f"| {run} | {commits[0]} | {commits[1]} | {len(pairs)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _side_by_side(kind: str, trees: tuple[Path, Path], folder: Path, first_core: int) -> dict[str, list[float]]:
    """Run both commits at once; return the wall-clock and the processor seconds of each."""
    folder.mkdir()
    started = time.monotonic()
    processes = [
        _start(kind, tree, folder / str(number), (number + first_core) % 2) for number, tree in enumerate(trees)
    ]
    wall, processor = [0.0, 0.0], [0.0, 0.0]
    for _ in processes:
        pid, status, usage = os.wait3(0)
        number = [process.pid for process in processes].index(pid)
        if status:
            sys.exit(f"{trees[number]} failed: {(folder / str(number) / 'log').read_text()}")
        wall[number] = round(time.monotonic() - started, 2)
        processor[number] = round(usage.ru_utime + usage.ru_stime, 2)
    return {"wall": wall, "processor": processor}


def _start(kind: str, tree: Path, folder: Path, core: int) -> "subprocess.Popen[bytes]":
    given = folder.parents[1] / "given"
    small = (
        f"train trans-encoder --pairs {given}/pairs.tsv --dev {given}/dev.tsv --tests {given}/dev.tsv --cycles 4 "
        f"--start {given}/bi --cross-start {given}/plm --precision fp32 --bi.batch-size 8 --cross.batch-size 8 "
        "--bi.epochs 2 --cross.epochs 2 --bi.checkpoint-steps 2 --cross.checkpoint-steps 2"
    )
    folder.mkdir()
    argv = [sys.executable, "-m", "transencoder", *("demo" if kind == "demo" else small).split(), "--output", "out"]
    own = {"PYTHONPATH": str(tree / "src"), "TRANSENCODER_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=folder, env=os.environ | own, stdout=log, stderr=log)
    os.sched_setaffinity(process.pid, {sorted(os.sched_getaffinity(0))[core]})
    return process


@contextmanager
def _tree(commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary worktree, and remove it when the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="cost-tree-"))
    _git("worktree", "add", "--detach", str(folder), commit)
    try:
        yield folder
    finally:
        _git("worktree", "remove", "--force", str(folder))


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    main()
