"""Ranks under torchrun or accelerate launch; one process otherwise."""

import atexit
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist

from transencoder.errors import RunError
from transencoder.files import scratch_folder

T = TypeVar("T")

_WAITS = timedelta(days=2)


def start() -> None:
    """Join the process group, until the process ends, when the launcher started several; nothing otherwise."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        kind = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(kind, timeout=_WAITS)  # while the first makes an index, others wait
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        atexit.register(_leave)  # its threads may abort an interpreter that ends around them


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """Return this process's rank, 0 when alone."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes, 1 when alone."""
    return dist.get_world_size() if dist.is_initialized() else 1


def barrier() -> None:
    """Wait for every rank."""
    if dist.is_initialized():
        dist.barrier()


def broadcast(value: T) -> T:
    """Return rank 0's value, on every rank."""
    if not dist.is_initialized():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def from_first(action: Callable[[], T]) -> T:
    """Run an action on rank 0 alone; every rank returns its value.

    Raises:
        RunError: On the other ranks, where it failed on rank 0, which raises the error itself.
    """
    value, failure = None, None
    if rank() == 0:
        try:
            value = action()
        except Exception as error:
            failure = error
    value, reason = broadcast((value, None if failure is None else str(failure)))
    if failure is not None:
        raise failure
    if reason is not None:
        raise RunError(f"rank 0 failed: {reason}")
    return value  # type: ignore[return-value]


def own_rows(n_rows: int) -> slice:
    """Return which of n rows are this rank's; of fewer rows than ranks some have none."""
    return slice(rank() * n_rows // world_size(), (rank() + 1) * n_rows // world_size())


def gather(value: T) -> list[T]:
    """Return every rank's value in the order of ranks, on every rank."""
    values = [value] * world_size()
    if dist.is_initialized():
        dist.all_gather_object(values, value)
    return values


@contextmanager
def shared_folder(parent: Path | None = None) -> Iterator[Path]:
    """Give a scratch folder of the first rank to all of them; see `scratch_folder` for `parent`.

    Raises:
        RunError: Another rank does not see it.
    """
    with scratch_folder(parent) if rank() == 0 else nullcontext() as own:
        folder = broadcast(own)
        assert folder is not None, "the first rank has made it"
        if not all(gather(folder.is_dir())):
            raise RunError(f"{folder}, for temporary files, is not seen by all processes; have it on a shared disk")
        yield folder
        barrier()


def concatenate(part: np.ndarray) -> np.ndarray:
    """Join every rank's part in the order of ranks, on every rank."""
    parts = gather(part)
    return part if len(parts) == 1 else np.concatenate(parts)


def average_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Give every rank the mean of all ranks' gradients of parameters that no DDP wrapper sees, such as a loss's."""
    if not dist.is_initialized():
        return

    def mean(gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total / world_size()

    for parameter in parameters:
        parameter.register_hook(mean)  # type: ignore[no-untyped-call]
