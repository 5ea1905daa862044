"""What the record of a Trans-Encoder run has beside the entries of every method."""

from typing import Any

from transencoder.configs import Form
from transencoder.cycles import CycleContext
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.records import SelectionRecord
from transencoder.selection import criterion_of, measured_on, regrets_of
from transencoder.training.chains import Chain
from transencoder.training.other_teachers import names_of
from transencoder.training.result import best_records

_RAW_NOTE = "Label policy `raw` follows the released code: targets may lie outside [0, 1]."
_LOGIT_NOTE = "The cross-encoder learned its labels as they are: its raw output is the score, without a sigmoid."
_SAME_FORM_ABOUT = "In each cycle a bi-encoder scores the pairs, and a bi-encoder learns from it."


def details_of(context: CycleContext, chain: Chain) -> dict[str, Any]:
    """Return the entries of the kept chain's record that only this method has."""
    config = context.config
    details: dict[str, Any] = {}
    if context.held_out is not None:
        data: dict[str, Any] = {**context.data.as_record()}
        details["data"] = data | {"pairs": data["pairs"] | {"held_out_rows": len(context.held_out.rows)}}
    if any(context.criteria.values()):
        details["selection"] = _selection(context)
    if chain.criteria is not None:
        details["criteria"] = chain.criteria
    if chain.pretraining is not None:
        details["pretraining"] = chain.pretraining
    about = _SAME_FORM_ABOUT if config.same_form else config.about
    if len(config.members) > 1:
        about = f"{about} {_how_members_learn(config)}"
        details["best"] = {
            form: record | {"member": chain.best[form].member + 1}
            for form, record in best_records(chain.best, "").items()
        }
        details["start_member"] = chain.start.member + 1
    if config.teachers:
        about = f"{about} {who_else_labels(config)}"
    return details | {"about": about}


def _selection(context: CycleContext) -> SelectionRecord:
    """Return the criteria that chose without labels, and what this choice cost in runs that had labels."""
    n_runs, n_starts = measured_on()
    regrets = {form: regrets_of(form) for form in context.criteria}
    criteria: dict[Form, str] = {form: criterion or "last" for form, criterion in context.criteria.items()}
    return {
        "criteria": criteria,
        "own_regrets": {
            form: regrets[form][criterion]
            for form, criterion in criteria.items()
            if criterion in regrets[form] and criterion != "last" and criterion != criterion_of(form, "auto")
        },
        "left_out_regrets": {form: found["left_out"] for form, found in regrets.items()},
        "last_regrets": {form: found["last"] for form, found in regrets.items()},
        "runs": n_runs,
        "starts": n_starts,
    }


def notes_of(context: CycleContext) -> list[str]:
    """Return what a reader of the report must know of the labels."""
    config = context.config
    notes = [_RAW_NOTE] if context.may_leave_range else []
    return notes + ([_LOGIT_NOTE] if config.cross_loss == "mse" and not config.same_form else [])


def _how_members_learn(config: TransEncoder) -> str:
    if config.alternate_members:
        return f"{len(config.members)} members learn in turn, one a cycle, each from the one before."
    if not config.share_labels:
        return f"{len(config.members)} members do so side by side, each learning from its own scores."
    return f"{len(config.members)} members learn from the weighted mean of their scores."


def who_else_labels(config: TransEncoder) -> str:
    """Return a sentence on the other teachers."""
    names = names_of(config.teachers)
    return f"The pairs are labelled by {names} too."
