"""Where a run's data are not the paper's: said below a table, marked beside the numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transencoder.records import Result
from transencoder.report.notes import missing_rows_note
from transencoder.report.tables import markdown_table
from transencoder.results import training_data

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

_STAND_IN = " rows drawn with seed "
"""In the source of a test whose own rows have no labels (`tasks.load_named`)."""


@dataclass(frozen=True)
class Noted:
    """A cell, and what to know of its number."""

    text: str
    notes: tuple[str, ...]


def noted_table(header: tuple[str, ...], rows: Sequence[Sequence[str | Noted]]) -> list[str]:
    """A Markdown table and, below it, a line for each note of its cells."""
    noted = [cell for row in rows for cell in row if isinstance(cell, Noted)]
    marks = {note: "" for cell in noted for note in cell.notes}
    marks |= {note: str(number).translate(_RAISED) for number, note in enumerate(marks, start=1)}

    def marked(cell: str | Noted) -> str:
        if isinstance(cell, str):
            return cell
        return " ".join([cell.text, *(mark for note, mark in marks.items() if note in cell.notes)])

    lines = markdown_table(header, [tuple(map(marked, row)) for row in rows])
    return [*lines, *([""] if marks else []), *(f"- {mark} {note}" for note, mark in marks.items())]


def notes_on_training(result: Result) -> Iterator[str]:
    """What the run was not trained on and the paper was."""
    yield from missing_rows_note(training_data(result)[1])


def notes_on_tests(result: Result, tests: Sequence[str]) -> Iterator[str]:
    """Which of these tests have other rows than the paper's."""
    for test in tests:
        source = result["data"]["tests"][test]["source"] if test in result["data"]["tests"] else ""
        if _STAND_IN in source:
            yield f"{test}: not the paper's test rows, but {source}."
