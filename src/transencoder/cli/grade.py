"""The command `grade`: a person grades pairs for ten minutes, and the grades compare a run's models."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transencoder.cli.evaluate import Row, table_of_several
from transencoder.cli.files import check_output, whole_file
from transencoder.cli.flags import argument, option
from transencoder.cli.grading_sheet import Sheet, content_of
from transencoder.cli.terminal import show
from transencoder.configs.ranges import Config, Contradictions
from transencoder.errors import InputError, plural
from transencoder.records import FORM_TITLES, GRADES, HELD_ROWS

if TYPE_CHECKING:
    from transencoder.grading import Pair, Scale, ScoredPairs


@dataclass(frozen=True, kw_only=True)
class Grade(Config):
    """Grade pairs of a run by hand, and see which of its models to use; run it again to continue where you stopped."""

    folder: str = argument("RUN")
    """folder of a finished run"""
    n_pairs: int = 100
    """number of pairs, which are drawn where the models disagree"""
    scale: Literal["graded", "binary"] | None = None
    """graded: 0 to 5; binary: yes or no (default: the run's task_kind)"""
    output: str | None = option(None, metavar="FILE")
    """where the graded pairs go: .tsv or .csv (default: dev.tsv in the run folder)"""
    export: str | None = option(None, metavar="FILE", one_of="elsewhere")
    """only write the pairs, to be graded elsewhere"""
    grades: str | None = option(None, flag="--import", metavar="FILE", one_of="elsewhere")
    """read grades that were given elsewhere: .csv, .tsv, or .json of Label Studio or Argilla"""
    tool: Literal["csv", "label-studio", "argilla"] = "csv"
    """tool that the file of --export is for"""

    def contradictions(self) -> Contradictions:
        if self.n_pairs < 10:
            yield f"--n-pairs is {self.n_pairs}; give at least 10, better 100"
        if self.output and Path(self.output).suffix not in (".tsv", ".csv"):
            yield f"--output is {self.output!r}; its name must end in .tsv or .csv"
        if self.tool != "csv" and not self.export:
            yield f"--tool {self.tool} is for --export; --import sees by itself what a file is. Give --export FILE"
        ending = ".csv" if self.tool == "csv" else ".json"
        if self.export and Path(self.export).suffix != ending:
            yield f"--export is {self.export!r}; for {self.tool} its name must end in {ending}"
        if self.export and Path(self.export).exists():
            yield f"--export is {self.export!r}, which is there already; give another name, or read it with --import"

    def __call__(self) -> None:
        from transencoder import grading

        scored = grading.ScoredPairs.of_run(self.folder)
        config = scored.result["config"]
        scale = grading.SCALES[self.scale or config.get("task_kind", "graded")]
        every_pair = grading.choose(scored)
        pairs = every_pair[: self.n_pairs]
        if self.export:
            self._export(self.export, pairs, scale)
            return
        sheet = self._sheet(scored, pairs, scale, has_marks=_have_marks(every_pair))
        if self.grades:
            self._import(self.grades, scored, sheet)
        else:
            sheet.ask()
        n_left = sum(pair not in sheet.grades for pair in pairs)
        if n_left:
            show(f"{len(pairs) - n_left} of {len(pairs)} pairs are graded; the same command goes on.")
        if len(set(sheet.grades.values())) > 1:
            self._judge(scored, sheet)
            n_next = self.n_pairs if n_left else 2 * self.n_pairs
            self._show_next(sheet, config, n_next=n_next if n_left or len(every_pair) > len(pairs) else None)

    def _export(self, path: str, pairs: Sequence[Pair], scale: Scale) -> None:
        from transencoder import grading

        with whole_file(path) as draft:
            draft.write_text(grading.tasks_for(self.tool, pairs), encoding="utf-8", newline="")
        show(f"{path}: {plural(len(pairs), 'pair')}. When they are graded: {self._command} --import FILE")
        if interface := grading.interface_for(self.tool, scale):
            show(f"In {self.tool}, ask for the grades with:\n{interface}", as_it_is=True)

    def _import(self, path: str, scored: ScoredPairs, sheet: Sheet) -> None:
        from transencoder import grading

        grades = grading.grades_from(path, sheet.scale)
        if not grades:
            raise InputError(f"{path} has no grade yet; fill in the scores, and import it again")
        grading.check_known(scored, grades)
        sheet.grades |= grades
        sheet.save()
        show(f"{path}: {plural(len(grades), 'grade')}, now in {sheet.output} too")

    def _sheet(self, scored: ScoredPairs, pairs: Sequence[Pair], scale: Scale, *, has_marks: bool) -> Sheet:
        """Open the file of grades, or start a new one."""
        from transencoder import grading

        output = Path(self.output or Path(self.folder) / ("dev.csv" if has_marks else "dev.tsv"))
        check_output(str(output), (".tsv", ".csv"))
        if output.suffix == ".tsv" and _have_marks(pairs):
            raise InputError(f"--output is {str(output)!r}, and a text holds a tab or a line end; give a .csv")
        written = content_of(output)
        grades = grading.grades_from(output, scale) if written else {}
        others = {pair: grades.pop(pair) for pair in scored.unknown(list(grades))}
        if others and not grades and self.output:
            grading.check_known(scored, others)  # the file is of another run: refuse it
        if others:
            show(f"{output}: {plural(len(others), 'grade')} of pairs that this run does not keep stay there unused.")
        return Sheet(pairs=pairs, scale=scale, output=output, grades=grades, others=others, written=written)

    @property
    def _command(self) -> str:
        """This command with its run, file and scale."""
        options = {"--scale": self.scale, "--output": self.output}
        given = [f"{flag} {shlex.quote(value)}" for flag, value in options.items() if value]
        return " ".join(["transencoder grade", shlex.quote(self.folder), *given])

    def _judge(self, scored: ScoredPairs, sheet: Sheet) -> None:
        from transencoder import grading
        from transencoder.report.card import write_cards
        from transencoder.report.run_report import write_report
        from transencoder.report.scores import BRACKETS, GAIN_BRACKETS

        judged = grading.judge(scored, sheet.grades, sheet.scale)
        titles = {"start": "base model"} | {str(form): title for form, title in FORM_TITLES.items()}
        scores = {titles[model]: value for model, value in judged.scores.items()}
        row = Row(name=GRADES, metric=sheet.scale.metric, n_pairs=len(sheet.grades), scores=scores, draws=judged.draws)
        show(table_of_several([row]))
        show(f"{BRACKETS}; {GAIN_BRACKETS}.")
        show(grading.HOW_DRAWN)
        show(judged.verdict)
        if scored.result["dev"] or scored.result["data"]["tests"]:
            show("The report keeps to its tests or dev set.")
            return
        judged.save(scored.folder)
        write_cards(scored.folder)
        show(f"The report and the model cards say it too: {write_report(scored.folder)}")

    def _show_next(self, sheet: Sheet, config: Mapping[str, Any], *, n_next: int | None) -> None:
        graded = str(sheet.output)
        recipe = shlex.quote(str(Path(self.folder) / "recipe.toml"))
        again = f"transencoder recipes run {recipe} --output NEW_FOLDER --set"
        chosen = "train again, with these grades choosing the checkpoints"
        scale = " --set score_range=0,5" if max(sheet.scale.grades) > 1 else ""
        commands = {}
        if n_next is not None:
            commands["grade more"] = f"{self._command} --n-pairs {n_next}"
        if any(isinstance(value, str) and value.endswith(HELD_ROWS) for value in config.values()):
            commands[f"{chosen}, in Python"] = f"train(..., dev={graded!r})"
        else:
            commands[chosen] = f"{again} {shlex.quote(f'dev={graded}')}"
            commands["or learning from them"] = f"{again} {shlex.quote(f'labelled={graded}')}{scale}"
        show("\nNext:")
        for what, command in commands.items():
            show(f"  # {what}\n  {command}", as_it_is=True)


def _have_marks(pairs: Sequence[Pair]) -> bool:
    """Check whether a text has a tab or a line break, which a TSV cannot hold."""
    return any(mark in text for pair in pairs for text in pair for mark in "\t\r\n")
