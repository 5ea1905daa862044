"""Crash every command at each of its file operations, run it again, and compare with an undisturbed run.

    python benchmarks/chaos.py                         # all commands: hours
    python benchmarks/chaos.py --only mine --only score

Three kinds of failure are tried on each command, with tiny models:

- crashes: one run is recorded (`tests/chaos/crashes.py`). The command then continues from every distinct state that a
  SIGKILL or a power cut before one of its file operations can leave. A power cut keeps what was synced. Files that were
  not synced are emptied, halved or zeroed, or all files and names return to their last synced state. These four kinds
  of power cut alternate (`--all-cuts`: all four at every operation).
- errors: an operation fails with "no space left" or an input/output error, at evenly spaced operations.
- kills: real SIGKILLs from outside, at random moments, three before the command is allowed to end.

Each time, all files and their SHA-256 must equal those of the undisturbed run, except for caches and for times in
records, and no other file may be left. In every state in which the record says that outputs are complete, they must be
complete before the next run.

The package ckpt-chaos (0.1.8) was tried and is not used. It starts a process for each crash, which takes ten seconds
where a fork takes one. It does not lose names that were not synced, does not see files outside the output folder, and
compares only one file.
"""

import argparse
import errno
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_name("results")
VERDICTS = ("same", "said", "whole")


def main() -> None:
    """Test the commands, and write the record and the page after each one."""
    args = _arguments()
    folder = Path(args.folder or tempfile.mkdtemp(prefix="transencoder-chaos-"))
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_DATASETS_CACHE": str(folder / "datasets"),
    }
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    from tests.chaos.commands import COMMANDS, write_given
    from tests.chaos.walk import warm_up

    write_given(folder / "given")
    warm_up(COMMANDS["self"], folder / "given", folder / "warm")
    record = json.loads(args.record.read_text()) if args.record.exists() else {}
    for name in args.only or COMMANDS:
        record[name] = _measure(name, folder, args)
        args.record.write_text(json.dumps(record, indent=1) + "\n")
        args.record.with_suffix(".md").write_text(page(record))
    sys.exit(any(row["faults"] for row in record.values()))


def _measure(name: str, folder: Path, args: argparse.Namespace) -> dict[str, object]:
    from tests.chaos.commands import COMMANDS
    from tests.chaos.walk import Walk

    started = time.monotonic()
    walk = Walk(COMMANDS[name], folder / "given", folder / name, has_all_cuts=args.all_cuts)
    crashes = walk.record()
    n_operations = walk.crashes.n_operations
    print(f"{name}: {n_operations} operations, {len(crashes)} states", flush=True)
    counts: dict[str, Counter[str]] = {}
    faults = []

    def note(how: str, outcome: object) -> None:
        counts.setdefault(how, Counter())[outcome.verdict if not outcome.is_fault else "fault"] += 1
        print(
            name, outcome.kind, outcome.operation, outcome.verdict, repr(outcome.detail[-300:]), sep=" | ", flush=True
        )
        if outcome.is_fault:
            faults.append(asdict(outcome))

    for outcome in walk.try_all(crashes[:: args.every]):
        note("killed" if outcome.kind == "killed" else "power cut", outcome)
    for i in range(args.errors):
        at = 1 + i * (n_operations - 2) // args.errors
        note("error", walk.fail(at, (errno.EIO, errno.ENOSPC)[i % 2]))
    for seed in range(args.kills):
        note("SIGKILL", walk.kill(3, seed))
    return {
        "argv": walk.command.argv,
        "operations": n_operations,
        "states": len(crashes),
        "every": args.every,
        "counts": counts,
        "faults": faults,
        "minutes": round((time.monotonic() - started) / 60, 1),
    }


def page(record: dict[str, dict]) -> str:
    """Return the page of results: a row for each command and kind of failure."""
    lines = [
        "# Crashes",
        "",
        "Made by `benchmarks/chaos.py`, which says what is done. `same`: the command, run again, left the same SHA-256 "
        "of every file and nothing else; `said`: so too, and a line said what was damaged or done again; `whole`: it "
        "refused, as all that it makes was there, whole. Where fewer states were tried, killed and power cut together, "
        "than there are, they were spread evenly.",
        "",
        "| command | file operations | states of the disk | crash | tried | same | said | whole | faults |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for name, row in record.items():
        for how, counts in row["counts"].items():
            cells = [counts.get(verdict, 0) for verdict in (*VERDICTS, "fault")]
            shown = [name, row["operations"], row["states"], how, sum(counts.values()), *cells]
            lines.append(f"| {' | '.join(map(str, shown))} |")
    return "\n".join(lines) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="a command; repeatable")
    parser.add_argument("--all-cuts", action="store_true", help="every kind of power cut at every operation")
    parser.add_argument("--every", type=int, default=1, help="try one state of so many")
    parser.add_argument("--errors", type=int, default=24, help="operations that fail, of each command")
    parser.add_argument("--kills", type=int, default=5, help="times that a command is killed thrice and goes on")
    parser.add_argument("--folder", help="where all is done; default: a temporary folder, kept")
    parser.add_argument("--record", type=Path, default=RESULTS / "chaos.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
