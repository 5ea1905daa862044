"""Communication between ranks under torchrun or accelerate launch; without these there is one rank."""

import atexit
import os
import threading
import time
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
from transencoder.runs import Ranks

T = TypeVar("T")

_WAITS = timedelta(days=2)
_WATCH_SECONDS = 0.5


def start() -> None:
    """Join the process group until the process ends, if the launcher started several processes; else do nothing."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        kind = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(kind, timeout=_WAITS)  # others wait while the first builds an index
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        atexit.register(_leave)  # its threads may abort an interpreter that exits while they run


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def end_with(parent: int) -> None:
    """Start to watch a parent process, and exit at once when it ends, so that no child outlives a killed command."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


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
    """Return the value of rank 0 on every rank."""
    if not dist.is_initialized():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def gather(value: T) -> list[T]:
    """Return the values of all ranks, in the order of ranks, on every rank."""
    values = [value] * world_size()
    if dist.is_initialized():
        dist.all_gather_object(values, value)
    return values


def ranks() -> Ranks:
    """Return this process's rank, and how it communicates with the others."""
    return Ranks(rank=rank(), barrier=barrier, broadcast=broadcast, gather=gather)


def from_first(action: Callable[[], T]) -> T:
    """Run an action on rank 0 alone, and return its value on every rank.

    Raises:
        RunError: On the other ranks, if the action failed on rank 0, which raises the error itself.
    """
    return ranks().from_first(action)


def own_rows(n_rows: int) -> slice:
    """Return the slice of n rows that belongs to this rank; with fewer rows than ranks it may be empty."""
    return slice(rank() * n_rows // world_size(), (rank() + 1) * n_rows // world_size())


@contextmanager
def shared_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield a scratch folder made by rank 0, the same one on every rank; see `scratch_folder` for `parent`.

    Raises:
        RunError: Another rank does not see the folder.
    """
    with scratch_folder(parent) if rank() == 0 else nullcontext() as own:
        folder = broadcast(own)
        assert folder is not None, "the first rank has made it"
        if not all(gather(folder.is_dir())):
            raise RunError(f"{folder}, for temporary files, is not seen by all processes; have it on a shared disk")
        yield folder
        barrier()


def concatenate(part: np.ndarray) -> np.ndarray:
    """Concatenate the parts of all ranks, in the order of ranks, on every rank."""
    parts = gather(part)
    return part if len(parts) == 1 else np.concatenate(parts)


def average_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Average the gradients of parameters that no DDP wrapper sees, such as those of a loss, over all ranks."""
    if not dist.is_initialized():
        return

    def mean(gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total / world_size()

    for parameter in parameters:
        parameter.register_hook(mean)  # type: ignore[no-untyped-call]
