"""Trans-Encoder's self-distillation: the cycle bi -> cross -> bi, as stages of a run."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow.parquet as pq
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer

from transencoder import distributed
from transencoder.config import FitConfig, Form, Head, LabelPolicy, Pooling, Precision
from transencoder.encoders import load_bi, load_cross, load_trained, transplant, weights_fingerprint
from transencoder.fit import Fitted, fit
from transencoder.labels import as_record, combine, score_on_ranks
from transencoder.losses import CosineRegressionLoss, SoftCrossEntropyLoss
from transencoder.runs import Run, StageRecord, stage_seed
from transencoder.scorers import BiScorer, CrossScorer, Scorer
from transencoder.tokens import Encoder, TokenCache

_CODE_VERSION = 2
"""Raised when a change of the code changes what a stage computes."""


class _Settings(Protocol):
    """What the cycles need of a method's config, every field filled."""

    @property
    def initialisation(self) -> Literal["refreshing", "sequential"]: ...
    @property
    def label_policy(self) -> LabelPolicy: ...
    @property
    def start_weight(self) -> float: ...
    @property
    def label_both_orders(self) -> bool: ...
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


@dataclass(frozen=True)
class Model:
    """A model on disk and what it is: a start, or what a stage made."""

    form: Form
    folder: Path
    key: str
    """Fingerprint of a start, key of a stage."""
    name: str
    cycle: int = 0
    fitted: dict[str, Any] | None = None
    """The fit's record: best, best_step, curve, n_steps, seconds."""
    seconds: float = 0.0

    @property
    def dev(self) -> float | None:
        """Best dev metric, where there is a dev set."""
        return self.fitted["best"] if self.fitted else None


@dataclass
class Lab:
    """What every stage works with."""

    run: Run
    settings: _Settings
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
    start: Model
    cross_start: Path
    cross_start_fingerprint: str
    pooling: Pooling | None


def self_distil(lab: Lab, cycles: int) -> list[tuple[Model, Model]]:
    """Self-distillation (paper, sections 2.2 and 2.3, Figure 1).

    Args:
        lab: Pairs, starts, settings, and the run that keeps the stages.
        cycles: How many times bi -> cross -> bi.

    Returns:
        (cross-encoder, bi-encoder) of each cycle.
    """
    trained: list[tuple[Model, Model]] = []
    bi = lab.start
    for cycle in range(1, cycles + 1):
        cross = learn(lab, "cross", cycle, teacher=bi)
        bi = learn(lab, "bi", cycle, teacher=cross)
        trained.append((cross, bi))
        if _is_stale(trained, lab.settings.patience_cycles):
            break
    return trained


def learn(lab: Lab, form: Form, cycle: int, teacher: Model) -> Model:
    """The stages of one student: its teachers' scores, the labels made of them, and the training on these."""
    start_weight = lab.settings.start_weight if form == "bi" else 0.0
    teachers = [(teacher, 1.0 - start_weight)] + ([(lab.start, start_weight)] if start_weight else [])
    scored = [_score(lab, model) for model, _ in teachers]
    labels = lab.run.stage(
        f"cycle-{cycle}/labels-for-{form}",
        config={
            "version": _CODE_VERSION,
            "policy": lab.settings.label_policy,
            "weights": [weight for _, weight in teachers],
        },
        inputs=[record.key for record in scored],
        compute=lambda folder: _label(lab, teachers, scored, folder),
    )
    name = f"cycle-{cycle}/{form}-encoder"
    record = lab.run.stage(
        name,
        config=_fit_config(lab, form),
        inputs=[labels.key, lab.dev_fingerprint, *lab.analysis_fingerprints, *_initial_keys(lab, form, teacher)],
        compute=lambda folder: _fit(lab, form, cycle, teacher, labels, folder),
    )
    folder = record.folder / "model"
    seconds = sum(stage.seconds for stage in (*scored, labels, record))
    return Model(form, folder, record.key, name, cycle, record.result, seconds)


def make_scorer(lab: Lab, model: Encoder) -> Scorer:
    """The scorer of a model in hand, on the lab's tokens and precision."""
    if isinstance(model, SentenceTransformer):
        return BiScorer(model, precision=lab.settings.precision, cache=lab.cache)
    both = lab.settings.label_both_orders and lab.settings.is_symmetric
    return CrossScorer(model, precision=lab.settings.precision, cache=lab.cache, both_orders=both)


def load(lab: Lab, model: Model) -> Encoder:
    """A start or a trained model, in memory."""
    if model is lab.start:
        return load_bi(model.folder, max_length=lab.settings.bi.max_length, pooling=lab.pooling, device=lab.device)
    return load_trained(model.folder, lab.device)


def _score(lab: Lab, model: Model) -> StageRecord:
    """A teacher's raw scores of the training pairs, once for all policies, weights and cycles."""
    is_start = model is lab.start

    def compute(folder: Path) -> dict[str, Any]:
        scores = score_on_ranks(make_scorer(lab, load(lab, model)), lab.pairs)
        if distributed.rank() == 0:
            np.save(folder / "scores.npy", scores)
        return {}

    return lab.run.stage(
        f"{model.name}/scores",
        config={
            "version": _CODE_VERSION,
            "both_orders": model.form == "cross" and lab.settings.label_both_orders and lab.settings.is_symmetric,
            "max_length": lab.settings.bi.max_length if is_start else None,
            "pooling": lab.pooling if is_start else None,
            "precision": lab.settings.precision,
        },
        inputs=[lab.pairs_fingerprint, model.key],
        compute=compute,
    )


def _label(lab: Lab, teachers: list[tuple[Model, float]], scored: list[StageRecord], folder: Path) -> dict[str, Any]:
    labels = combine(
        {
            model.name: np.load(record.folder / "scores.npy")
            for (model, _), record in zip(teachers, scored, strict=True)
        },
        lab.settings.label_policy,
        {model.name: weight for model, weight in teachers},
        {model.name: model.key for model, _ in teachers},
    )
    if distributed.rank() == 0:
        labels.write(folder / "labels.parquet", lab.pairs)
    return {"teachers": as_record(labels.provenance)}


def _fit(lab: Lab, form: Form, cycle: int, teacher: Model, labels: StageRecord, folder: Path) -> dict[str, Any]:
    seed = stage_seed(lab.settings.seed, f"cycle-{cycle}/{form}-encoder")
    student = _initialise(lab, form, teacher, seed)
    config = getattr(lab.settings, form)

    def dev_metrics(model: Encoder) -> dict[str, float]:
        scorer = make_scorer(lab, model)
        tests = lab.analysis(scorer) if lab.analysis is not None else {}
        assert lab.dev is not None
        return {"dev": lab.dev(scorer)} | {f"test_{name}": value for name, value in tests.items()}

    fitted = fit(
        student,
        _losses(lab)[form],
        lab.pairs,
        read_targets(labels.folder / "labels.parquet"),
        dev_metrics if lab.dev is not None else None,
        config,
        folder=folder / "checkpoints",
        seed=seed,
        precision=lab.settings.precision,
        both_orders=form == "cross" and lab.settings.is_symmetric,
        cache=lab.cache,
        report_to=lab.settings.report_to,
    )
    if distributed.rank() == 0:
        student.save_pretrained(str(folder / "model"), create_model_card=False)
    return _record(fitted)


def read_targets(path: Path) -> np.ndarray:
    """The targets of a labels file, float32 (n,)."""
    targets: np.ndarray = pq.read_table(path, columns=["label"])["label"].to_numpy()
    return targets


def _initialise(lab: Lab, form: Form, teacher: Model, seed: int) -> Encoder:
    """Refreshing: from the member's starts; sequential: with the encoder of the teacher (section 5.2)."""
    settings = lab.settings
    student: Encoder
    if form == "bi":
        student = load_bi(lab.start.folder, max_length=settings.bi.max_length, pooling=lab.pooling, device=lab.device)
    else:
        student = load_cross(
            lab.cross_start,
            max_length=settings.cross.max_length,
            head=settings.head,
            seed=seed,
            device=lab.device,
        )
    if settings.initialisation == "sequential":
        transplant(load(lab, teacher), student)
    return student


def _losses(lab: Lab) -> dict[Form, Callable[[Any], Any]]:
    outside = lab.settings.label_policy == "raw"

    def cross(model: CrossEncoder) -> SoftCrossEntropyLoss:
        return SoftCrossEntropyLoss(model, allow_outside=outside)

    def bi(model: SentenceTransformer) -> CosineRegressionLoss:
        return CosineRegressionLoss(model, allow_outside=outside)

    return {"cross": cross, "bi": bi}


def _fit_config(lab: Lab, form: Form) -> dict[str, Any]:
    settings = lab.settings
    config = {
        "version": _CODE_VERSION,
        "fit": asdict(getattr(settings, form)) | {"checkpoint_steps": None},  # it changes nothing that comes out
        "initialisation": settings.initialisation,
        "seed": settings.seed,
        "precision": settings.precision,
        "n_processes": distributed.world_size(),
        "allow_outside": settings.label_policy == "raw",
    }
    if form == "bi":
        return config | {"pooling": lab.pooling}
    return config | {
        "head": settings.head,
        "both_orders": settings.is_symmetric,
        "dev_orders": settings.label_both_orders,
    }


def _initial_keys(lab: Lab, form: Form, teacher: Model) -> list[str]:
    keys = [lab.start.key if form == "bi" else lab.cross_start_fingerprint]
    return [*keys, teacher.key] if lab.settings.initialisation == "sequential" else keys


def _record(fitted: Fitted) -> dict[str, Any]:
    return asdict(fitted)


def _is_stale(trained: list[tuple[Model, Model]], patience: int | None) -> bool:
    """Whether neither form improved on dev in the last `patience` cycles."""
    if patience is None or len(trained) <= patience:
        return False
    recent, before = trained[-patience:], trained[:-patience]
    return all(
        max(cycle[form].dev or 0.0 for cycle in recent) <= max(cycle[form].dev or 0.0 for cycle in before)
        for form in (0, 1)
    )


def start_model(folder: Path, name: str = "start") -> Model:
    """The member's starting bi-encoder."""
    return Model("bi", folder, weights_fingerprint(folder), name)
