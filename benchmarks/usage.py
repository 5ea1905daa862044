"""Measurements that a side of a comparison reports: seconds by stage and of imports, peak memory, also of a GPU."""

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch


class Usage:
    """A stopwatch with stages.

    Create it after the imports: it records how long the process has run until then.
    """

    def __init__(self) -> None:
        self.import_seconds = time.time() - float(os.environ["BENCHMARK_STARTED"])  # set by the parent at the start
        self.stages: dict[str, float] = {}
        self._started = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the block as a stage."""
        started = time.perf_counter()
        yield
        self.stages[name] = time.perf_counter() - started

    def write(self, path: Path, **more: Any) -> None:
        """Write the record. The total time ends here."""
        record = {
            "seconds": time.perf_counter() - self._started,
            "import_seconds": self.import_seconds,
            "peak_rss_bytes": peak_rss_bytes(),
            "peak_gpu_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0,
            "stages": self.stages,
        }
        path.write_text(json.dumps(record | more))


def peak_rss_bytes() -> int:
    """Return the largest resident memory of this process so far.

    On Linux `ru_maxrss` would begin with the memory of the parent, which may be a benchmark that measured before.
    """
    if sys.platform == "linux":
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
