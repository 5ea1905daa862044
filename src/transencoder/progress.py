"""Progress of long work, told to whoever shows it: the command line, else the functions of the Python API."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 30.0

Advance = Callable[[int], None]
"""Is called with how many more items are done."""

Show = Callable[[str, int], AbstractContextManager[Advance]]
"""Shows a piece of work from its start to its end: its description, and how many items it has."""


def task(description: str, total: int) -> AbstractContextManager[Advance]:
    """Tell the progress of a piece of work.

    `with progress.task("label pairs", total=n) as advance: ... advance(k)`

    Args:
        description: What is done, such as `label pairs`.
        total: How many items there are, at least 0.

    Returns:
        A context whose value is called with how many more items are done.
    """
    return (_current.get() or _silent)(description, total)


def blocks(description: str, total: int, size: int) -> Iterator[slice]:
    """Cut rows into blocks, and tell the progress of a loop over them.

    Args:
        description: What is done with them.
        total: How many rows there are.
        size: Rows of a block; the last may have fewer.
    """
    with task(description, total) as advance:
        for start in range(0, total, size):
            stop = min(start + size, total)
            yield slice(start, stop)
            advance(stop - start)


@contextmanager
def use(show: Show) -> Iterator[None]:
    """Show all progress told inside this context with `show`."""
    token = _current.set(show)
    try:
        yield
    finally:
        _current.reset(token)


def hidden() -> AbstractContextManager[None]:
    """Show no progress told inside this context: of parts of a piece of work that tells its own."""
    return use(_silent)


@contextmanager
def shown() -> Iterator[None]:
    """Show progress as bars, on a terminal or in a notebook, and hide other libraries' bars meanwhile.

    Of nested calls the outermost decides, and so does the command line.
    """
    if _current.get() is not None:
        yield
        return
    import datasets.utils as of_datasets
    from transformers.utils import logging as of_transformers

    with ExitStack() as stack:
        if of_transformers.is_progress_bar_enabled():
            of_transformers.disable_progress_bar()  # type: ignore[no-untyped-call]
            stack.callback(of_transformers.enable_progress_bar)
        if not of_datasets.are_progress_bars_disabled():
            of_datasets.disable_progress_bars()
            stack.callback(of_datasets.enable_progress_bars)
        stack.enter_context(use(_bar))
        yield


@contextmanager
def lines(description: str, total: int) -> Iterator[Advance]:
    """Log how far the work is every 30 seconds, with the time left: for output that is kept in a file."""
    started = shown = time.monotonic()
    n_done = 0

    def advance(n_more: int) -> None:
        nonlocal shown, n_done
        n_done += n_more
        now = time.monotonic()
        if now - shown >= _SECONDS_BETWEEN_LINES and 0 < n_done < total:
            shown = now
            left = duration((now - started) * (total - n_done) / n_done)
            logger.info("%s: %d of %d, about %s left", description, n_done, total, left)

    yield advance


def duration(seconds: float) -> str:
    """Return a time in the unit a reader would choose."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


@contextmanager
def _bar(description: str, total: int) -> Iterator[Advance]:
    from tqdm.auto import tqdm

    is_seen = sys.stderr.isatty() or "ipykernel" in sys.modules
    is_first_rank = os.environ.get("RANK", "0") == "0"
    with tqdm(desc=description, total=total, leave=False, disable=not (is_seen and is_first_rank)) as bar:

        def advance(n_more: int) -> None:
            bar.update(n_more)

        yield advance


@contextmanager
def _silent(description: str, total: int) -> Iterator[Advance]:
    yield lambda n_more: None


_current: ContextVar[Show | None] = ContextVar("progress", default=None)
"""None: nobody has said yet."""
