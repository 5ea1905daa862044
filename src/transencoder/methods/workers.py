"""Members side by side: processes that each compute the stages of some members, while this one does the rest."""

import logging
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from transencoder import distributed, progress
from transencoder.errors import InputError, RunError
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.runs import Crew, Run
from transencoder.settings import method_name

REFUSED = 2
"""Exit code of a worker that met what it cannot use, and said so."""

_MEMBER = re.compile(r"(?:^|/)member-(\d+)/")
_ENDED_SECONDS = 10.0


@dataclass(frozen=True)
class Part:
    """What a worker is told."""

    config: TransEncoder
    """As the user gave it, but for its precision; the device is the worker's own."""
    data: tuple[str, ...]
    """Fingerprints of the training pairs, the dev set and the tests."""
    log_level: int
    """Progress below it is not shown."""
    number: int
    """From 0."""
    n_workers: int
    parent: int
    """Process id; without that process a worker ends."""

    @property
    def place(self) -> str:
        """The worker's folder in the run folder."""
        return f"workers/{self.number + 1}"


def n_workers(config: TransEncoder) -> int:
    """How many processes train members; 1: this one alone.

    Args:
        config: As the user gave it: a device that is named is the only one.

    Raises:
        InputError: Several are asked for where there can be one only.
    """
    alone = ""
    if distributed.world_size() > 1:
        alone = "under torchrun, whose processes share each model"
    elif "-" in (config.pairs, config.sentences, config.documents, config.extra_pairs, config.labelled):
        alone = "with pairs from stdin, which one process alone can read"
    if alone and (config.workers or 1) > 1:
        raise InputError(f"workers is {config.workers}, {alone}; leave it out")
    if alone or len(config.members) == 1 or config.alternate_members:
        return 1
    n_gpus = torch.cuda.device_count() if config.device is None else 1
    return min(config.workers or max(n_gpus, 1), len(config.members))


def spent(stages: Iterable[Mapping[str, Any]], n_workers: int) -> float:
    """Seconds that stages take by the clock: those of the workers go side by side.

    Args:
        stages: As `Run.stages` lists them.
        n_workers: How many processes train members.
    """
    seconds: dict[int | None, float] = {}
    for stage in stages:
        who = owner(stage["name"], n_workers) if n_workers > 1 else None
        seconds[who] = seconds.get(who, 0.0) + stage["seconds"]
    own = seconds.pop(None, 0.0)
    return own + max(seconds.values(), default=0.0)


def owner(stage: str, n_workers: int) -> int | None:
    """The worker that computes a stage: the one of its member; None: no worker."""
    found = _MEMBER.search(stage)
    return None if found is None else (int(found[1]) - 1) % n_workers


@contextmanager
def workers(config: TransEncoder, data: tuple[str, ...], n_workers: int, run: Run) -> Iterator[None]:
    """Have workers compute the members' stages of a run while it is open; with one worker this process does all.

    Args:
        config: As the user gave it, but for its precision, which may not be each GPU's own.
        data: Fingerprints of the pairs, the dev set and the tests: a worker that reads others ends.
        n_workers: How many.
        run: The run.

    Raises:
        InputError: A worker met something that cannot be used; it has said what.
        RunError: A worker died; the others are ended, and what is finished is kept.
    """
    if n_workers == 1:
        yield
        return
    processes: list[subprocess.Popen[bytes]] = []
    log_level = logging.getLogger(progress.__name__).getEffectiveLevel()
    try:
        for number in range(n_workers):
            processes.append(_started(Part(config, data, log_level, number, n_workers, os.getpid())))
        run.crew = Crew(
            is_elsewhere=lambda stage: owner(stage, n_workers) is not None,
            check=lambda stage: _check(processes, stage),
        )
        yield
    finally:
        run.crew = None
        _end(processes)


def join(part: Part, config: TransEncoder, work: Callable[[Run], None]) -> None:
    """A worker's side: open the run beside the process that has it, and work until its own stages are done.

    Args:
        part: What the worker is told.
        config: Its config with its device, variables filled in.
        work: Goes through all stages of the run, those of others waited for.
    """

    def check(_: str) -> None:
        if os.getppid() != part.parent:
            raise RunError("the process that has the run is gone; run its command again")

    mine = Crew(is_elsewhere=lambda stage: owner(stage, part.n_workers) != part.number, check=check)
    details = {"device": config.device, "threads": torch.get_num_threads()}
    method = method_name(type(config))
    with Run.join(config.output, part.place, method, mine, details=details, lenders=config.reuse_from) as run:
        work(run)


def _started(part: Part) -> "subprocess.Popen[bytes]":
    config, environment = part.config, dict(os.environ)
    if not torch.cuda.is_available() or str(config.device).startswith("cpu"):
        environment["OMP_NUM_THREADS"] = str(max(1, torch.get_num_threads() // part.n_workers))
    elif config.device is None:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
        names = seen.split(",")
        environment["CUDA_VISIBLE_DEVICES"] = names[part.number % len(names)]
    process = subprocess.Popen(
        [sys.executable, "-m", "transencoder.methods.worker"],
        stdin=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # a Ctrl-C is ours to deal with
    )
    assert process.stdin is not None
    process.stdin.write(pickle.dumps(part))
    process.stdin.close()
    return process


def _check(processes: "list[subprocess.Popen[bytes]]", stage: str) -> None:
    for number, process in enumerate(processes, 1):
        code = process.poll()
        if code == REFUSED:
            raise InputError(f"worker {number} of {len(processes)} cannot go on: see above")
        if code is not None and (code != 0 or owner(stage, len(processes)) == number - 1):
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code} (see above)"
            raise RunError(
                f"worker {number} of {len(processes)} {how} while {stage} was waited for. Finished stages are kept: "
                "the same command goes on from the last checkpoints"
            )


def _end(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(_ENDED_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
