"""Files for grading pairs in other tools: what spreadsheets, Label Studio and Argilla read and write."""

import csv
import io
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, multimode
from typing import Any, Literal, cast

from transencoder.errors import InputError, from_spreadsheet_cell, plural, reason_of, shorten, spreadsheet_cell
from transencoder.grading.choice import Pair

logger = logging.getLogger(__name__)

Tool = Literal["csv", "label-studio", "argilla"]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Grades that a person may give, and the metric of a model's agreement with them."""

    question: str
    """Question that a person answers for each pair."""
    grades: Mapping[int, str]
    """Meaning of each grade."""
    metric: str
    """A key of `METRICS`."""

    @property
    def has_two(self) -> bool:
        """Whether there are two grades only, with nothing between them."""
        return len(self.grades) == 2

    def checked(self, value: object, where: str) -> float:
        """Check a grade and return it as a number, which may lie between two grades of a scale of several, as means do.

        Raises:
            InputError: The grade is not a number, or is outside the scale.
        """
        try:
            grade = float(cast(Any, value))
        except (TypeError, ValueError, OverflowError):
            grade = math.nan
        low, high = min(self.grades), max(self.grades)
        if not low <= grade <= high or (self.has_two and grade not in self.grades):
            allowed = f"{low} or {high}" if self.has_two else f"a number from {low} to {high}"
            raise InputError(f"{where}: the grade is {shorten(value)}; it must be {allowed}")
        return grade

    def joined(self, given: Sequence[float]) -> float | None:
        """Return the mean of several people's grades; of yes and no the more frequent one, None if there is none."""
        if not self.has_two:
            return mean(given)
        modes = multimode(given)
        return modes[0] if len(modes) == 1 else None


SCALES = {
    "graded": Scale(
        question="How alike is the meaning of the two texts? Judge the texts, not the words.",
        grades={
            0: "nothing in common",
            1: "the same topic",
            2: "some details in common",
            3: "alike, but important details differ",
            4: "alike, only small details differ",
            5: "the same meaning",
        },
        metric="spearman",
    ),
    "binary": Scale(question="Do the two texts belong together?", grades={0: "no", 1: "yes"}, metric="roc_auc"),
}
"""Scale of each kind of task. `graded` is that of SemEval's similarity tasks (Agirre et al., 2012), in our words."""


def tasks_for(tool: Tool, pairs: Sequence[Pair]) -> str:
    """Write pairs in the format that a tool reads.

    Args:
        tool: `csv`: columns sentence1, sentence2 and an empty score, for spreadsheets. An apostrophe before texts that
            begin with a character such as `=` keeps spreadsheets from computing them. `label-studio`: its JSON tasks.
            `argilla`: records as its `dataset.records.from_json` reads them.
        pairs: The pairs, which are written in this order.
    """
    rows = [{"sentence1": first, "sentence2": second} for first, second in pairs]
    if tool == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("sentence1", "sentence2", "score"))
        writer.writerows((spreadsheet_cell(first), spreadsheet_cell(second), "") for first, second in pairs)
        return _BYTE_ORDER_MARK + text.getvalue()
    if tool == "label-studio":
        return json.dumps([{"id": number, "data": row} for number, row in enumerate(rows, 1)], ensure_ascii=False)
    records = [
        {"id": str(number), "status": "pending", "fields": row, "metadata": {}, "suggestions": {}, "responses": {}}
        for number, row in enumerate(rows, 1)
    ]
    return json.dumps(records, ensure_ascii=False)


def interface_for(tool: Tool, scale: Scale) -> str:
    """Return the text that sets up a tool for a scale: Label Studio's labelling interface, or Argilla's settings."""
    if tool == "label-studio":
        choices = "\n".join(
            f'    <Choice value="{grade}" hint="{meaning}" hotkey="{grade}"/>'
            for grade, meaning in scale.grades.items()
        )
        return f"""\
<View>
  <Text name="sentence1" value="$sentence1"/>
  <Text name="sentence2" value="$sentence2"/>
  <Choices name="score" toName="sentence1" choice="single-radio" showInline="true">
{choices}
  </Choices>
</View>"""
    if tool == "argilla":
        return f"""\
settings = rg.Settings(
    fields=[rg.TextField(name="sentence1"), rg.TextField(name="sentence2")],
    questions=[rg.RatingQuestion(name="score", values={list(scale.grades)})],
)"""
    return ""


def grades_from(path: str | Path, scale: Scale) -> dict[Pair, float]:
    """Read grades that were given in another tool.

    Pairs without a grade are left out. Several people's grades are averaged; of yes and no the more frequent one
    counts, and a pair with as many of each is left out with a warning.

    Args:
        path: `.csv` or `.tsv` with columns sentence1, sentence2 and score; or the JSON that Label Studio (JSON or
            JSON-MIN) or Argilla (`to_json`, `to_list`) exports.
        scale: Scale of the grades.

    Raises:
        InputError: The file cannot be read, has none of these formats, or has a grade outside the scale.
    """
    path = Path(path)
    is_json = path.suffix.lower() == ".json"
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read()
        rows = list(_json_rows(json.loads(text)) if is_json else _table_rows(text, path))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give the file that holds the grades") from error
    except (ValueError, RecursionError, csv.Error) as error:
        raise InputError(f"{path} cannot be read ({reason_of(error)}); give {_KNOWN}") from error
    grades: dict[Pair, list[float]] = {}
    for place, row in rows:
        where = f"{path}, entry {place}" if is_json else f"{path}:{place}"
        texts = row.get("sentence1"), row.get("sentence2")
        if not all(isinstance(each, str) for each in texts):
            raise InputError(f"{where}: no sentence1 and sentence2; give {_KNOWN}")
        if given := [scale.checked(each, where) for each in row["grades"]]:
            grades.setdefault(cast(Pair, texts), []).extend(given)
    joined = {pair: scale.joined(given) for pair, given in grades.items()}
    if n_ties := sum(grade is None for grade in joined.values()):
        logger.warning("%s: %s with as many of one grade as of the other: left out", path, plural(n_ties, "pair"))
    return {pair: grade for pair, grade in joined.items() if grade is not None}


_BYTE_ORDER_MARK = "\ufeff"
"""Mark by which spreadsheets recognise UTF-8."""

_KNOWN = (
    "a .csv or .tsv file with columns sentence1, sentence2 and score, or a .json file as Label Studio or Argilla "
    "exports it"
)

_Row = dict[str, Any]
"""Row with `sentence1`, `sentence2` and `grades`, a list of all grades that people gave."""


def _table_rows(text: str, path: Path) -> Iterator[tuple[int, _Row]]:
    """Yield the number of each row's last line, and the row."""
    dialect: dict[str, Any] = {"delimiter": ";"} if ";" in text.partition("\n")[0] else {}
    is_tsv = path.suffix.lower() == ".tsv"
    if is_tsv:
        dialect = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.DictReader(io.StringIO(text, newline=""), **dialect)
    if "score" not in (reader.fieldnames or ()):
        raise InputError(f"{path}:1: no column score; give {_KNOWN}")
    for row in reader:
        score = (row["score"] or "").strip()
        if dialect.get("delimiter") == ";":  # such spreadsheets write 3,5 for 3.5
            score = score.replace(",", ".")
        texts = row if is_tsv else {name: from_spreadsheet_cell(value) for name, value in row.items()}
        yield reader.line_num, {**texts, "grades": [score] if score else []}


def _json_rows(content: object) -> Iterator[tuple[int, _Row]]:
    entries = content if isinstance(content, list) else [content]
    for place, entry in enumerate(entries, 1):
        yield place, _json_row(entry if isinstance(entry, dict) else {})


def _json_row(entry: Mapping[str, Any]) -> _Row:
    if isinstance(entry.get("fields"), dict):  # Argilla
        responses = entry.get("responses")
        answers = responses.get("score", []) if isinstance(responses, dict) else []
        return {**entry["fields"], "grades": [each.get("value") for each in _dicts(answers) if _is_submitted(each)]}
    if "score.responses" in entry:  # Argilla, flattened
        answers, statuses = (_items(entry.get(f"score.responses{each}")) for each in ("", ".status"))
        statuses += [None] * (len(answers) - len(statuses))
        kept = [answer for answer, status in zip(answers, statuses, strict=False) if status in (None, "submitted")]
        return {**entry, "grades": kept}
    if isinstance(entry.get("data"), dict):  # Label Studio
        done = [each for each in _dicts(entry.get("annotations")) if not each.get("was_cancelled")]
        parts = [part for each in done for part in _dicts(each.get("result")) if part.get("from_name") == "score"]
        return {**entry["data"], "grades": [_label_studio(part.get("value")) for part in parts]}
    score = entry.get("score")  # Label Studio, JSON-MIN
    return {**entry, "grades": [] if score in (None, "") else [_label_studio(score)]}


def _items(value: object) -> list[Any]:
    return list(value) if isinstance(value, list) else []


def _dicts(value: object) -> Iterable[Mapping[str, Any]]:
    return [each for each in _items(value) if isinstance(each, dict)]


def _is_submitted(response: Mapping[str, Any]) -> bool:
    return response.get("status") in (None, "submitted") and response.get("value") is not None


def _label_studio(value: object) -> object:
    """Return the grade of a choice or a rating."""
    if isinstance(value, dict):
        chosen = value.get("choices", [value.get("rating")])
        return chosen[0] if isinstance(chosen, list) and chosen else chosen
    return value
