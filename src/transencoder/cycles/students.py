"""The students of a cycle: the trainings on what their teachers say of the pairs, all stages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import AutoModel

from transencoder import distributed
from transencoder.config import BiLoss, CrossLoss, Form
from transencoder.cycles.lab import Lab, LabMember, Model, load, make_scorer, own_first
from transencoder.cycles.labelling import label_pairs, read_targets, score_pairs
from transencoder.cycles.unlabelled import student_criteria, warn_of_weak_cross
from transencoder.encoders import as_logits, load_bi, load_cross, transplant
from transencoder.fit import DevMetrics, Material, fit, stage_session
from transencoder.losses import (
    ClippedCosineCrossEntropyLoss,
    CosineCrossEntropyLoss,
    CosineLoss,
    CosineRegressionLoss,
    LogCoshLoss,
    LogitLoss,
    LogitRegressionLoss,
    SoftCrossEntropyLoss,
)
from transencoder.prompts import OWN_PROMPTS
from transencoder.runs import StageRecord
from transencoder.tokens import Encoder

_CODE_VERSION = 5
"""Raised when a change of the code changes what a stage computes."""

_CROSS_LOSSES: dict[CrossLoss, type[LogitLoss]] = {"bce": SoftCrossEntropyLoss, "mse": LogitRegressionLoss}

_BI_LOSSES: dict[BiLoss, type[CosineLoss]] = {
    "mse": CosineRegressionLoss,
    "log_cosh": LogCoshLoss,
    "bce": CosineCrossEntropyLoss,
    "bce_clipped": ClippedCosineCrossEntropyLoss,
}


def learn(lab: Lab, members: Sequence[int], form: Form, cycle: int, teachers: list[Model]) -> list[Model]:
    """One student of each member: the teachers' scores, the labels made of them, the trainings: all stages.

    Labels are the mean of all teachers (section 2.4) or, where members do not share them, of each member's own.

    Args:
        lab: Pairs, members, settings, and the run that keeps the stages.
        members: Whose students: positions among the lab's members.
        form: What they are to be.
        cycle: From 1.
        teachers: Whose labels they learn; for bi-encoders the starts teach too, as far as the settings say so.
    """
    if lab.settings.share_labels:
        supervision = _supervise(lab, form, cycle, teachers, teachers)
        return own_first(lab, members, lambda i: _student(lab, lab.members[members[i]], supervision))

    def alone(i: int) -> Model:
        return _student(lab, lab.members[members[i]], _supervise(lab, form, cycle, [teachers[i]], teachers))

    return own_first(lab, members, alone)


@dataclass(frozen=True)
class _Supervision:
    """What the students of a cycle learn."""

    form: Form
    """What they are to be."""
    cycle: int
    labels: StageRecord
    labelling_seconds: float
    """Teachers' scores included."""
    teachers: Mapping[int, Model]
    """By member."""
    all_teachers: Sequence[Model]
    """The cycle's, also those that do not teach these students."""

    def name(self, member: LabMember) -> str:
        """The stage of a member's student."""
        return f"{member.prefix}cycle-{self.cycle}/{self.form}-encoder"


def _supervise(lab: Lab, form: Form, cycle: int, teachers: list[Model], all_teachers: Sequence[Model]) -> _Supervision:
    labels, seconds = label_pairs(lab, form, cycle, teachers)
    return _Supervision(form, cycle, labels, seconds, {teacher.member: teacher for teacher in teachers}, all_teachers)


def _student(lab: Lab, member: LabMember, supervision: _Supervision) -> Model:
    name = supervision.name(member)
    initial = _initial_keys(lab, member, supervision)
    record = lab.run.stage(
        name,
        config=_fit_config(lab, member, supervision.form),
        inputs=[
            supervision.labels.key,
            lab.dev_fingerprint,
            *lab.analysis_fingerprints,
            *initial,
            *([] if lab.gold is None else [lab.gold_fingerprint]),
            *([] if lab.held_out is None else _keys_of_strangers(supervision)),
        ],
        compute=lambda folder: _fit(lab, member, supervision, folder),
    )
    student = Model(
        supervision.form,
        record.folder / "model",
        record.key,
        name,
        supervision.cycle,
        fitted=record.result,
        seconds=supervision.labelling_seconds + record.seconds,
        prompts=member.bi.prompts if supervision.form == "bi" else OWN_PROMPTS,
        member=member.bi.member,
        chosen_by=lab.criteria.get(supervision.form) if lab.dev is None else "dev",
    )
    if student.form == "cross":
        warn_of_weak_cross(student)
    return student


def _fit(lab: Lab, member: LabMember, supervision: _Supervision, folder: Path) -> dict[str, Any]:
    form, name = supervision.form, supervision.name(member)
    session = stage_session(lab.run, lab.settings, name, folder, lab.cache)
    student = _initialise(lab, member, supervision, session.seed)
    fitted = fit(
        student,
        _losses(lab)[form],
        Material(
            pairs=lab.pairs,
            targets=_targets(lab, supervision),
            rows=None if lab.held_out is None else np.delete(np.arange(len(lab.pairs)), lab.held_out.rows),
            both_orders=form == "cross" and lab.settings.is_symmetric,
            prompts=member.bi.prompts,
        ),
        _dev_metrics(lab, member, supervision) if lab.dev is not None or lab.criteria.get(form) else None,
        member.fits[form],
        session,
    )
    if distributed.rank() == 0:
        student.save_pretrained(str(folder / "model"), create_model_card=False)
    return asdict(fitted)


def _dev_metrics(lab: Lab, member: LabMember, supervision: _Supervision) -> DevMetrics:
    """What is measured of a student at each evaluation."""
    criteria, criterion = None, lab.criteria.get(supervision.form)
    if lab.held_out is not None:
        criteria = student_criteria(lab.held_out, _said_of_pairs(lab, member, supervision))

    def measure(model: Encoder) -> dict[str, float]:
        scorer = make_scorer(lab, model, member.bi.prompts)
        tests = lab.analysis(scorer) if lab.analysis is not None else {}
        found = criteria(scorer) if criteria is not None else {}
        return (
            {"dev": lab.dev(scorer) if lab.dev is not None else found[str(criterion)]}
            | {f"test_{name}": value for name, value in tests.items()}
            | {f"criterion_{name}": value for name, value in found.items()}
        )

    return measure


def _keys_of_strangers(supervision: _Supervision) -> list[str]:
    """Of the teachers that criteria compare with and that have no part in the labels."""
    return [each.key for each in supervision.all_teachers if each.member not in supervision.teachers]


def _said_of_pairs(lab: Lab, member: LabMember, supervision: _Supervision) -> dict[str, list[np.ndarray]]:
    """What others say of all training pairs, (n,) each: a student's teachers, its start, other members' teachers."""
    others = [each for each in supervision.all_teachers if each.member != member.bi.member]
    scored = {"start": [member.bi]} | ({"member": others} if others else {})
    found = {name: [np.load(score_pairs(lab, each).folder / "scores.npy") for each in scored[name]] for name in scored}
    return {"teacher": [read_targets(supervision.labels.folder / "labels.parquet")]} | found


def _targets(lab: Lab, supervision: _Supervision) -> np.ndarray:
    """The labels, (n,); beside gold scores where there are some, (n, 2)."""
    targets = read_targets(supervision.labels.folder / "labels.parquet")
    return targets if lab.gold is None else np.stack([lab.gold, targets], axis=1)


def _initialise(lab: Lab, member: LabMember, supervision: _Supervision, seed: int) -> Encoder:
    """Refreshing: from the member's starts; sequential: with the encoder of its own teacher (section 5.2)."""
    settings = lab.settings
    student: Encoder
    if supervision.form == "bi":
        student = load_bi(
            member.bi.folder,
            max_length=settings.bi.max_length,
            pooling=member.bi.pooling,
            prompts=member.bi.prompts,
            device=lab.device,
        )
    else:
        student = load_cross(
            member.cross,
            max_length=settings.cross.max_length,
            head=settings.head,
            seed=seed,
            device=lab.device,
        )
        if settings.cross_loss == "mse":
            as_logits(student)
        if member.pretrained is not None:
            transplant(AutoModel.from_pretrained(member.pretrained.folder / "model"), student)
    if settings.initialisation == "sequential":
        transplant(load(lab, supervision.teachers[member.bi.member]), student)
    return student


def _losses(lab: Lab) -> dict[Form, Callable[[Any], Any]]:
    outside = may_leave_range(lab)

    def cross(model: CrossEncoder) -> LogitLoss:
        return _CROSS_LOSSES[lab.settings.cross_loss](model, allow_outside=outside)

    def bi(model: SentenceTransformer) -> CosineLoss:
        return _BI_LOSSES[lab.settings.bi_loss](model, allow_outside=outside)

    return {"cross": cross, "bi": bi}


def may_leave_range(lab: Lab) -> bool:
    """Whether targets may lie outside [0, 1], as the released code's do."""
    return any((member.policy or lab.settings.label_policy) == "raw" for member in lab.members)


def _fit_config(lab: Lab, member: LabMember, form: Form) -> dict[str, Any]:
    settings = lab.settings
    config = {
        "version": _CODE_VERSION,
        "fit": member.fits[form].outcome,
        "initialisation": settings.initialisation,
        "seed": settings.seed,
        "precision": settings.precision,
        "n_processes": distributed.world_size(),
        "allow_outside": may_leave_range(lab),
    }
    if lab.held_out is not None:
        config["held_out"] = lab.held_out.about
    if lab.criteria.get(form) is not None:
        config["chosen_by"] = lab.criteria[form]
    loss, usual = (settings.bi_loss, "mse") if form == "bi" else (settings.cross_loss, "bce")
    if loss != usual:  # a field that came later: older stages keep their keys
        config["loss"] = loss
    if form == "bi":
        return config | member.bi.reading
    return config | {
        "head": settings.head,
        "both_orders": settings.is_symmetric,
        "dev_orders": settings.label_both_orders,
    }


def _initial_keys(lab: Lab, member: LabMember, supervision: _Supervision) -> list[str]:
    keys = [member.bi.key if supervision.form == "bi" else member.cross_fingerprint]
    if supervision.form == "cross" and member.pretrained is not None:
        keys.append(member.pretrained.key)
    if lab.settings.initialisation == "sequential":
        keys.append(supervision.teachers[member.bi.member].key)
    return keys
