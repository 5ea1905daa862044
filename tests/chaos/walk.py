"""Crash a command, run it again from what the crash left, and compare: each attempt is a fork of this process."""

import gc
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from tests.chaos.commands import Command
from tests.chaos.crashes import Crash, Crashes, Files, Recorder, hashes

_TIMES = re.compile(
    r"(stage|environment|result|index|recipe)\.json$|log\.jsonl$|report\.(html|md)$|README\.md$|\.lock$|tmp/\.ses$"
)
"""Files that tell of times and sources, or are another library's, and so differ from run to run."""
_SAYS = re.compile(r"damaged|has changed|cannot be (used|read)|is missing|again|bytes instead of")
_CLOCK = re.compile(r"\b\d\d:\d\d:\d\d\b")
_WHOLE = re.compile(r"is there already")
_CACHES = re.compile(r"(out/tokens|cache|tmp)(/|$)")
"""What may be made when it is needed."""
_LONGEST_SECONDS = 120.0


@dataclass(frozen=True)
class Outcome:
    """What came of a crash."""

    operation: str
    kind: str
    verdict: str
    """`same`; `said`: the same, and a line said what was damaged; `whole`: refused, for all is there; else a fault."""
    detail: str = ""

    @property
    def is_fault(self) -> bool:
        return self.verdict not in ("same", "said", "whole")


class Walk:
    """A command's crashes; its folder is `folder/work`, and nothing else may use it meanwhile."""

    def __init__(self, command: Command, given: Path, folder: Path, *, has_all_cuts: bool = True) -> None:
        self.command, self.folder, self.work = command, folder, folder / "work"
        self.argv = command.argv.format(given=given).split()
        self.crashes = Crashes(folder / "journal", has_all_cuts)
        self.whole: Files = {}
        self.usual = ""

    def record(self) -> list[Crash]:
        """Run the command; return the distinct states that a crash of it can leave."""
        self._empty()
        self.crashes.journal.unlink(missing_ok=True)
        code, self.usual = self.run(Recorder(self.work, self.crashes.journal))
        if code:
            raise AssertionError(f"undisturbed: exit code {code}\n{self.usual}")
        self.whole = hashes(self.work)
        return list(self.crashes)

    def try_all(self, crashes: Iterable[Crash]) -> Iterator[Outcome]:
        """Yield what comes of each crash: of outputs that were said to be whole, and of the command's next run."""
        for crash in crashes:
            self.crashes.restore(crash, self.work)
            lost = self._lost(crash)
            yield self._after(crash.operation, crash.kind, lost)

    def fail(self, at: int, error: int) -> Outcome:
        """Let the operation of a number fail; then run the command again."""
        self._empty()
        code, output = self.run(Recorder(self.work, self.folder / "unused", fail_at=at, error=error))
        wrong = "" if code in (0, 2, 3) and "Traceback" not in output else f"exit code {code}\n{output}"
        return self._after(f"operation {at}", os.strerror(error), wrong)

    def kill(self, n_kills: int, seed: int) -> Outcome:
        """Kill the command by SIGKILL at random moments, from outside; then let it end."""
        randomly = random.Random(seed)
        self._empty()
        started = time.monotonic()
        self.run()
        seconds, self.whole = time.monotonic() - started, hashes(self.work)
        self._empty()
        for _ in range(n_kills):
            self.run(kill_after=randomly.uniform(0.0, 0.8) * seconds)
        return self._after(f"{n_kills} random moments, seed {seed}", "SIGKILL")

    def _after(self, operation: str, kind: str, wrong: str = "") -> Outcome:
        code, output = self.run()
        verdict, detail = self._compare()
        if wrong:
            verdict, detail = "wrong before", wrong
        elif verdict == "same" and code:
            verdict, detail = "whole" if code == 2 and _WHOLE.search(output) else f"exit code {code}", output
        elif verdict == "same" and (said := self._damage_said(output)):
            verdict, detail = "said", said
        lines = [line for line in re.split("[\r\n]+", detail.replace(str(self.work), "")) if line.strip()]
        return Outcome(operation, kind, verdict, "\n".join(lines[-3:])[-1000:])

    def _damage_said(self, output: str) -> str:
        """Return the lines that tell of damage and are not printed undisturbed."""
        lines = [_CLOCK.sub("", line) for line in output.splitlines() if _SAYS.search(line)]
        return "\n".join(line for line in lines if line not in self.usual)

    def _lost(self, crash: Crash) -> str:
        """Tell what is not whole of outputs that are said to be."""
        if self.command.done not in crash.files and crash.operation != "end ":
            return ""
        return "; ".join(
            path
            for path, digest in self.whole.items()
            if f"{path}/".startswith(tuple(f"{output}/" for output in self.command.outputs))
            and (path not in crash.files or (crash.files[path] != digest and not _TIMES.search(path)))
        )

    def _compare(self) -> tuple[str, str]:
        found = hashes(self.work)
        other = [path for path in self.whole if path not in found and not _CACHES.match(path)]
        other += [p for p, digest in found.items() if self.whole.get(p, digest) != digest and not _TIMES.search(p)]
        left = [path for path in found if path not in self.whole]
        if other:
            return "another result", ", ".join(other)
        if left:
            return "left behind", ", ".join(left)
        return "same", ""

    def _empty(self) -> None:
        self.crashes.restore(Crash("", "", {}), self.work)

    def run(self, recorder: Recorder | None = None, kill_after: float | None = None) -> tuple[int, str]:
        """Run the command in a fork; return its exit code, negative for a signal, and what it printed."""
        with tempfile.TemporaryFile(dir=self.folder) as printed:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which are not used here
                process = os.fork()
            if process == 0:
                for number, name in ((1, "stdout"), (2, "stderr")):
                    os.dup2(printed.fileno(), number)
                    setattr(sys, name, open(number, "w", closefd=False))
                _become(self.work, self.argv, recorder)
            code = _wait(process, _LONGEST_SECONDS if kill_after is None else kill_after)
            printed.seek(0)
            return code, printed.read().decode(errors="replace")


def _become(work: Path, argv: list[str], recorder: Recorder | None) -> None:
    code = 1
    try:
        import torch
        from tqdm import tqdm

        from transencoder.cli import main
        from transencoder.report import figures
        from transencoder.training import executors

        torch.set_num_threads(1)  # a fork has no others
        tqdm.set_lock(threading.RLock())  # its own is shared by forks: one that is killed with it would stop all
        executors._started = _forked_worker
        figures.draw = lambda plot, png: png.write_bytes(b"a plot") and plot.title
        for name in ("tmp", "cache"):
            (work / name).mkdir(exist_ok=True)
        os.environ |= {"TMPDIR": str(work / "tmp"), "TRANSENCODER_CACHE": str(work / "cache")}
        tempfile.tempdir = str(work / "tmp")  # looked for, it would be tried with a file
        os.chdir(work)
        if recorder is not None:
            recorder.arm()
        code = main([*argv, "--quiet"])
        if recorder is not None:
            recorder.end()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _forked_worker(part: object) -> tuple[object, object]:
    """Stand in for a worker's process, which would take seconds to import everything."""
    from multiprocessing import Pipe

    from transencoder.training import worker

    connection, theirs = Pipe()
    process = os.fork()
    if process == 0:
        connection.close()
        sys.argv = ["worker", str(theirs.fileno())]
        os._exit(worker.main())
    theirs.close()
    connection.send(part)
    return SimpleNamespace(
        terminate=lambda: os.kill(process, signal.SIGKILL),
        kill=lambda: os.kill(process, signal.SIGKILL),
        wait=lambda timeout=None: _wait(process, 60),
    ), connection


def _wait(process: int, seconds: float) -> int:
    """Wait for a process; kill it, with its workers, when the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def warm_up(command: Command, given: Path, folder: Path) -> None:
    """Run a command in this process, so that its forks find all that it imports and makes once."""
    from tqdm import tqdm

    from transencoder.cli import main

    tqdm.monitor_interval = 0  # no thread of its own
    folder.mkdir()
    os.chdir(folder)
    if main([*command.argv.format(given=given).split(), "--quiet"]):
        raise AssertionError("the command to warm up with failed")
    gc.freeze()
