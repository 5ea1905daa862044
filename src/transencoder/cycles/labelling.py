"""The teachers' scores of the pairs, and the labels made of them: stages of a run."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from transencoder import distributed
from transencoder.config import Form, LabelPolicy
from transencoder.cycles.lab import Lab, Model, load, make_scorer, own_first
from transencoder.labels import as_record, combine, score_on_ranks
from transencoder.runs import StageRecord

logger = logging.getLogger(__name__)

_CODE_VERSION = 5
"""Raised when a change of the code changes what a stage computes."""

_NARROW = 0.25
"""From this width of the middle nine tenths of the labels on, pairs are told apart."""


@dataclass(frozen=True)
class _WeightedTeacher:
    """A teacher's part in the labels."""

    model: Model
    weight: float
    policy: LabelPolicy


def label_pairs(lab: Lab, form: Form, cycle: int, teachers: list[Model]) -> tuple[StageRecord, float]:
    """The labels that all teachers make together: a stage, and what it and their scores cost.

    Args:
        lab: Pairs, members, settings, and the run that keeps the stages.
        form: Of the students that are to learn the labels; for bi-encoders the starts teach too, as far as the settings
            say so.
        cycle: From 1.
        teachers: Those of the members that share the labels.

    Returns:
        The stage, and its and the scores' seconds.
    """
    weighted = _weighted_teachers(lab, form, teachers)
    scored = own_first(lab, [each.model.member for each in weighted], lambda i: score_pairs(lab, weighted[i].model))
    policies = [each.policy for each in weighted]
    whose = "" if lab.settings.share_labels else lab.members[teachers[0].member].prefix
    record = lab.run.stage(
        f"{whose}cycle-{cycle}/labels-for-{form}",
        config={
            "version": _CODE_VERSION,
            "policy": policies[0] if len(set(policies)) == 1 else policies,
            "weights": [each.weight for each in weighted],
        },
        inputs=[stage.key for stage in scored],
        compute=lambda folder: _label(lab, weighted, scored, folder),
    )
    if cycle == 1 and form == "cross":
        _warn_of_narrow(record)
    return record, record.seconds + sum(stage.seconds for stage in scored)


def _warn_of_narrow(labels: StageRecord) -> None:
    """Say at once that the starts hardly tell the pairs apart."""
    low, high = labels.result.get("middle", (0.0, 1.0))  # absent from labels of earlier versions
    if high - low < _NARROW:
        logger.warning(
            "nine of ten labels of the start lie between %.2f and %.2f: it hardly tells these pairs apart, and the "
            "cross-encoder will learn slowly. Mix in more and less alike pairs, or take label_policy quantile",
            low,
            high,
        )


def _weighted_teachers(lab: Lab, form: Form, teachers: list[Model]) -> list[_WeightedTeacher]:
    """The teachers and, with their share in a bi-encoder's labels, their starts."""
    start_weight = lab.settings.start_weight if form == "bi" else 0.0
    total = sum(lab.members[teacher.member].weight for teacher in teachers)

    def weigh(model: Model, share: float) -> _WeightedTeacher:
        member = lab.members[model.member]
        return _WeightedTeacher(model, share * (member.weight / total), member.policy or lab.settings.label_policy)

    weighted = [weigh(teacher, 1.0 - start_weight) for teacher in teachers]
    if start_weight:
        weighted += [weigh(lab.members[teacher.member].bi, start_weight) for teacher in teachers]
    return weighted


def score_pairs(lab: Lab, model: Model) -> StageRecord:
    """A teacher's raw scores of the training pairs, once for all policies, weights and cycles."""
    is_start = not model.cycle

    def compute(folder: Path) -> dict[str, Any]:
        scores = score_on_ranks(make_scorer(lab, load(lab, model), model.prompts), lab.pairs)
        if distributed.rank() == 0:
            np.save(folder / "scores.npy", scores)
        return {}

    return lab.run.stage(
        f"{model.name}/scores",
        config={
            "version": _CODE_VERSION,
            "both_orders": model.form == "cross" and lab.settings.label_both_orders and lab.settings.is_symmetric,
            "max_length": lab.settings.bi.max_length if is_start else None,
            **model.reading,
            "precision": lab.settings.precision,
        },
        inputs=[lab.pairs_fingerprint, model.key],
        compute=compute,
    )


def _label(lab: Lab, weighted: list[_WeightedTeacher], scored: list[StageRecord], folder: Path) -> dict[str, Any]:
    labels = combine(
        {each.model.name: np.load(record.folder / "scores.npy") for each, record in zip(weighted, scored, strict=True)},
        {each.model.name: each.policy for each in weighted},
        {each.model.name: each.weight for each in weighted},
        {each.model.name: each.model.key for each in weighted},
    )
    if distributed.rank() == 0:
        labels.write(folder / "labels.parquet", lab.pairs)
        labels.write_raw(folder / "raw.parquet")
    low, high = np.percentile(labels.targets, [5, 95])
    return {"teachers": as_record(labels.provenance), "middle": [float(low), float(high)]}


def read_targets(path: Path) -> np.ndarray:
    """The targets of a labels file, float32 (n,)."""
    targets: np.ndarray = pq.read_table(path, columns=["label"])["label"].to_numpy()
    return targets
