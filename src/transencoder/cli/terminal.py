"""Output of the command line: logs and progress on stderr, results on stdout."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO, cast

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from transencoder import progress
from transencoder.errors import visible

_WIDTH_OF_FILES = 200
_QUIET_LIBRARIES = {
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""Environment variables that hide other libraries' bars and load reports; values that the user has set win."""


@contextmanager
def session(*, is_verbose: bool, is_quiet: bool) -> Iterator[None]:
    """Show logs and progress while a command runs; ranks other than the first show errors only.

    SIGTERM, by which Slurm, Kubernetes and `kill` stop a process, does what Ctrl-C does.
    """
    console = _console(is_stderr=True)
    is_quiet = is_quiet or not is_first_rank()
    handler: logging.Handler = logging.StreamHandler()
    form = "%(asctime)s %(levelname)s %(message)s"
    if console.is_terminal:
        handler, form = RichHandler(console=console, show_path=False, log_time_format="%H:%M:%S"), "%(message)s"
    handler.setFormatter(_Lines(form, "%H:%M:%S"))
    root, own = logging.getLogger(), logging.getLogger("transencoder")
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.default_int_handler))
        for each in (root, own):
            stack.callback(each.setLevel, each.level)
        root.addHandler(handler)
        stack.callback(root.removeHandler, handler)
        root.setLevel(logging.INFO if is_verbose else logging.WARNING)
        own.setLevel(logging.WARNING if is_quiet else logging.DEBUG if is_verbose else logging.INFO)
        for name, value in _QUIET_LIBRARIES.items():
            if not is_verbose and name not in os.environ:
                os.environ[name] = value
                stack.callback(os.environ.pop, name, None)
        show: progress.Show = progress.lines
        if console.is_terminal:
            bars = _Bars(console)
            stack.callback(bars.stop)  # bars that are left would be erased later, with the error below them
            show = bars.show
        stack.enter_context(progress.hidden() if is_quiet else progress.use(show))
        yield


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during work that the same command can resume; its argument is the folder of the work."""


@contextmanager
def goes_on_from(folder: str) -> Iterator[None]:
    """Raise Ctrl-C inside the block as `Interrupted`, with the folder from which the same command resumes."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(folder) from stop


def show(result: object, *, as_it_is: bool = False) -> None:
    """Print a table or text on stdout, on the first rank only.

    On a terminal, text wraps at words; `as_it_is` keeps the lines of text that is copied or read by programs.
    """
    if not is_first_rank():
        return
    if isinstance(result, str) and (as_it_is or not sys.stdout.isatty()):
        stdout().write(f"{result}\n")
    else:
        _console(is_stderr=False).print(result)


def say_error(message: str) -> None:
    """Print a message on stderr: one line, which on a terminal wraps at words."""
    console = _console(is_stderr=True)
    text = Text.assemble(("transencoder: ", "bold red"), visible(message))
    console.print(text, soft_wrap=not console.is_terminal)


def stdout() -> TextIO:
    """Return the stream to write texts to: exact in a file or a pipe, with control characters escaped on a terminal."""
    return cast(TextIO, _Visible()) if sys.stdout.isatty() else sys.stdout


class _Visible:
    def write(self, text: str) -> int:
        return sys.stdout.write(visible(text))


def is_first_rank() -> bool:
    """Tell whether this process is alone, or the first of those that a launcher started."""
    return os.environ.get("RANK", "0") == "0"


def _console(*, is_stderr: bool) -> Console:
    is_terminal = (sys.stderr if is_stderr else sys.stdout).isatty()
    width = None if is_terminal else _WIDTH_OF_FILES
    return _Console(stderr=is_stderr, width=width, markup=False, emoji=False, highlight=False)


class _Console(Console):
    """A console that only shows texts: control characters in them are escaped, and nothing in them is markup."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # for the command line to handle: rich would exit with 1


class _Lines(logging.Formatter):
    """Log formatter that escapes control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


class _Bars:
    """Progress bars with the time left, which disappear when their task is done."""

    def __init__(self, console: Console) -> None:
        self._bars = Bars(
            TextColumn("{task.description}", markup=False, table_column=Column()),
            BarColumn(12),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,
        )

    def stop(self) -> None:
        """Remove all bars."""
        self._bars.stop()

    @contextmanager
    def show(self, description: str, total: int) -> Iterator[progress.Advance]:
        task_id = self._bars.add_task(progress.placed(description), total=total)
        self._bars.start()
        try:
            yield lambda n_more: self._bars.update(task_id, advance=n_more, description=progress.placed(description))
        finally:
            self._bars.remove_task(task_id)
            if not self._bars.task_ids:
                self._bars.stop()
