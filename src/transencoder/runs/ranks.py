"""Several processes on one run (torchrun): rank 0 locks, decides and writes; the others follow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from transencoder.errors import RunError

Value = TypeVar("Value")


def no_barrier() -> None:
    """Wait for nobody: the process is on its own."""


def no_broadcast(value: Value) -> Value:
    """Return the value: the process is on its own."""
    return value


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """How a process reaches the others; the defaults are a process on its own.

    What fails on rank 0 between computations (locking, checking, writing a record) fails on every rank. What
    fails inside `compute` is raised at once on the rank where it happened, without telling the others: they
    may be in the middle of a collective operation, where a message of ours would hang both. The launcher ends
    them: torchrun does when one of its processes fails. Started by hand, give the process group a timeout.
    """

    rank: int = 0
    barrier: Callable[[], None] = no_barrier
    """Returns when every rank has called it."""
    broadcast: Callable[[Any], Any] = no_broadcast
    """Returns rank 0's value on every rank; all ranks call it."""

    @property
    def is_first(self) -> bool:
        """Whether this process locks and writes."""
        return self.rank == 0

    def from_first(self, action: Callable[[], Value]) -> Value:
        """Run an action on rank 0 alone; every rank returns its value, or raises when it failed.

        Raises:
            RunError: on the other ranks, when the action failed on rank 0, where the error itself is raised.
        """
        value: Value | None = None
        failure: Exception | None = None
        if self.is_first:
            try:
                value = action()
            except Exception as error:
                failure = error
        value, description = self.broadcast((value, None if failure is None else str(failure)))
        if failure is not None:
            raise failure
        if description is not None:
            raise RunError(f"rank 0 failed: {description}")
        return value
