"""Fuzz input files, recipes, settings, flags and models: no traceback, no hang, no unbounded memory or message.

    python benchmarks/fuzz.py                  # 10,000 files, 3,000 recipes, --set and flags, all models: half an hour
    python benchmarks/fuzz.py --files 500 --recipes 300

Every batch of cases runs in a forked process, so that crashes of libraries are detected too. Memory is the peak during
a case, minus what the process held before it.
"""

import argparse
import json
import logging
import multiprocessing
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import fuzz_cases
import fuzz_models
from hypothesis import HealthCheck, Phase, given, seed, settings

MODEL = Path(__file__).resolve().parents[2] / "shared" / "models" / "plm-mini-simcse"
BATCH = 500
BATCH_SECONDS = 600
PROCESSES = 3
MEGABYTES = 300


@dataclass
class Outcome:
    """Counts, faults and highest costs of the cases of one kind."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    slowest_seconds: float = 0.0
    most_megabytes: float = 0.0
    faults: list[str] = field(default_factory=list)

    def add(self, run: Callable[[], tuple[str, str]], case: object) -> None:
        """Run a case and record its outcome."""
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
        before, started = _kilobytes("VmRSS"), time.monotonic()
        how, wrong = run()
        self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - started)
        megabytes = (_kilobytes("VmHWM") - before) / 1024
        self.most_megabytes = max(self.most_megabytes, megabytes)
        self.cases += 1
        self.accepted += how == "accepted"
        self.refused += how == "refused"
        if wrong or megabytes > MEGABYTES:
            self.faults.append(f"{wrong or f'{megabytes:.0f} MB'}: {repr(case)[:300]}")

    def join(self, other: "Outcome") -> None:
        """Add the outcome of other cases."""
        self.cases += other.cases
        self.accepted += other.accepted
        self.refused += other.refused
        self.slowest_seconds = max(self.slowest_seconds, other.slowest_seconds)
        self.most_megabytes = max(self.most_megabytes, other.most_megabytes)
        self.faults += other.faults


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


def main() -> None:
    """Run all cases and write the table of outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--recipes", type=int, default=3_000, help="so many recipes, --set and command lines each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default=str(Path(__file__).with_name("results") / "fuzz.md"))
    args = parser.parse_args()
    output = Path(args.output).resolve()
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TRANSENCODER_CACHE"] = str(Path(scratch) / "cache")
        os.chdir(scratch)
        outcomes = {
            "input files": _drawn(args.files, args.seed, fuzz_cases.input_files(), fuzz_cases.read),
            "recipes": _drawn(args.recipes, args.seed, fuzz_cases.recipe_files(), fuzz_cases.load_recipe),
            "`--set`": _drawn(args.recipes, args.seed, fuzz_cases.overrides(), fuzz_cases.load_override),
            "command lines": _drawn(
                args.recipes, args.seed, fuzz_cases.arguments(), lambda case, _: fuzz_cases.parse(case)
            ),
            "models": _models(),
        }
    output.write_text("\n".join(_table(outcomes)) + "\n", encoding="utf-8")
    print(output.read_text(encoding="utf-8"))


def _drawn(n: int, first_seed: int, strategy: Any, run: Callable[[Any, Path], tuple[str, str]]) -> Outcome:
    """Draw n cases from a strategy and run them in batches."""

    def batch(number: int) -> Outcome:
        outcome = Outcome()

        @seed(f"{first_seed} {number}")
        @settings(
            max_examples=min(BATCH, n - number * BATCH),
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def each(case: Any) -> None:
            outcome.add(lambda: run(case, Path()), case)

        each()
        return outcome

    return _in_processes(batch, range(-(-n // BATCH)))


def _models() -> Outcome:
    """Load each hostile model, in a process of its own."""

    def load(name: str) -> Outcome:
        outcome, copy = Outcome(), Path("hostile-model").resolve()
        shutil.copytree(MODEL, copy)
        try:
            fuzz_models.MODELS[name](copy)
            outcome.add(lambda: fuzz_models.load(copy), name)
        finally:
            shutil.rmtree(copy)
        return outcome

    return _in_processes(load, fuzz_models.MODELS)


def _in_processes(run: Callable[[Any], Outcome], parts: Any) -> Outcome:
    """Run each part in a forked process, `PROCESSES` at a time."""
    total = Outcome()
    with ThreadPoolExecutor(PROCESSES) as threads:
        for outcome in threads.map(lambda part: _in_process(run, part), parts):
            total.join(outcome)
            print(f"{total.cases} cases, {len(total.faults)} faults", *outcome.faults, sep="\n", flush=True)
    return total


def _in_process(run: Callable[[Any], Outcome], part: Any) -> Outcome:
    """Run a part in a forked process; return a fault if the process dies or does not end in time."""
    forked = multiprocessing.get_context("fork")
    ours, theirs = forked.Pipe()
    process = forked.Process(target=_send, args=(run, part, theirs))
    process.start()
    theirs.close()
    try:
        return Outcome(**json.loads(ours.recv())) if ours.poll(BATCH_SECONDS) else Outcome(faults=[f"{part}: no end"])
    except EOFError:
        return Outcome(faults=[f"{part}: the process has died"])
    finally:
        process.kill()
        process.join()


def _send(run: Callable[[Any], Outcome], part: Any, connection: Connection) -> None:
    os.chdir(tempfile.mkdtemp(dir="."))
    connection.send(json.dumps(asdict(run(part))))


def _table(outcomes: dict[str, Outcome]) -> Iterator[str]:
    yield "# Fuzzed inputs"
    yield ""
    yield (
        f"Each is accepted, or refused by one error of at most {fuzz_cases.LONGEST_MESSAGE:,} characters that names "
        f"the file, in {fuzz_cases.SECONDS} s and {MEGABYTES} MB; all else is a fault. {platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} CPUs, with other work beside."
    )
    yield ""
    yield "| what | cases | accepted | refused | faults | slowest, s | most memory, MB |"
    yield "|---|---|---|---|---|---|---|"
    for name, each in outcomes.items():
        yield (
            f"| {name} | {each.cases:,} | {each.accepted:,} | {each.refused:,} | {len(each.faults):,} | "
            f"{each.slowest_seconds:.1f} | {each.most_megabytes:.0f} |"
        )
    for name, each in outcomes.items():
        yield from (f"\n{name}: `{fault}`" for fault in each.faults)


if __name__ == "__main__":
    main()
