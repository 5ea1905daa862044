"""Progress of long work, reported to the part that shows it: the command line, or else functions of the Python API."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 30.0
_SECONDS_OF_REUSE = 0.5

Advance = Callable[[int], None]
"""Function that is called with the number of items done since the last call."""

Show = Callable[[str, int], AbstractContextManager[Advance]]
"""Function that shows a piece of work from start to end, given its description and its number of items."""


def task(description: str, total: int) -> AbstractContextManager[Advance]:
    """Report the progress of a piece of work.

    `with progress.task("label pairs", total=n) as advance: ... advance(k)`

    Args:
        description: What is done, such as `label pairs`.
        total: Number of items, at least 0.

    Returns:
        A context manager whose value is called with the number of items done since the last call.
    """
    return (_current.get() or _silent)(description, total)


def blocks(description: str, total: int, size: int) -> Iterator[slice]:
    """Cut rows into blocks, and report the progress of a loop over them.

    Args:
        description: What is done with the rows.
        total: Number of rows.
        size: Number of rows in a block; the last block may have fewer.
    """
    with task(description, total) as advance:
        for start in range(0, total, size):
            stop = min(start + size, total)
            yield slice(start, stop)
            advance(stop - start)


class Run:
    """A run of several stages; the present stage and the time of later stages are shown with all work inside it.

    Args:
        costs: Cost of each stage that will be requested, by its key, in any unit.
    """

    def __init__(self, costs: Mapping[str, float]) -> None:
        self._ahead = dict(costs)
        self._n_stages = len(costs)
        self._computed = self._seconds = 0.0
        self._key = self._name = ""

    @contextmanager
    def stage(self, key: str, name: str) -> Iterator[None]:
        """Make a stage the present one; one that takes no time was reused, and does not count for the expected time."""
        number = self._n_stages - len(self._ahead) + 1
        self._name = f"stage {number} of {self._n_stages}, {name}" if key in self._ahead else name
        self._key, begun = key, time.monotonic()
        token = _run.set(self)
        try:
            yield
        finally:
            _run.reset(token)
        seconds, cost = time.monotonic() - begun, self._ahead.pop(key, 0.0)
        if seconds > _SECONDS_OF_REUSE:
            self._computed, self._seconds = self._computed + cost, self._seconds + seconds

    def __str__(self) -> str:
        """Return the present stage and, once stages have been computed, the expected time of the stages after it."""
        later = sum(cost for key, cost in self._ahead.items() if key != self._key)
        if not (self._computed and later):
            return self._name
        return f"{self._name}; later stages {duration(self._seconds * later / self._computed)}"


def placed(description: str) -> str:
    """Return a description with the present stage of the run and the last text given to `tell`, such as the loss."""
    return "; ".join(filter(None, (description, str(_run.get() or ""), _told.get())))


def tell(text: str) -> None:
    """Show a short text with the present work, until the next call replaces it."""
    _told.set(text)


@contextmanager
def use(show: Show) -> Iterator[None]:
    """Show all progress reported inside this context with `show`."""
    token = _current.set(show)
    try:
        yield
    finally:
        _current.reset(token)


def hidden() -> AbstractContextManager[None]:
    """Hide progress reported inside this context, such as that of parts of work that reports its own progress."""
    return use(_silent)


@contextmanager
def shown() -> Iterator[None]:
    """Show progress on stderr, as bars on a terminal or in a notebook, else as lines; hide other libraries' bars.

    It has no effect inside another call or under the command line, which decide how progress is shown.
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


def lines(description: str, total: int) -> AbstractContextManager[Advance]:
    """Log the progress and the time left every 30 seconds, for output that is kept in a file."""
    return _told_lines(description, total, logger.info)


@contextmanager
def _told_lines(description: str, total: int, say: Callable[[str], object]) -> Iterator[Advance]:
    started = shown = time.monotonic()
    n_done = 0

    def advance(n_more: int) -> None:
        nonlocal shown, n_done
        n_done += n_more
        now = time.monotonic()
        if now - shown >= _SECONDS_BETWEEN_LINES and 0 < n_done < total:
            shown = now
            left = duration((now - started) * (total - n_done) / n_done)
            say(f"{placed(description)}: {n_done} of {total}, about {left} left")

    yield advance


def duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours, depending on its length."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


@contextmanager
def _bar(description: str, total: int) -> Iterator[Advance]:
    from tqdm.auto import tqdm

    is_first_rank = os.environ.get("RANK", "0") == "0"
    if is_first_rank and not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        with _told_lines(description, total, lambda line: sys.stderr.write(f"{line}\n")) as told:
            yield told
        return
    with tqdm(desc=placed(description), total=total, leave=False, disable=not is_first_rank) as bar:

        def advance(n_more: int) -> None:
            bar.set_description(placed(description), refresh=False)
            bar.update(n_more)

        yield advance


def _silent(description: str, total: int) -> AbstractContextManager[Advance]:
    return nullcontext(lambda n_more: None)


_run: ContextVar[Run | None] = ContextVar("run", default=None)
_told: ContextVar[str] = ContextVar("told", default="")
_current: ContextVar[Show | None] = ContextVar("progress", default=None)
"""Function that shows progress; None: not set yet."""
