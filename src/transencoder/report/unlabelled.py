"""What held-out pairs say of start, bi- and cross-encoder without labels."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from transencoder.records import FORM_TITLES, Result
from transencoder.report.tables import markdown_table
from transencoder.results import forms_of
from transencoder.wording import number, plural

_ABOUT = {
    "self_retrieval": "mean reciprocal rank at which half of a sentence's words find it among all",
    "start_agreement": "rank correlation with the start's scores",
    "teacher_agreement": "rank correlation with the labels",
    "member_agreement": "rank correlation with the other members' labels",
    "view_preference": "how often half of a sentence's words are more like it than its pair's other sentence",
    "alignment_and_uniformity": "the sum of the next two",
    "alignment": "how close a sentence and half of its words lie: 0 at most",
    "uniformity": "how evenly sentences lie: about 4 at most",
    "effective_rank": "how many directions the embeddings use",
}
"""What each criterion says, in the order in which they are shown."""


@dataclass(frozen=True)
class UnlabelledRow:
    """One criterion."""

    name: str
    about: str
    cells: Sequence[str]
    """Of the start and of each form."""


@dataclass(frozen=True)
class Unlabelled:
    """Criteria of the start and of the kept models, side by side."""

    caption: str
    header: Sequence[str]
    rows: Sequence[UnlabelledRow]

    @property
    def markdown(self) -> list[str]:
        """The table as Markdown lines."""
        rows = [(row.name, *row.cells, row.about) for row in self.rows]
        return [self.caption, "", *markdown_table(("", *self.header, "what it says"), rows)]

    @property
    def terminal(self) -> Table:
        """The table that the command line prints where there is nothing else."""
        table = Table(caption=self.caption)
        table.add_column("", no_wrap=True)
        for title in self.header:
            table.add_column(title, justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(row.name, *row.cells)
        return table


def unlabelled_of(result: Result) -> Unlabelled | None:
    """The criteria of a run; None where no trained model has any."""
    found, forms = result.get("criteria", {}), forms_of(result)
    if not any(form in found for form in forms):
        return None
    chosen_by = result["selection"]["criteria"] if "selection" in result else {}
    rows = []
    for name, about in _ABOUT.items():
        values = [found.get(model, {}).get(name) for model in ("start", *forms)]
        if any(value is not None for value in values):
            chose = " and ".join(f"{FORM_TITLES[form]}s" for form in forms if chosen_by.get(form) == name)
            rows.append(
                UnlabelledRow(
                    name.replace("_", " "),
                    f"{about}; chose the {chose}" if chose else about,
                    [number(value) for value in values],
                )
            )
    n_pairs = result["data"]["pairs"]["held_out_rows"]
    caption = (
        f"On {plural(n_pairs, 'pair')} of which nothing was learned. Within a row higher is taken to be better; none "
        "of these numbers shows that a model is good."
    )
    return Unlabelled(caption, ("start", *(FORM_TITLES[form] for form in forms)), rows)
