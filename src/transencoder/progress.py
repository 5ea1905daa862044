"""Progress of long work, told to whoever shows it: the command line, else the functions of the Python API."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 30.0
_SECONDS_OF_REUSE = 0.5

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


class Run:
    """A run of several stages, whose place and time left are shown with all work inside it.

    Args:
        costs: Key of each stage that will be asked for -> its cost, in any unit.
    """

    def __init__(self, costs: Mapping[str, float]) -> None:
        self._ahead = dict(costs)
        self._n_stages = len(costs)
        self._computed = self._seconds = self._begun = 0.0
        self._name = ""

    @contextmanager
    def stage(self, key: str, name: str) -> Iterator[None]:
        """Make a stage the present one; a stage that takes no time was done before, and says nothing of the others."""
        number = self._n_stages - len(self._ahead) + 1
        self._name = f"stage {number} of {self._n_stages}, {name}" if key in self._ahead else name
        self._begun = time.monotonic()
        token = _run.set(self)
        try:
            yield
        finally:
            _run.reset(token)
        seconds, cost = time.monotonic() - self._begun, self._ahead.pop(key, 0.0)
        if seconds > _SECONDS_OF_REUSE:
            self._computed, self._seconds = self._computed + cost, self._seconds + seconds

    def __str__(self) -> str:
        """Return the present stage and, once some are computed, the time that is left of the whole run, if any."""
        if not self._computed:
            return self._name
        expected = self._seconds * sum(self._ahead.values()) / self._computed
        left = expected - (time.monotonic() - self._begun)
        return f"{self._name}; {duration(left)} of the run left" if left > 0 else self._name  # else expected too soon


def placed(description: str) -> str:
    """Return a description with where in its run the work is, and what was told of it last, such as the loss."""
    return "; ".join(filter(None, (description, str(_run.get() or ""), _told.get())))


def tell(text: str) -> None:
    """Show a few words with the present work until others are told."""
    _told.set(text)


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
    """Show progress on stderr, as bars on a terminal or in a notebook, else as lines; hide other libraries' bars.

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
    with _told_lines(description, total, logger.info) as advance:
        yield advance


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
    """Return a time in the unit a reader would choose."""
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


@contextmanager
def _silent(description: str, total: int) -> Iterator[Advance]:
    yield lambda n_more: None


_run: ContextVar[Run | None] = ContextVar("run", default=None)
_told: ContextVar[str] = ContextVar("told", default="")
_current: ContextVar[Show | None] = ContextVar("progress", default=None)
"""None: nobody has said yet."""
