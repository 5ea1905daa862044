"""Which criterion chooses where there is no dev set, and what such a choice has cost where there was one."""

import json
from functools import cache
from importlib.resources import files
from typing import Any, get_args

from transencoder.config import Criterion, Form, Selection


def criterion_of(form: Form, selection: Selection) -> Criterion | None:
    """The criterion that chooses the checkpoints of a form; None: the last one is kept.

    Args:
        form: Of the student.
        selection: As the config has it; `auto` is the one of the lowest mean regret.
    """
    if selection == "auto":
        regrets = regrets_of(form)
        selection = min((name for name in get_args(Selection) if name in regrets), key=lambda name: regrets[name])
    return None if selection == "last" else selection  # type: ignore[return-value]


def regrets_of(form: Form) -> dict[str, float]:
    """Points of dev by which choosing among a run's checkpoints fell short of the best one, on average over runs.

    Args:
        form: Of the students.

    Returns:
        By criterion; of the `last` checkpoint; as `left_out` of the criterion that was the best on other starts' runs.
        benchmarks/selection.py measured them.
    """
    found: dict[str, float] = _measured()[form]
    return found


def measured_on() -> tuple[int, int]:
    """How many runs and how many starts the regrets are of."""
    return _measured()["runs"], _measured()["starts"]


@cache
def _measured() -> dict[str, Any]:
    text = (files("transencoder.selection") / "regrets.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content
