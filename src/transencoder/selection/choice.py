"""Which criterion chooses where there is no dev set."""

from collections.abc import Mapping

from transencoder.config import Criterion, Form, Selection

DEFAULTS: Mapping[Form, Criterion | None] = {"bi": "self_retrieval", "cross": "view_preference"}
"""What cost least of the dev metric on starts left out of the choosing; None: the last checkpoint did."""


def criterion_of(form: Form, selection: Selection) -> Criterion | None:
    """The criterion that chooses the checkpoints of a form; None: the last one is kept.

    Args:
        form: Of the student.
        selection: As the config has it.
    """
    if selection == "last":
        return None
    return DEFAULTS[form] if selection == "auto" else selection
