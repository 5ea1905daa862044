"""`grade`: ten minutes of a person's time, pair by pair, and what the grades say of a run's models."""

from __future__ import annotations

import os
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.padding import Padding
from rich.text import Text

from transencoder.cli.evaluate import Row, table_of_several
from transencoder.cli.files import whole_file, write_table
from transencoder.cli.flags import argument, option
from transencoder.cli.terminal import show
from transencoder.configs.ranges import Config, Contradictions
from transencoder.errors import InputError, plural
from transencoder.progress import duration
from transencoder.records import FORM_TITLES, GRADES

if TYPE_CHECKING:
    from transencoder.grading import Scale
    from transencoder.grading.choice import Pair

_FIRST_GUESS_SECONDS = 8.0
"""Of a grade, before there are three."""

_COLUMNS = ("sentence1", "sentence2", "score")


@dataclass(frozen=True, kw_only=True)
class Grade(Config):
    """Grade pairs of a run by hand, and see which of its models to use; the same command goes on where you stopped."""

    folder: str = argument("RUN")
    """folder of a finished run"""
    n_pairs: int = 100
    """how many pairs; they are drawn where the models disagree"""
    scale: Literal["graded", "binary"] | None = None
    """graded: 0 to 5; binary: yes or no (default: the run's task_kind)"""
    output: str | None = option(None, metavar="FILE")
    """where the graded pairs go: .tsv or .csv (default: dev.tsv in the run folder)"""
    export: str | None = option(None, metavar="FILE", one_of="elsewhere")
    """only write the pairs, to be graded elsewhere"""
    grades: str | None = option(None, flag="--import", metavar="FILE", one_of="elsewhere")
    """read grades that were given elsewhere: .csv, .tsv, or .json of Label Studio or Argilla"""
    tool: Literal["csv", "label-studio", "argilla"] = "csv"
    """what reads the file of --export"""

    def contradictions(self) -> Contradictions:
        if self.n_pairs < 10:
            yield f"--n-pairs is {self.n_pairs}; give at least 10, better 100"
        if self.output and Path(self.output).suffix not in (".tsv", ".csv"):
            yield f"--output is {self.output!r}; its name must end in .tsv or .csv"
        if self.tool != "csv" and not self.export:
            yield f"--tool {self.tool} is for --export; --import sees by itself what a file is. Give --export FILE"

    def __call__(self) -> None:
        from transencoder import grading, results

        config = results.read_result(self.folder)["config"]
        scale = grading.SCALES[self.scale or config.get("task_kind", "graded")]
        pairs = grading.choose(self.folder, self.n_pairs)
        if self.export:
            with whole_file(self.export) as draft:
                draft.write_text(grading.tasks_for(self.tool, pairs), encoding="utf-8")
            after = f"transencoder grade {shlex.quote(self.folder)} --import FILE"
            show(f"{self.export}: {plural(len(pairs), 'pair')}. When they are graded: {after}")
            show(grading.set_up(self.tool, scale), as_it_is=True)
            return
        output = Path(self.output or _default_output(self.folder, pairs))
        grades = grading.grades_from(output, scale) if output.exists() else {}
        if self.grades:
            grades |= grading.grades_from(self.grades, scale)
        grading.check(self.folder, grades)  # before anything is written
        sheet = Sheet(pairs=pairs, scale=scale, output=output, grades=grades)
        if self.grades:
            sheet.save()
        else:
            sheet.ask()
        if len(sheet.grades) < len(pairs):
            show(f"{len(sheet.grades)} of {len(pairs)} pairs are graded; the same command goes on.")
        if len(set(sheet.grades.values())) > 1:
            self._judge(sheet)

    def _judge(self, sheet: Sheet) -> None:
        from transencoder import grading
        from transencoder.report.scores import BRACKETS, GAIN_BRACKETS

        judged = grading.judge(self.folder, sheet.grades, sheet.scale)
        titles = {"start": "base model"} | {str(form): title for form, title in FORM_TITLES.items()}
        scores = {titles[model]: value for model, value in judged.scores.items()}
        row = Row(name=GRADES, metric=sheet.scale.metric, n_pairs=len(sheet.grades), scores=scores, draws=judged.draws)
        show(table_of_several([row]))
        show(f"{BRACKETS}; {GAIN_BRACKETS}.")
        show(
            "The pairs were drawn where the models disagree: on pairs of chance, gains and losses are a third of these or less."
        )
        show(judged.verdict)
        self._show_next(sheet)

    def _show_next(self, sheet: Sheet) -> None:
        folder, graded = Path(self.folder), str(sheet.output)
        again = f"transencoder recipes run {shlex.quote(str(folder / 'recipe.toml'))} --output NEW_FOLDER --set"
        scale = " --set score_range=0,5" if max(sheet.scale.grades) > 1 else ""
        commands = {
            "grade more": f"transencoder grade {shlex.quote(self.folder)} --n-pairs {2 * self.n_pairs}",
            "train again, with these grades choosing the checkpoints": f"{again} {shlex.quote(f'dev={graded}')}",
            "train again, learning from them too": f"{again} {shlex.quote(f'labelled={graded}')}{scale}",
        }
        show("\nNext:")
        for what, command in commands.items():
            show(f"  # {what}\n  {command}", as_it_is=True)


def _default_output(run: str, pairs: Sequence[Pair]) -> Path:
    has_marks = any(mark in text for pair in pairs for text in pair for mark in "\t\r\n")
    return Path(run) / ("dev.csv" if has_marks else "dev.tsv")


@dataclass(kw_only=True)
class Sheet:
    """Pairs and their grades so far, in a file that is whole after every key."""

    pairs: Sequence[Pair]
    """To be graded, in this order."""
    scale: Scale
    output: Path
    grades: dict[Pair, float]
    """The last one given last."""
    _seconds: list[float] = field(default_factory=list)
    """What each grade took."""

    def save(self) -> None:
        """Write the graded pairs."""
        write_table(_COLUMNS, ((*pair, f"{grade:g}") for pair, grade in self.grades.items()), str(self.output))

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
        show("How alike is the meaning of the two texts? Judge the texts, not the words.")
        for grade, meaning in self.scale.grades.items():
            show(f"  {grade}  {meaning}")
        show("u: take the last grade back, s: skip this pair, q: stop; every grade is saved at once.")
        with _keyboard() as keys:
            self._ask(keys)

    def _ask(self, keys: Iterator[str]) -> None:
        skipped: set[Pair] = set()
        while left := [pair for pair in self.pairs if pair not in self.grades and pair not in skipped]:
            began = time.monotonic()
            show(self._shown(left))
            key = next((each for each in keys if each in {*map(str, self.scale.grades), "u", "s", "q"}), "q")
            if key == "q":
                return
            show(f"  {key}: {self.scale.grades[int(key)]}" if key.isdigit() else "  skipped" if key == "s" else "")
            if key == "s":
                skipped.add(left[0])
            elif key != "u":
                self.grades[left[0]] = float(key)
                self._seconds.append(time.monotonic() - began)
                self.save()
            elif self.grades:
                skipped.discard(pair := next(reversed(self.grades)))
                show(f"taken back: {self.grades.pop(pair):g}")
                self.save()

    def _shown(self, left: Sequence[Pair]) -> Padding:
        """Return the first of the pairs that are left, with how much is left to do."""
        each = statistics.median(self._seconds) if len(self._seconds) > 2 else _FIRST_GUESS_SECONDS
        done = sum(pair in self.grades for pair in self.pairs)
        head = f"{done + 1} of {len(self.pairs)}, about {duration(each * len(left))} left"
        return Padding(Text.assemble((head, "dim"), "\n", *(f"\n  {text}" for text in left[0])), (1, 0, 0, 0))


@contextmanager
def _keyboard() -> Iterator[Iterator[str]]:
    """Yield the keys that are pressed, in lower case, without Enter; Ctrl-C interrupts as ever."""
    if sys.platform == "win32":
        import msvcrt

        yield iter(lambda: msvcrt.getwch().lower(), "\x03")
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSADRAIN)  # keys that are pressed meanwhile wait
        yield iter(lambda: os.read(terminal, 1).decode(errors="replace").lower(), "")
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
