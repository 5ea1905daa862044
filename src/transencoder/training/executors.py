"""Executors of a run's stages: this process, or worker processes that each have some of the members."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self

import torch

from transencoder import distributed, progress
from transencoder.context import Work
from transencoder.errors import InputError, RunError
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.runs import Run, Stage, StageRecord
from transencoder.tokens import TokenCache


class LocalExecutor:
    """Executor that computes the stages of an open run in this process, one by one; under torchrun, on every rank."""

    def __init__(self, run: Run, device: str, report_to: tuple[str, ...] = ()) -> None:
        self.run = run
        self.progress = progress.Run({})
        cache = TokenCache(run.folder / "tokens")
        self._work = partial(Work, run_folder=run.folder, device=device, cache=cache, report_to=report_to)

    def make(self, stages: Sequence[Stage[Any]]) -> list[StageRecord]:
        """Return the records of stages; compute those that are not done.

        Raises:
            RunError: The disk is full. Errors that a stage raises are not changed.
        """
        return [self._make(stage) for stage in stages]

    def _make(self, stage: Stage[Work]) -> StageRecord:
        def compute(folder: Path) -> Mapping[str, Any]:
            work = self._work(folder=folder)
            computed = stage.compute(work)
            return stage.write(work, computed) if self.run.is_first else {}

        with self.progress.stage(stage.key, stage.name):
            return self.run.stage(
                stage.name,
                config=stage.key_settings,
                inputs=stage.key_inputs,
                compute=compute,
                can_be_copied=not stage.is_of_machine,
            )


REFUSED = 2
"""Exit code of a worker that stopped at an InputError, which it has logged."""

_MEMBER = re.compile(r"(?:^|/)member-(\d+)/")
_ENDED_SECONDS = 10.0
_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


@dataclass(frozen=True)
class Part:
    """Settings that a worker receives before its stages."""

    folder: str
    """The run folder."""
    method: str
    device: str | None
    """Device as the user gave it; None: the worker's default."""
    attn_implementation: str | None
    report_to: tuple[str, ...]
    reuse_from: tuple[str, ...]
    log_level: int
    """Level below which progress is not shown."""
    number: int
    """Number of the worker, from 0."""
    n_workers: int
    parent: int
    """Process id of the parent; the worker ends when the parent does."""


def n_workers(config: TransEncoder) -> int:
    """Return the number of processes that train members; 1: only this one.

    Args:
        config: Config as the user gave it: if it names a device, no other is used.

    Raises:
        InputError: Several workers are asked for, but only one is possible.
    """
    is_distributed = distributed.world_size() > 1
    if is_distributed and (config.workers or 1) > 1:
        raise InputError(f"workers is {config.workers}, under torchrun, whose processes share each model; leave it out")
    if is_distributed or len(config.members) == 1 or config.alternate_members:
        return 1
    n_gpus = torch.cuda.device_count() if config.device is None else 1
    return min(config.workers or max(n_gpus, 1), len(config.members))


def spent(stages: Iterable[Mapping[str, Any]], n_workers: int) -> float:
    """Return the wall-clock seconds that stages take: workers compute theirs in parallel."""
    seconds: dict[int | None, float] = {}
    for stage in stages:
        who = owner(stage["name"], n_workers) if n_workers > 1 else None
        seconds[who] = seconds.get(who, 0.0) + stage["seconds"]
    own = seconds.pop(None, 0.0)
    return own + max(seconds.values(), default=0.0)


def owner(stage: str, n_workers: int) -> int | None:
    """Return the number of the worker that computes a stage, that of its member; None: no worker."""
    found = _MEMBER.search(stage)
    return None if found is None else (int(found[1]) - 1) % n_workers


class Workers:
    """Executor that sends the stages of members to worker processes, and computes all others in this process.

    As a context manager it ends the workers on exit; finished stages are kept.
    """

    def __init__(self, local: LocalExecutor, parts: Sequence[Part]) -> None:
        self.local = local
        self.parts = parts
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection[Any, Any]] = []

    def make(self, stages: Sequence[Stage[Any]]) -> list[StageRecord]:
        """Return the records of stages that do not depend on each other; workers compute theirs in parallel.

        Raises:
            InputError: A worker stopped at an InputError, which it has logged.
            RunError: A worker died.
        """
        owners = [owner(stage.name, len(self.parts)) for stage in stages]
        queues = [deque(s for s, who in zip(stages, owners, strict=True) if who == i) for i in range(len(self.parts))]
        for number, queue in enumerate(queues):
            self._send(number, queue)
        reused: dict[str, bool] = {}
        own = [stage for stage, who in zip(stages, owners, strict=True) if who is None]
        made = {stage.key: self.local.make([stage])[0] for stage in own}
        while busy := [self._connections[number] for number, queue in enumerate(queues) if queue]:
            for connection in wait(busy):
                number = self._connections.index(connection)  # type: ignore[arg-type]
                stage = queues[number].popleft()
                reused[stage.key] = self._receive(number, stage)
                self._send(number, queues[number])
        return [
            made.get(stage.key) or self.local.run.adopt(stage.name, stage.key, reused=reused[stage.key])
            for stage in stages
        ]

    def __enter__(self) -> Self:
        """Start the workers."""
        try:
            for part in self.parts:
                process, connection = _started(part)
                self._processes.append(process)
                self._connections.append(connection)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers."""
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            process.terminate()  # before its connection is closed, which it might log
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            _exit_code(process)

    def _send(self, number: int, queue: deque[Stage[Any]]) -> None:
        """Send the first stage of a worker's queue to the worker, if there is one."""
        if queue:
            try:
                self._connections[number].send(queue[0])
            except OSError as error:
                raise self._error(number, queue[0].name) from error

    def _receive(self, number: int, stage: Stage[Any]) -> bool:
        """Wait until a worker has finished a stage, and return whether the stage was done before."""
        try:
            return bool(self._connections[number].recv())
        except (EOFError, OSError) as error:
            raise self._error(number, stage.name) from error

    def _error(self, number: int, stage: str) -> InputError | RunError:
        """Return the error to raise for a worker that ended before its stage was done."""
        code = _exit_code(self._processes[number])
        n_workers = len(self._processes)
        if code == REFUSED:
            return InputError(f"worker {number + 1} of {n_workers} cannot go on: see above")
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code} (see above)"
        return RunError(
            f"worker {number + 1} of {n_workers} {how} while {stage} was waited for. Finished stages are kept: "
            "the same command goes on from the last checkpoints"
        )


def parts_of(config: TransEncoder, given_device: str | None, method: str, n_workers: int) -> list[Part]:
    """Return the settings of each worker."""
    log_level = logging.getLogger(progress.__name__).getEffectiveLevel()
    return [
        Part(
            folder=config.output,
            method=method,
            device=given_device,
            attn_implementation=config.attn_implementation,
            report_to=config.report_to,
            reuse_from=config.reuse_from,
            log_level=log_level,
            number=number,
            n_workers=n_workers,
            parent=os.getpid(),
        )
        for number in range(n_workers)
    ]


def _started(part: Part) -> tuple[subprocess.Popen[bytes], Connection[Any, Any]]:
    """Start a worker, with the GPU of its number or its share of the threads, and send it its settings."""
    environment = dict(os.environ)
    if not torch.cuda.is_available() or str(part.device).startswith("cpu"):
        environment["OMP_NUM_THREADS"] = str(max(1, torch.get_num_threads() // part.n_workers))
    elif part.device is None:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
        names = seen.split(",")
        environment["CUDA_VISIBLE_DEVICES"] = names[part.number % len(names)]
    connection, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "transencoder.training.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            start_new_session=True,  # this process handles Ctrl-C
            preexec_fn=_end_with_parent(),  # noqa: PLW1509, the child calls the kernel and nothing else
        )
    with suppress(BrokenPipeError):  # it has ended already, as is found when it is listened to
        connection.send(part)
    return process, connection


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process that is about to end, which is killed if it does not."""
    try:
        return process.wait(_ENDED_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _end_with_parent() -> Callable[[], object] | None:
    """Return a function for the child that has Linux kill it once its parent has ended; None on other systems."""
    if sys.platform != "linux":
        return None  # there the worker itself checks whether its parent still runs
    return partial(ctypes.CDLL(None).prctl, _PARENT_DEATH_SIGNAL, signal.SIGKILL)
