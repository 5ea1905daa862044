"""What a paper reports, read from a file such as results/expected.toml: printed scores, hours, words."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from transencoder.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Row:
    """One printed row of a table."""

    row: str
    """As the paper names it."""
    recipe: str
    """Name of the recipe; `{test}` stands for the column's test."""
    form: Literal["start", "bi", "cross"]
    scores: list[float]
    """As printed, one for each of the table's tests."""
    whose: int | Literal["ensemble"] | None = None
    """Of runs with several members: which one, from 1, or all together."""
    average: float | None = None
    """As printed; None: the paper prints none."""
    deviation: float | None = None
    """Standard deviation over runs, as printed."""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One table of the paper."""

    number: str
    title: str
    tests: list[str]
    """Its columns: tests, or suites for their averages."""
    tolerance: float
    """Difference of the average, or of a single column, that passes for the same result."""
    rows: list[Row]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Hours:
    """How long a recipe took the paper's authors."""

    recipe: str
    hours: float
    gpus: int


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the paper says in words, or shows in a plot, of a recipe."""

    where: str
    row: str
    recipe: str
    says: str
    test: str = "sts"
    """The task, or the suite, whose score, or average, of our runs stands beside it."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a paper reports."""

    table: list[PaperTable]
    hours: list[Hours] = field(default_factory=list)
    claim: list[Claim] = field(default_factory=list)
    suites: dict[str, list[str]] = field(default_factory=dict)
    """Suite -> the tests whose average it is."""


def read_expected(path: str | Path) -> Expected:
    """Read what a paper reports.

    Raises:
        InputError: No such file, not TOML, or a row without what it needs.
    """
    try:
        content = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); give a file such as results/expected.toml"
        ) from error
    except ValueError as error:
        raise InputError(f"{path}: not TOML: {error}. Correct the file at that place.") from error
    try:
        tables = [_table(each) for each in content["table"]]
        others = {"hours": [Hours(**each) for each in content.get("hours", [])]}
        claims = [Claim(**each) for each in content.get("claim", [])]
    except (TypeError, KeyError) as error:
        raise InputError(f"{path}: {error}; take results/expected.toml as an example") from error
    for table in tables:
        for row in table.rows:
            where = f"{path}: table {table.number}, {row.row}"
            if not all(isinstance(score, int | float) for score in row.scores):
                raise InputError(f"{where}: scores are {row.scores!r}; they must be numbers")
            if row.recipe.replace("{test}", "").count("{"):
                raise InputError(f"{where}: recipe is {row.recipe!r}; nothing but {{test}} may stand in braces")
            if len(row.scores) != len(table.tests):
                raise InputError(f"{where}: {len(row.scores)} scores for {len(table.tests)} tests; give one for each")
            if row.form not in ("start", "bi", "cross"):
                raise InputError(f"{where}: form is {row.form!r}; it must be start, bi or cross")
    return Expected(table=tables, claim=claims, suites=content.get("suites", {}), **others)


def _table(content: dict[str, Any]) -> PaperTable:
    number, rows = content.get("number"), []
    for row in content["rows"]:
        try:
            rows.append(Row(**row | {"scores": list(row["scores"])}))
        except TypeError as error:
            raise TypeError(f"table {number}, {row.get('row', 'a row without a name')}: {error}") from error
    return PaperTable(**content | {"rows": rows})
