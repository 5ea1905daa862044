"""What the cycles work with: the data, the settings, the starts, the models that they make."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from transencoder.config import (
    BiLoss,
    Criterion,
    CrossLoss,
    FitConfig,
    Form,
    Head,
    LabelPolicy,
    Pooling,
    Precision,
    PretrainingConfig,
)
from transencoder.encoders import gives_logits, load_bi, load_trained, weights_fingerprint
from transencoder.prompts import OWN_PROMPTS, Prompts
from transencoder.runs import Run, StageRecord
from transencoder.scorers import BiScorer, CrossScorer, Scorer
from transencoder.selection import HeldOut
from transencoder.tokens import Encoder, TokenCache

Made = TypeVar("Made")


@dataclass(frozen=True)
class Model:
    """A model on disk and what it is: a start, or what a stage made."""

    form: Form
    folder: Path
    key: str
    """Fingerprint of a start, key of a stage."""
    name: str
    cycle: int = 0
    """0: a start."""
    fitted: dict[str, Any] | None = None
    """The fit's record: best, best_step, curve, n_steps, seconds."""
    seconds: float = 0.0
    pooling: Pooling | None = None
    """Of a start; None: its own."""
    prompts: Prompts = OWN_PROMPTS
    """Of a bi-encoder."""
    member: int = 0
    """Whose it is: position among the lab's members."""
    chosen_by: str | None = "dev"
    """What chose its checkpoint: dev, or a criterion that needs no labels; None: nothing, it is the last one."""

    @property
    def reading(self) -> dict[str, Any]:
        """What decides how it reads texts besides its folder, for a stage's key."""
        return {"pooling": self.pooling} | self.prompts.outcome

    @property
    def dev(self) -> float | None:
        """Best dev metric, where there is a dev set."""
        return self.best if self.chosen_by == "dev" else None

    @property
    def best(self) -> float | None:
        """The highest value of what chose its checkpoint, where anything did."""
        return self.fitted["best"] if self.fitted else None

    @property
    def criteria(self) -> dict[str, float | None]:
        """What held-out pairs say of it without labels, by criterion; empty where none are held out."""
        return {} if self.fitted is None else dict(self.others("criterion_")).get(self.fitted["best_step"], {})

    def others(self, prefix: str) -> list[tuple[int, dict[str, float | None]]]:
        """(step, metrics besides dev) of each evaluation that recorded some of a kind.

        Args:
            prefix: The kind, which their names begin with and lose: `test_` or `criterion_`.
        """
        found = self.fitted.get("others", []) if self.fitted else []
        named = [
            (step, {name.removeprefix(prefix): v for name, v in each.items() if name.startswith(prefix)})
            for step, each in found
        ]
        return [(step, values) for step, values in named if values]


@dataclass(frozen=True)
class LabMember:
    """Where the models of one member start, how they are trained, and how their scores count."""

    prefix: str
    """Of the names of its stages: `member-2/`; empty for the only member."""
    bi: Model
    cross: Path
    cross_fingerprint: str
    fits: Mapping[Form, FitConfig]
    """How its bi- and cross-encoders are trained."""
    pretraining: PretrainingConfig
    """Of the cross-encoders' start."""
    weight: float = 1.0
    """Share in labels and ensembles, above 0; they are normalised."""
    policy: LabelPolicy | None = None
    """How its scores become targets; None: as the settings say."""
    pretrained: StageRecord | None = None
    """The stage that made the encoder of the cross-encoders' start from `cross`, where there is one."""


@dataclass
class Lab:
    """What every stage works with."""

    run: Run
    settings: "_Settings"
    pairs: Dataset
    pairs_fingerprint: str
    dev: Callable[[Scorer], float] | None
    """Metric of a scorer on the dev set."""
    dev_fingerprint: str
    analysis: Callable[[Scorer], dict[str, float]] | None
    """Analysis mode: test metrics of a scorer, recorded at each dev evaluation, never used to choose."""
    analysis_fingerprints: tuple[str, ...]
    """Which test sets those are."""
    cache: TokenCache
    device: str
    members: tuple[LabMember, ...]
    gold: np.ndarray | None = None
    """float32 (n pairs,), in [0, 1], NaN where there is none; None: no pair has a gold score."""
    gold_fingerprint: str = ""
    held_out: HeldOut | None = None
    """Pairs on which nothing is trained: each evaluation records what they say of the student without labels."""
    criteria: Mapping[Form, Criterion | None] = field(default_factory=dict)
    """By which of these checkpoints are chosen; none where there is a dev set, or the last one is kept."""


def start_model(
    folder: Path,
    name: str = "start",
    pooling: Pooling | None = None,
    prompts: Prompts = OWN_PROMPTS,
    member: int = 0,
) -> Model:
    """A bi-encoder to start from."""
    return Model("bi", folder, weights_fingerprint(folder), name, pooling=pooling, prompts=prompts, member=member)


def make_scorer(lab: Lab, model: Encoder, prompts: Prompts) -> Scorer:
    """The scorer of a model in hand, on the lab's tokens and precision; prompts are a bi-encoder's."""
    if isinstance(model, SentenceTransformer):
        return BiScorer(
            model,
            precision=lab.settings.precision,
            cache=lab.cache,
            prompt=prompts.query,
            document_prompt=prompts.document,
        )
    return CrossScorer(
        model,
        precision=lab.settings.precision,
        cache=lab.cache,
        both_orders=lab.settings.label_both_orders and lab.settings.is_symmetric,
        as_logit=gives_logits(model),
    )


def load(lab: Lab, model: Model, max_length: int | None = None) -> Encoder:
    """A start or a trained model, in memory; with another maximal length than it has, where one is given."""
    if not model.cycle:
        return load_bi(
            model.folder,
            max_length=lab.settings.bi.max_length,
            pooling=model.pooling,
            prompts=model.prompts,
            device=lab.device,
        )
    return load_trained(model.folder, lab.device, max_length=max_length)


def own_first(lab: Lab, members: Sequence[int], make: Callable[[int], Made]) -> list[Made]:
    """What is made for each of some members, in their order, what other processes make being waited for last.

    Args:
        lab: What the run works with.
        members: Positions among the lab's members; one may come several times.
        make: Makes it for the n-th of these, from 0.
    """
    made: dict[int, Made] = {}
    for i in sorted(range(len(members)), key=lambda i: lab.run.is_elsewhere(lab.members[members[i]].prefix)):
        made[i] = make(i)
    return [made[i] for i in range(len(members))]


class _Settings(Protocol):
    """What the cycles need of a method's config, every field filled."""

    @property
    def initialisation(self) -> Literal["refreshing", "sequential"]: ...
    @property
    def same_form(self) -> bool: ...
    @property
    def cross_loss(self) -> CrossLoss: ...
    @property
    def bi_loss(self) -> BiLoss: ...
    @property
    def label_policy(self) -> LabelPolicy: ...
    @property
    def start_weight(self) -> float: ...
    @property
    def share_labels(self) -> bool: ...
    @property
    def alternate_members(self) -> bool: ...
    @property
    def label_both_orders(self) -> bool: ...
    @property
    def cross_test_length(self) -> int | None: ...
    @property
    def ensemble_metric(self) -> Literal["mean", "released"]: ...
    @property
    def head(self) -> Head: ...
    @property
    def bi(self) -> FitConfig: ...
    @property
    def cross(self) -> FitConfig: ...
    @property
    def precision(self) -> Precision: ...
    @property
    def is_symmetric(self) -> bool: ...
    @property
    def patience_cycles(self) -> int | None: ...
    @property
    def report_to(self) -> tuple[str, ...]: ...
    @property
    def seed(self) -> int: ...
