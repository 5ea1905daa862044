"""One student: its teachers' scores, the labels made of them, and the training on these, each a stage."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import AutoModel

from transencoder import distributed
from transencoder.config import Form
from transencoder.cycles.lab import Lab, Model, load, make_scorer
from transencoder.encoders import load_bi, load_cross, transplant
from transencoder.fit import fit
from transencoder.labels import as_record, combine, score_on_ranks
from transencoder.losses import CosineRegressionLoss, SoftCrossEntropyLoss
from transencoder.runs import StageRecord, stage_seed
from transencoder.tokens import Encoder

_CODE_VERSION = 4
"""Raised when a change of the code changes what a stage computes."""


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
        labels.write_raw(folder / "raw.parquet")
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
        log_folder=lab.run.folder / "tensorboard" / f"cycle-{cycle}-{form}-encoder",
    )
    if distributed.rank() == 0:
        student.save_pretrained(str(folder / "model"), create_model_card=False)
    return asdict(fitted)


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
        if lab.pretrained is not None:
            transplant(AutoModel.from_pretrained(lab.pretrained.folder / "model"), student)
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
        "fit": getattr(settings, form).outcome,
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
    if form == "cross" and lab.pretrained is not None:
        keys.append(lab.pretrained.key)
    return [*keys, teacher.key] if lab.settings.initialisation == "sequential" else keys
