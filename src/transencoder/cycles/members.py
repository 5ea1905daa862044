"""Members and other teachers of a Trans-Encoder run, and the context that its stages are built with."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from transencoder.configs import BiLabels, Criterion, Form, LabelPolicy, Member
from transencoder.context import Context, GivenScores, Model
from transencoder.cycles.stages import Criteria, KeptScores, Pretraining, TeacherScores
from transencoder.methods.trans_encoder import TransEncoder
from transencoder.results import weak_start_notes
from transencoder.runs import StageRecord
from transencoder.selection import LEAST_PAIRS, HeldOut, hold_out

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ContextMember:
    """A member: its settings, its base models, and what the run decides about it."""

    prefix: str
    """Prefix of the names of its stages: `member-2/`; empty for the only member."""
    bi: Model
    cross: Model
    config: Member
    """Its settings; `fit_of`, `pretraining_of` and `policy_of` of the run's config complete them."""
    weight_tokens: bool = False
    """Whether its bi-encoders are kept with weighted tokens."""
    pretrained: StageRecord | None = None
    """Stage that pretrained the encoder of `cross`, which cross-encoders then start from; None: no pretraining."""


@dataclass(frozen=True)
class ContextTeacher:
    """A teacher that labels in every cycle, in addition to the members."""

    name: str
    """Name in its stages and in the labels' record: `teacher-1`."""
    source: Model | GivenScores
    """A model, or given scores of the training pairs."""
    weight: float
    """Weight in the labels; the members together have weight 1."""
    policy: LabelPolicy


@dataclass
class CycleContext(Context[TransEncoder]):
    """Context that the cycles are built with."""

    members: tuple[ContextMember, ...] = ()
    teachers: tuple[ContextTeacher, ...] = ()
    """Teachers that are not members."""
    held_out: HeldOut | None = None
    """Pairs that are held out from training: each evaluation computes criteria on them, without labels."""
    criteria: Mapping[Form, Criterion | None] = field(default_factory=dict)
    """Criterion that chooses the checkpoints of each form; none if there is a dev set, or the last one is kept."""
    mined: StageRecord | None = None
    """Stage that mined the training pairs with the first member's base model, and kept its cosines of them."""

    @property
    def may_leave_range(self) -> bool:
        """Whether targets may lie outside [0, 1], as the released code's do."""
        policies = [self.config.policy_of(member.config) for member in self.members]
        return "raw" in policies + [teacher.policy for teacher in self.teachers]

    def scores_of(self, models: Sequence[Model], bi_labels: BiLabels = "cosine") -> tuple[StageRecord, ...]:
        """Return the stages with models' scores of the training pairs; members' bi-encoders score by `bi_labels`."""
        by = ["cosine" if model.form == "cross" or model.only_teaches else bi_labels for model in models]
        return tuple(self.make_all([self._scores(model, each) for model, each in zip(models, by, strict=True)]))

    def _scores(self, model: Model, by: BiLabels) -> KeptScores | TeacherScores:
        """Return the stage of a model's scores: those that mining computed, or else scores to compute."""
        if by == "cosine" and self.mined is not None and model == self.members[0].bi:
            scores, key = np.load(self.mined.folder / "scores.npy"), f"{self.mined.key} {self.data.rows.key}"
            return KeptScores(name=f"{model.name}/scores", given=GivenScores(scores, key))
        return TeacherScores(
            name=f"{model.name}/scores" if by == "cosine" else f"{model.name}/scores-by-{by}",
            pairs=self.data.rows,
            model=model,
            both_orders=model.form == "cross" and bool(self.labels_both_orders),
            max_length=None if model.cycle or model.only_teaches else self.max_length,
            precision=self.config.precision,
            bi_labels=by,
        )

    def scores_of_teacher(self, teacher: ContextTeacher) -> StageRecord:
        """Return the stage with the scores of a teacher that is not a member."""
        if isinstance(teacher.source, Model):
            return self.scores_of([teacher.source])[0]
        return self.make(KeptScores(name=f"{teacher.name}/scores", given=teacher.source))


def with_pretraining(context: CycleContext) -> CycleContext:
    """Pretrain cross-encoders' base models on the pairs for members that ask for it, and return the new context."""
    config = context.config
    stages = [
        Pretraining(
            name=f"{member.prefix}cross-start/pretraining",
            pairs=context.data.rows,
            base=member.cross,
            fit=own.as_fit(config.fit_of(member.config, "cross")),
            mask_ratio=own.mask_ratio,
            both_orders=config.is_symmetric,
            seed=config.seed,
            precision=config.precision,
        )
        for member in context.members
        if (own := config.pretraining_of(member.config)).epochs
    ]
    made = {stage.base.member: record for stage, record in zip(stages, context.make_all(stages), strict=True)}
    members = [replace(member, pretrained=made.get(member.cross.member)) for member in context.members]
    return replace(context, members=tuple(members))


def base_criteria(context: CycleContext, members: Sequence[ContextMember]) -> list[StageRecord | None]:
    """Return the stages with the criteria of members' base models, which need no labels; None for too few pairs.

    They are computed on the held-out pairs or, if dev chooses and no pairs are held out, on those that would be.
    """
    held_out, gold = context.held_out, context.data.gold
    if held_out is None and context.data.n_unlabelled >= LEAST_PAIRS:
        held_out = hold_out(context.data.training, None if gold is None else gold.scores)
    if held_out is None:
        return [None] * len(members)
    stages = [
        Criteria(
            name=f"{member.bi.name}/criteria",
            pairs=context.data.rows,
            model=member.bi,
            held_out=held_out,
            max_length=context.max_length,
            precision=context.config.precision,
        )
        for member in members
    ]
    return [*context.make_all(stages)]


def warn_of_weak_bases(context: CycleContext) -> None:
    """Warn, before training, of base models that look too weak to teach."""
    records = base_criteria(context, context.members)
    for member, record in zip(context.members, records, strict=True):
        for note in weak_start_notes(record.result) if record is not None else ():
            logger.warning("%s: %s", member.bi.name, note)
