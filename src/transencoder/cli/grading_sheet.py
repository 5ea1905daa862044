"""Grading of pairs in a terminal, key by key; the file of grades is complete after each key."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from transencoder.cli.files import write_table
from transencoder.cli.terminal import show
from transencoder.errors import InputError, visible
from transencoder.progress import duration

if TYPE_CHECKING:
    from transencoder.grading import Pair, Scale

_FIRST_GUESS_SECONDS = 8.0
"""Estimated time per grade while fewer than three are given."""

_LOOK_SECONDS = 0.5
"""Time between two looks for Ctrl-C while no key is pressed."""

_COLUMNS = ("sentence1", "sentence2", "score")
_SHOWN_CHARACTERS = 2000


def content_of(path: Path) -> bytes:
    """Return what a file holds; empty if there is none."""
    return path.read_bytes() if path.exists() else b""


@dataclass(kw_only=True)
class Sheet:
    """Pairs and their grades so far."""

    pairs: Sequence[Pair]
    """Pairs to grade, in this order."""
    scale: Scale
    output: Path
    grades: dict[Pair, float]
    """Grade of each pair, in the order in which they were given."""
    others: dict[Pair, float] = field(default_factory=dict)
    """Grades in the file for pairs that the run no longer keeps, since it was trained again; they stay in the file."""
    _seconds: list[float] = field(default_factory=list)
    """Seconds that each grade of this session took."""
    written: bytes = b""
    """Content of the file as this session read it or left it; empty: there is none."""

    def save(self) -> None:
        """Write the graded pairs.

        Raises:
            InputError: Another session has written to the file meanwhile.
        """
        if content_of(self.output) != self.written:
            raise InputError(
                f"{self.output} was changed by somebody else meanwhile; nothing of it is lost, only the last key here. "
                "Run the command again, one session at a time"
            )
        graded = [*self.others.items(), *self.grades.items()]
        write_table(_COLUMNS, ((*pair, f"{grade:g}") for pair, grade in graded), str(self.output))
        self.written = content_of(self.output)

    def ask(self) -> None:
        """Show one pair after the other, until all are graded or the user stops.

        Raises:
            InputError: There is no terminal.
        """
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise InputError(
                "grading needs a terminal. Run it in one, or write the pairs to a file with --export FILE, grade them "
                "there, and read them with --import FILE"
            )
        show(self.scale.question)
        for grade, meaning in self.scale.grades.items():
            show(f"  {grade}  {meaning}")
        show("u: take the last grade back, s: skip this pair, q: stop; every grade is saved at once.")
        with _keyboard() as keys:
            self._ask(keys)

    def _ask(self, keys: Iterator[str]) -> None:
        """Act on one key after the other."""
        skipped: set[Pair] = set()
        allowed = {*map(str, self.scale.grades), "u", "s", "q"}
        while True:
            left = [pair for pair in self.pairs if pair not in self.grades and pair not in skipped]
            began = time.monotonic()
            show(self._shown(left) if left else "\nNo pair is left. u: take the last grade back, any other key: done")
            key = next((each for each in keys if each in allowed or not left), "q")
            if key == "u":
                self._take_back()
            elif key == "q" or not left:
                return
            elif key == "s":
                skipped.add(left[0])
                show("  skipped")
            else:
                self.grades[left[0]] = float(key)
                self._seconds.append(time.monotonic() - began)
                self.save()
                show(f"  {key}: {self.scale.grades[int(key)]}")

    def _take_back(self) -> None:
        own = set(self.pairs)
        last = next((pair for pair in reversed(self.grades) if pair in own), None)
        if last is None:
            show("  there is no grade to take back")
            return
        show(f"  taken back: {self.grades.pop(last):g}")
        self.save()

    def _shown(self, left: Sequence[Pair]) -> Padding:
        """Return the next pair for display, with the progress and the time left."""
        each = statistics.median(self._seconds) if len(self._seconds) > 2 else _FIRST_GUESS_SECONDS
        done = sum(pair in self.grades for pair in self.pairs)
        head = f"{done + 1} of {len(self.pairs)}, about {duration(each * len(left))} left"
        beginnings = [text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..." for text in left[0]]
        texts = [
            f"\n  {number}  " + "\n     ".join(map(visible, text.splitlines()))
            for number, text in enumerate(beginnings, 1)
        ]
        return Padding(Text.assemble((head, "dim"), "\n", *texts), (1, 0, 0, 0))


@contextmanager
def _keyboard() -> Iterator[Iterator[str]]:
    """Yield an iterator over pressed keys, in lower case and without Enter; Ctrl-C interrupts as usual."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSADRAIN)  # keys that were pressed meanwhile are kept
        yield iter(lambda: _pressed(terminal), "")
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _pressed(terminal: int) -> str:
    """Return one key, with all its characters if it sends several, such as Page Up."""
    import select

    # Python looks for signals before a system call: Ctrl-C right after that look would not end a read without limit.
    while not select.select([terminal], [], [], _LOOK_SECONDS)[0]:
        pass
    pressed = os.read(terminal, 1)
    if pressed == b"\x1b":
        while select.select([terminal], [], [], 0.05)[0] and len(pressed) < 16:
            pressed += os.read(terminal, 1)
    return pressed.decode(errors="replace").lower()
