"""Context of a run's stages: the config, the data, the models, and the executor that computes the stages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from transencoder import distributed
from transencoder.configs import FitConfig, Form, Pooling, Precision, Texts
from transencoder.encoders import (
    card_of,
    count_parameters,
    load_bi,
    load_trained,
    read_length,
    save,
    weights_fingerprint,
)
from transencoder.evaluation import LabelledSet, measure
from transencoder.files import whole_folder
from transencoder.fit import Session, steps_in_all
from transencoder.models import OWN_PROMPTS, Prompts
from transencoder.pairs import fingerprint
from transencoder.records import DataRecord, RunData
from transencoder.runs import Cost, Executor, Planner, Stage, StageRecord, setting, stage_seed
from transencoder.scorers import BiScorer, CrossScorer, Scorer
from transencoder.tokens import Encoder, TokenCache

ConfigT = TypeVar("ConfigT")

_PAIR_TOKENS = 32
"""Approximate number of tokens of a pair; half of a small model's parameters are those of its vocabulary."""


@dataclass(frozen=True)
class Rows:
    """A data set, and the key that identifies its content in stages."""

    data: Dataset
    key: str


@dataclass(frozen=True, kw_only=True)
class Scored(LabelledSet):
    """A labelled set of a run: dev, or a test."""

    name: str
    record: DataRecord

    @property
    def key(self) -> str:
        """Key of the data and of how it is measured."""
        more = [] if self.classes is None else [fingerprint(self.classes["train"]), fingerprint(self.classes["dev"])]
        return " ".join([self.metric, self.record["fingerprint"], *more])


@dataclass(frozen=True)
class GivenScores:
    """Scores of the training pairs that the user gives, gold scores or those of a teacher, or that mining computed."""

    scores: np.ndarray
    """Scores, float32 (n pairs,). Gold scores are in [0, 1], NaN for a pair that has none; a teacher's in any range."""
    key: str
    """Hash of the scores, fingerprint of the labelled pairs, or mined pairs' fingerprint and the key of their stage."""


@dataclass(frozen=True)
class Data:
    """All data that a run reads."""

    training: Dataset
    """Training text: pairs (`sentence1`, `sentence2`, and `label` if labelled), or sentences or documents (`text`)."""
    record: DataRecord
    """Record of the training text."""
    kind: Literal["pairs"] | Texts
    """Kind of the rows of the training text."""
    dev: Scored | None
    tests: list[Scored]
    gold: GivenScores | None = None
    """Gold scores of training pairs, if the user gave any."""

    @property
    def n_unlabelled(self) -> int:
        """Number of rows of the training text without a gold score."""
        return len(self.training) if self.gold is None else int(np.isnan(self.gold.scores).sum())

    @property
    def rows(self) -> Rows:
        """The training text with its key."""
        return Rows(self.training, self.record["fingerprint"])

    def as_record(self) -> RunData:
        """Return the records of the data sets for result.json."""
        labelled = {"dev": self.dev.record if self.dev else None, "tests": {t.name: t.record for t in self.tests}}
        return {self.kind: self.record} | labelled  # type: ignore[return-value]


@dataclass(frozen=True)
class Model:
    """A model on disk, which is a base model or was made by a stage, and its properties."""

    form: Form
    folder: Path
    key: str
    """Fingerprint of a base model, key of a stage."""
    name: str
    cycle: int = 0
    """Cycle that trained it, from 1; 0 for a base model."""
    fitted: dict[str, Any] | None = None
    """Record of the fit: best, best_step, curve, n_steps, seconds; None for a base model."""
    seconds: float = 0.0
    pooling: Pooling | None = None
    """Pooling of a base model; None: its own."""
    prompts: Prompts = OWN_PROMPTS
    """Prompts of a bi-encoder."""
    member: int = 0
    """Position, among the run's members, of the member that it belongs to."""
    chosen_by: str | None = "dev"
    """Metric that chose its checkpoint: dev, or a criterion that needs no labels; None: the last one was kept."""
    n_parameters: int = 0
    max_length: int | None = None
    """Tokens that it reads when it is used after the run, as many as its base model; None: as it was saved."""
    only_teaches: bool = False
    """Whether it is a teacher that is not a member; such a model keeps its own maximal length."""
    card: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of the base model's card; the licence and the language also hold for this model."""

    @property
    def reading(self) -> dict[str, Any]:
        """Settings that, besides its folder, decide how it reads texts, for a stage's key."""
        return {"pooling": self.pooling} | self.prompts.key_settings

    @property
    def dev(self) -> float | None:
        """Best dev metric; None if there is no dev set."""
        return self.best if self.chosen_by == "dev" else None

    @property
    def best(self) -> float | None:
        """Highest dev metric or criterion, by which its checkpoint was chosen; None if nothing chose it."""
        return self.fitted["best"] if self.fitted else None

    @property
    def criteria(self) -> dict[str, float | None]:
        """Criteria by name, computed on held-out pairs without labels; empty if no pairs are held out."""
        return {} if not self.fitted else dict(self.others("criterion_")).get(self.fitted["best_step"], {})

    def others(self, prefix: str) -> list[tuple[int, dict[str, float | None]]]:
        """Return (step, metrics by name after the prefix) of each evaluation that recorded metrics with a prefix."""
        found = self.fitted.get("others", []) if self.fitted else []
        named = [
            (step, {name.removeprefix(prefix): v for name, v in each.items() if name.startswith(prefix)})
            for step, each in found
        ]
        return [(step, values) for step, values in named if values]


def base_model(
    folder: Path,
    name: str = "start",
    *,
    form: Form = "bi",
    pooling: Pooling | None = None,
    prompts: Prompts = OWN_PROMPTS,
    member: int = 0,
) -> Model:
    """Return the base model in a folder."""
    return Model(
        form,
        folder,
        weights_fingerprint(folder),
        name,
        pooling=pooling,
        prompts=prompts,
        member=member,
        n_parameters=count_parameters(folder),
        max_length=read_length(folder),
        card=card_of(folder),
    )


def trained_model(record: StageRecord, base: Model, *, cycle: int = 1) -> Model:
    """Return the model that a stage trained from a base model."""
    return replace(
        base,
        folder=record.folder / "model",
        key=record.key,
        name=record.name,
        cycle=cycle,
        fitted=record.result,
        seconds=record.seconds,
        pooling=None,  # it is saved with the model
    )


@dataclass(frozen=True, kw_only=True)
class Work:
    """Folders, device and cache with which a stage is computed; none of them changes the result."""

    folder: Path
    """Folder of the stage."""
    run_folder: Path
    device: str
    cache: TokenCache
    report_to: tuple[str, ...] = ()
    """Trackers that trainings report to."""

    def load(self, model: Model, max_length: int | None = None) -> Encoder:
        """Load a base model or a trained one; `max_length` replaces its own maximal length."""
        if model.cycle or model.only_teaches:
            return load_trained(model.folder, self.device, max_length=max_length)
        return load_bi(
            model.folder, max_length=max_length, pooling=model.pooling, prompts=model.prompts, device=self.device
        )

    def scorer_of(
        self, model: Model, max_length: int | None, precision: Precision, *, both_orders: bool = False
    ) -> Scorer:
        """Load a model, and return its scorer with the prompts that the run uses for it."""
        loaded = self.load(model, max_length)
        return self.scorer(loaded, precision, prompts=model.prompts, both_orders=both_orders)

    def scorer(
        self, model: Encoder, precision: Precision, *, prompts: Prompts = OWN_PROMPTS, both_orders: bool = False
    ) -> Scorer:
        """Return the scorer of a loaded model; `prompts` is for bi-encoders, `both_orders` for cross-encoders."""
        if isinstance(model, SentenceTransformer):
            return BiScorer(
                model, precision=precision, cache=self.cache, prompt=prompts.query, document_prompt=prompts.document
            )
        return CrossScorer(model, precision=precision, cache=self.cache, both_orders=both_orders)


@dataclass(frozen=True, kw_only=True, eq=False)
class Training(Stage[Work]):
    """Stage that trains a model, and saves it with the record of the fit."""

    fit: FitConfig = setting(lambda fit: fit.key_settings)
    seed: int
    """Seed of the run."""
    precision: Precision
    n_processes: int = field(default_factory=distributed.world_size)

    @property
    @abstractmethod
    def n_trained(self) -> int:
        """Number of rows that are trained on; a row in both orders counts twice."""

    @property
    def n_steps(self) -> int:
        """Number of optimiser steps."""
        return steps_in_all(self.n_trained, self.fit)

    def session(self, work: Work) -> Session:
        """Return the session of the training, with its folders and its seed."""
        return Session(
            folder=work.folder / "checkpoints",
            seed=stage_seed(self.seed, self.name),
            precision=self.precision,
            cache=work.cache,
            report_to=work.report_to,
            log_folder=work.run_folder / "tensorboard" / self.name.replace("/", "-"),
            steps_folder=work.run_folder / "steps" / work.folder.name,
        )

    def write(self, work: Work, computed: tuple[Any, Any]) -> dict[str, Any]:
        """Save the model, and return the record of the fit."""
        model, fitted = computed
        with whole_folder(work.folder / "model", replaces=True) as draft:  # an earlier attempt may have left one
            save(model, draft)
        return asdict(fitted)

    def training_cost(self, n_parameters: int, n_scored: int = 0, n_checkpoints: int = 1) -> Cost:
        """Return the cost of the training, the evaluations, the model, and the checkpoints with Adam's moments."""
        return Cost(
            operations=operations(n_parameters, self.n_steps * (self.fit.batch_size or 1), n_scored),
            disk_bytes=4 * n_parameters * (1 + self.n_saved),
            scratch_bytes=16 * n_parameters * n_checkpoints,
        )

    @property
    def n_saved(self) -> int:
        """Number of models that are saved during training (`save_steps`)."""
        return 0 if self.fit.save_steps is None else self.n_steps // self.fit.save_steps

    def n_scored(self, dev: Scored | None) -> int:
        """Return the number of pairs in all dev evaluations."""
        return 0 if dev is None else (self.n_steps // self.fit.eval_steps + (self.fit.epochs or 1)) * len(dev.pairs)


@dataclass
class Context(Generic[ConfigT]):
    """Context that the stages of a run are built with."""

    config: ConfigT
    """Config with its device, its precision and every default filled in."""
    executor: Executor
    """Executor that computes the stages."""
    data: Data
    made: dict[str, StageRecord] = field(default_factory=dict)
    """Records of the stages so far, by name."""
    max_length: int | None = field(kw_only=True)
    """Tokens that base models read of a text; trained models have their own length."""
    labels_both_orders: bool | None = field(default=None, kw_only=True)
    """Whether cross-encoders score both orders when they label and are measured; None: there are no cross-encoders."""

    @property
    def is_plan(self) -> bool:
        """Whether the run is only planned: nothing is computed, and results are empty."""
        return isinstance(self.executor, Planner)

    def make(self, stage: Stage[Work]) -> StageRecord:
        """Return the record of a stage; compute the stage if it is not done."""
        return self.make_all([stage])[0]

    def make_all(self, stages: Sequence[Stage[Work]]) -> list[StageRecord]:
        """Return the records of stages that do not depend on each other, and may be computed in parallel."""
        records = self.executor.make(stages)
        self.made |= {record.name: record for record in records}
        return records


def operations(n_parameters: float, n_trained: float, n_scored: float = 0) -> float:
    """Return the floating-point operations to train on pairs, counted over all steps, and to score pairs.

    Scoring takes 2 for each token and parameter outside the vocabulary's table; training takes three times that.
    """
    return n_parameters * _PAIR_TOKENS * (3 * n_trained + n_scored)


def metrics_of(scorer: Scorer, dev: Scored | None, tests: Sequence[Scored]) -> dict[str, float]:
    """Return the metrics of an evaluation during training: dev's, and in analysis mode the tests'."""
    found = {} if dev is None else {"dev": measure(scorer, dev)}
    return found | {f"test_{test.name}": measure(scorer, test) for test in tests}
