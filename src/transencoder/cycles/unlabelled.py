"""What held-out pairs say of starts and students without labels."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from transencoder.cycles.lab import Lab, LabMember, Model, load, make_scorer, own_first
from transencoder.results import weak_cross_notes, weak_start_notes
from transencoder.runs import StageRecord
from transencoder.scorers import Scorer
from transencoder.selection import LEAST_PAIRS, HeldOut, hold_out

logger = logging.getLogger(__name__)

_CODE_VERSION = 1
"""Raised when a change of the code changes what the stage computes."""


def student_criteria(
    held_out: HeldOut, said: Mapping[str, Sequence[np.ndarray]]
) -> Callable[[Scorer], dict[str, float]]:
    """What held-out pairs say of a student.

    Args:
        held_out: The pairs.
        said: What others say of all training pairs, float32 (n,) each, by who they are.
    """
    references = {name: [scores[held_out.rows] for scores in of_each] for name, of_each in said.items()}
    return lambda scorer: held_out.criteria(scorer, references)


def warn_of_weak_starts(lab: Lab) -> None:
    """Say before anything is trained which starts look too weak to teach."""
    records = own_first(lab, range(len(lab.members)), lambda i: start_criteria(lab, lab.members[i]))
    for member, record in zip(lab.members, records, strict=True):
        for note in weak_start_notes(record.result) if record is not None else ():
            logger.warning("%s: %s", member.bi.name, note)


def warn_of_weak_cross(model: Model) -> None:
    """Say as soon as it is trained that a cross-encoder looks too weak to teach."""
    for note in weak_cross_notes(model.criteria):
        logger.warning("%s: %s", model.name, note)


def start_criteria(lab: Lab, member: LabMember) -> StageRecord | None:
    """What some of the pairs say of a member's start without labels: a stage; None where there are few.

    The held-out pairs, or, where dev chooses and nothing is held out, those that would be.
    """
    held_out = lab.held_out
    if held_out is None and _n_unlabelled(lab) >= LEAST_PAIRS:
        held_out = hold_out(lab.pairs, lab.gold)
    if held_out is None:
        return None

    def compute(_: Any) -> dict[str, Any]:
        found = held_out.criteria(make_scorer(lab, load(lab, member.bi), member.bi.prompts), {})
        return {name: None if np.isnan(value) else value for name, value in found.items()}

    return lab.run.stage(
        f"{member.bi.name}/criteria",
        config={
            "version": _CODE_VERSION,
            "held_out": held_out.about,
            "max_length": lab.settings.bi.max_length,
            **member.bi.reading,
            "precision": lab.settings.precision,
        },
        inputs=[lab.pairs_fingerprint, member.bi.key],
        compute=compute,
    )


def _n_unlabelled(lab: Lab) -> int:
    return len(lab.pairs) if lab.gold is None else int(np.isnan(lab.gold).sum())
