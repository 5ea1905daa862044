"""The paper's algorithm: bi -> cross -> bi, with one member, or with several that learn the mean of all labels."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from transencoder.configs import Form, LabelPolicy
from transencoder.context import Model, trained_model
from transencoder.cycles.members import ContextMember, CycleContext
from transencoder.cycles.stages import BiStudent, CrossStudent, Labels, Student
from transencoder.results import weak_cross_notes
from transencoder.runs import StageRecord

logger = logging.getLogger(__name__)

_NARROW = 0.25
"""Smallest width of the middle nine tenths of the labels at which the teachers tell the pairs apart."""


def distil(context: CycleContext, n_cycles: int) -> list[list[Model]]:
    """Run self-distillation with one member, mutual distillation with several (paper, sections 2.2 to 2.4).

    `n_cycles` is the highest number of cycles; training ends earlier if the models no longer improve.

    Returns:
        Models of each cycle: the cross-encoders, then the bi-encoders. In standard self-distillation (Table 14), where
        a bi-encoder learns from the one before, there are only bi-encoders.
    """
    cycles: list[list[Model]] = []
    bis = [context.members[member].bi for member in _learners(context, 1)]
    for cycle in range(1, n_cycles + 1):
        learners = _learners(context, cycle)
        crosses = [] if context.config.same_form else learn(context, learners, "cross", cycle, teachers=bis)
        bis = learn(context, learners, "bi", cycle, teachers=crosses or bis)
        cycles.append([*crosses, *bis])
        if _is_stale(context, cycles):
            break
    return cycles


def learn(
    context: CycleContext, members: Sequence[int], form: Form, cycle: int, teachers: Sequence[Model]
) -> list[Model]:
    """Train one student of each member: teachers score the pairs, and students learn labels made from the scores.

    Students learn the mean of all teachers' labels (section 2.4) or, if members do not share labels, those of their own
    teacher. For bi-encoders the base models also teach, if `start_weight` is above 0. Members are given by their
    positions, from 0; cycles count from 1.
    """
    shared = context.config.share_labels
    groups = [list(teachers)] if shared else [[teacher] for teacher in teachers]
    supervisions = [_supervise(context, form, cycle, group) for group in groups]
    of_each = supervisions * len(members) if shared else supervisions
    stages = [
        _student(context, context.members[position], form, cycle, own, teachers)
        for position, own in zip(members, of_each, strict=True)
    ]
    trained = [
        replace(
            trained_model(record, stage.base, cycle=cycle),
            seconds=own.seconds + record.seconds,
            chosen_by="dev" if context.data.dev is not None else context.criteria.get(form),
        )
        for own, stage, record in zip(of_each, stages, context.make_all(stages), strict=True)
    ]
    for model in trained if form == "cross" else ():
        for note in weak_cross_notes(model.criteria):
            logger.warning("%s: %s", model.name, note)
    return trained


@dataclass(frozen=True)
class _Supervision:
    """Labels that the students of a cycle learn, and the teachers."""

    labels: StageRecord
    seconds: float
    """Seconds that the labels and the teachers' scores took."""
    teachers: Sequence[Model]


def _supervise(context: CycleContext, form: Form, cycle: int, teachers: Sequence[Model]) -> _Supervision:
    """Score the pairs with the teachers, and make labels from the scores."""
    others_part = [
        _Labeller(each.name, each.source.key, context.scores_of_teacher(each), each.policy, each.weight)
        for each in context.teachers
    ]
    labellers = [*_members_part(context, form, teachers), *others_part]
    prefix = "" if context.config.share_labels else context.members[teachers[0].member].prefix
    labels = context.make(
        Labels(
            name=f"{prefix}cycle-{cycle}/labels-for-{form}",
            scores=tuple(each.scores for each in labellers),
            policy=tuple(each.policy for each in labellers),
            weights=tuple(each.weight for each in labellers),
            teachers=tuple((each.name, each.key) for each in labellers),
            pairs=context.data.rows,
        )
    )
    if cycle == 1 and form == "cross":
        _warn_of_narrow(labels)
    seconds = labels.seconds + sum(each.scores.seconds for each in labellers)
    return _Supervision(labels, seconds, teachers)


@dataclass(frozen=True)
class _Labeller:
    """Scores that one teacher gives the pairs, with its policy and weight in the labels."""

    name: str
    key: str
    scores: StageRecord
    policy: LabelPolicy
    weight: float


def _members_part(context: CycleContext, form: Form, teachers: Sequence[Model]) -> list[_Labeller]:
    """Return the teachers and, for a bi-encoder's labels, the base models with their share; all weights sum to 1."""
    config = context.config
    start_weight = config.start_weight if form == "bi" else 0.0
    members = [context.members[teacher.member] for teacher in teachers]
    total = sum(member.config.weight for member in members)
    shares = [member.config.weight / total for member in members]
    models, weights = list(teachers), [(1.0 - start_weight) * share for share in shares]
    if start_weight:
        models += [member.bi for member in members]
        weights += [start_weight * share for share in shares]
    scores = context.scores_of(models, config.bi_labels or "cosine")
    return [
        _Labeller(model.name, model.key, each, config.policy_of(context.members[model.member].config), weight)
        for model, each, weight in zip(models, scores, weights, strict=True)
    ]


def _warn_of_narrow(labels: StageRecord) -> None:
    """Warn, before training, if the base models hardly tell the pairs apart."""
    low, high = labels.result.get("middle", (0.0, 1.0))  # missing in labels of earlier versions
    if high - low < _NARROW:
        logger.warning(
            "nine of ten labels lie between %.2f and %.2f: the teachers hardly tell these pairs apart, and "
            "what learns from them learns slowly. Mix in more and less alike pairs, or take label_policy quantile",
            low,
            high,
        )


def _student(
    context: CycleContext,
    member: ContextMember,
    form: Form,
    cycle: int,
    supervision: _Supervision,
    all_teachers: Sequence[Model],
) -> Student:
    """Return the stage of a member's student.

    It starts from the member's base model (refreshing), or with its own teacher's encoder (sequential, section 5.2).
    """
    config, data, teachers = context.config, context.data, supervision.teachers
    is_sequential = config.initialisation == "sequential"
    members = {teacher.member for teacher in teachers}
    others = [teacher for teacher in all_teachers if teacher.member not in members]
    references = _references(context, member, [*teachers, *others])
    shared: dict[str, Any] = {
        "name": f"{member.prefix}cycle-{cycle}/{form}-encoder",
        "labels": supervision.labels,
        "dev": data.dev,
        "analysis": tuple(data.tests) if config.test_every_eval else (),
        "teacher": next(each for each in teachers if each.member == member.bi.member) if is_sequential else None,
        "gold": data.gold,
        "other_teachers": () if context.held_out is None else tuple(others),
        "fit": config.fit_of(member.config, form),
        "initialisation": config.initialisation,
        "seed": config.seed,
        "precision": config.precision,
        "allow_outside": context.may_leave_range,
        "held_out": context.held_out,
        "chosen_by": context.criteria.get(form),
        "pairs": data.rows,
        "references": references,
        "other_references": references.get("start", ()) if config.alternate_members else (),
    }
    if form == "bi":
        weight = member.weight_tokens
        return BiStudent(**shared, base=member.bi, pretrained=None, loss=config.bi_loss, weight_tokens=weight)
    return CrossStudent(
        **shared,
        base=member.cross,
        pretrained=member.pretrained,
        loss=config.cross_loss,
        head=config.head,
        both_orders=config.is_symmetric,
        dev_orders=config.label_both_orders,
    )


def _references(
    context: CycleContext, member: ContextMember, teachers: Sequence[Model]
) -> dict[str, tuple[StageRecord, ...]]:
    """Return the scores that criteria compare a student's with: its base model's, and other members' teachers'."""
    if context.held_out is None:
        return {}
    others = [each for each in teachers if each.member != member.bi.member]
    compared = {"start": [member.bi]} | ({"member": others} if others else {})
    return {name: context.scores_of(models) for name, models in compared.items()}


def _learners(context: CycleContext, cycle: int) -> Sequence[int]:
    """Return the positions of all members or, if they alternate, of the next one (paper, section 2.4, footnote 5)."""
    n_members = len(context.members)
    return [(cycle - 1) % n_members] if context.config.alternate_members else range(n_members)


def _is_stale(context: CycleContext, cycles: list[list[Model]]) -> bool:
    """Return whether, for `patience_cycles` cycles, no form of any member improved its dev metric or criterion."""
    patience = context.config.patience_cycles
    if patience is None or len(cycles) <= patience or context.is_plan:
        return False
    before, recent = _highest(context, cycles[:-patience]), _highest(context, cycles[-patience:])
    return bool(recent) and all(value <= before[name] for name, value in recent.items())


def _highest(context: CycleContext, cycles: list[list[Model]]) -> dict[tuple[str, int], float]:
    """Return the highest dev metric or criterion, by form and member; members that alternate count as one."""
    highest: dict[tuple[str, int], float] = {}
    for model in (model for cycle in cycles for model in cycle if model.chosen_by is not None):
        name = (model.form, 0 if context.config.alternate_members else model.member)
        value = -math.inf if model.best is None else model.best
        highest[name] = max(highest.get(name, -math.inf), value)
    return highest
