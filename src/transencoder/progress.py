"""Progress of long work, told to whoever shows it: nobody by default, the command line while it runs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol

Advance = Callable[[int], None]


class Progress(Protocol):
    """Shows how far a piece of work is."""

    def task(self, description: str, total: int) -> AbstractContextManager[Advance]:
        """Show a piece of work from its start to its end.

        Args:
            description: What is done, such as `label pairs`.
            total: How many items there are, at least 0.

        Returns:
            A context whose value is called with how many more items are done.
        """
        ...


def task(description: str, total: int) -> AbstractContextManager[Advance]:
    """Tell the progress of a piece of work.

    `with progress.task("label pairs", total=n) as advance: ... advance(k)`

    Args:
        description: What is done, such as `label pairs`.
        total: How many items there are, at least 0.

    Returns:
        A context whose value is called with how many more items are done.
    """
    return (_current.get() or _Silent()).task(description, total)


@contextmanager
def use(progress: Progress) -> Iterator[None]:
    """Show all progress told inside this context with `progress`."""
    token = _current.set(progress)
    try:
        yield
    finally:
        _current.reset(token)


class _Silent:
    @contextmanager
    def task(self, description: str, total: int) -> Iterator[Advance]:
        yield lambda n_more: None


_current: ContextVar[Progress | None] = ContextVar("progress", default=None)
