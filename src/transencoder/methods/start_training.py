"""A starting encoder's run from its config to its model: pairs made of text, one fit, the tests, the report."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from transformers import set_seed

from transencoder import distributed
from transencoder.cycles import Model
from transencoder.encoders import load_bi, weights_fingerprint
from transencoder.evaluation import measure
from transencoder.fit import Material, fit, stage_session
from transencoder.methods.data import read_start_data
from transencoder.methods.outcome import BAD_ROWS, FOLDERS, finish, open_run, remove_unfinished, result_of
from transencoder.methods.scoring import Metrics, score_stage, score_start_as_is
from transencoder.methods.sizes import compared_sizes
from transencoder.methods.start import Sentences, StartMethod
from transencoder.methods.start_bench import (
    EMBEDDINGS,
    Bench,
    held_out,
    student_start,
    taught_by,
    training_rows,
)
from transencoder.methods.start_planning import check_held_out, prepare_start
from transencoder.methods.supervision import TaughtLabels, export_teachers, targets_of, taught_labels
from transencoder.records import DEV, Result
from transencoder.runs import StageRecord
from transencoder.scorers import BiScorer, Scorer
from transencoder.selection.criteria import uniformity
from transencoder.settings import method_name

_STAGE = "bi-encoder"

_CODE_VERSION = 4
"""Raised when a change of the code changes what training computes."""

_LOOKED_AT = 512
"""Training texts, at most, that tell whether embeddings have become all alike."""


@dataclass(frozen=True)
class TrainedStart:
    """What a run leaves: the trained bi-encoder, the record, the folder."""

    bi_encoder: SentenceTransformer
    result: Result
    """The content of result.json."""
    folder: Path
    """The run folder; the model lies in `bi-encoder`."""


def train_start(config: StartMethod, *, recipe: str | None = None) -> TrainedStart:
    """Train a bi-encoder on text or labelled pairs, or go on with a run that was interrupted.

    Args:
        config: The method's config.
        recipe: Name of the recipe that the config comes from, for reports.

    Returns:
        The best model, its scores, and the run's path.

    Raises:
        InputError: Data or an option cannot be used.
        RunError: The run folder is locked, foreign, or its disk is full.
    """
    distributed.start()
    started = time.monotonic()
    given, config, folder = prepare_start(config)
    with open_run(given, config) as run:
        remove_unfinished(run)
        data = read_start_data(config, run.folder / BAD_ROWS)
        check_held_out(config, len(data.training))
        config = config.informed(data.record.get("classes", []))
        bench = Bench(run, config, data, student_start(run, config, folder, data))
        pairs, pairs_key = training_rows(bench)
        labels = taught_labels(bench, pairs, pairs_key) if config.cross_teachers else []
        trained = _train(bench, pairs, pairs_key, taught_by(bench, pairs, pairs_key), labels)
        scores, dev = _scores(bench, trained), _dev(bench, trained)
        sizes = compared_sizes(bench, folder, trained)
        result = result_of(
            run,
            given,
            bench.data,
            [{"bi": trained}],
            {"bi": trained},
            dev=dev,
            scores=scores,
            seconds=time.monotonic() - started,
            recipe=recipe,
            notes=[],
        )
        result["about"] = config.account
        if trained.fitted and "uniformity" in trained.fitted:  # not in stages of earlier versions
            result["uniformity"] = trained.fitted["uniformity"]
        if sizes is not None:
            result["sizes"] = sizes
        export_teachers(run, labels, len(pairs))
        finish(run, result, {"bi": trained})
    distributed.barrier()
    model = SentenceTransformer(str(Path(config.output) / FOLDERS["bi"]), device=config.device)
    return TrainedStart(model, result, Path(config.output))


def _train(
    bench: Bench, pairs: Dataset, pairs_key: str, taught: StageRecord | None, labels: list[TaughtLabels]
) -> Model:
    config, data = bench.config, bench.data
    tests = data.tests if config.test_every_eval else []
    record = bench.run.stage(
        _STAGE,
        config={
            "version": _CODE_VERSION,
            "method": method_name(type(config)),
            "settings": _own_settings(config),
            "fit": config.fit.outcome,
            "pooling": config.pooling,
            "seed": config.seed,
            "precision": config.precision,
            "n_processes": distributed.world_size(),
        },
        inputs=[
            pairs_key,
            *([] if taught is None else [taught.key]),
            *(taught.record.key for taught in labels),
            bench.start.key,
            *(weights_fingerprint(config.fetch_helper(field)) for field in config.helpers),
            "" if data.dev is None else data.dev.fingerprint,
            *(test.fingerprint for test in tests),
        ],
        compute=partial(_fit, bench, pairs, labels, None if taught is None else taught.folder / EMBEDDINGS),
    )
    return Model("bi", record.folder / "model", record.key, _STAGE, 1, record.result, record.seconds)


def _own_settings(config: StartMethod) -> dict[str, Any]:
    """What the method itself adds to the settings of all starting encoders, less what is in the key by other means."""
    shared = {field.name for kind in (StartMethod, Sentences) for field in fields(kind)}
    shared |= {*config.text_fields, *config.helpers, *config.teacher_fields}
    return {field.name: getattr(config, field.name) for field in fields(config) if field.name not in shared}


def _fit(
    bench: Bench, pairs: Dataset, labels: list[TaughtLabels], embeddings: Path | None, folder: Path
) -> dict[str, Any]:
    config, session = bench.config, stage_session(bench.run, bench.config, _STAGE, folder, bench.cache)
    student = bench.load_start()
    before = _evenness(bench, student, pairs)
    has_labels = "label" in pairs.column_names
    taught = rows = None
    if embeddings is not None:
        taught = np.load(embeddings, mmap_mode="r")
        rows, texts = held_out(bench, student, pairs)
        queue = torch.from_numpy(taught[texts])
        set_seed(session.seed)  # a projection is new
        student = config.projected(student, taught.shape[1])

    def loss(model: SentenceTransformer) -> Any:
        set_seed(session.seed)  # a projector is new
        return config.loss(model) if taught is None else config.distillation_loss(model, taught.shape[1], queue)

    targets = targets_of(pairs, labels, len(config.classes)) if has_labels else np.zeros(len(pairs), np.float32)
    fitted = fit(
        student,
        loss,
        Material(pairs=pairs, targets=targets, rows=rows, taught=taught),
        _dev_metrics(bench),
        config.fit,
        session,
        rivals=config.rivals,
    )
    if distributed.rank() == 0:
        student.save_pretrained(str(folder / "model"), create_model_card=False)
    return asdict(fitted) | {"uniformity": {"start": before, "bi": _evenness(bench, student, pairs)}}


def _evenness(bench: Bench, model: SentenceTransformer, pairs: Dataset) -> float | None:
    """Uniformity of a model's embeddings of some training texts, from -8 to 0, all alike; None for a single text."""
    rows = np.unique(np.linspace(0, len(pairs) - 1, _LOOKED_AT).astype(int))
    texts = Dataset.from_dict({"sentence1": list(dict.fromkeys(pairs.select(rows)["sentence1"]))})
    (embeddings,) = BiScorer(model, precision=bench.config.precision).embed_sides(texts)
    return uniformity(embeddings) if len(texts) > 1 else None


def _dev_metrics(bench: Bench) -> Callable[[Any], dict[str, float]] | None:
    dev, tests = bench.data.dev, bench.data.tests if bench.config.test_every_eval else []
    if dev is None:
        return None

    def metrics(model: SentenceTransformer) -> dict[str, float]:
        scorer = bench.scorer(model)
        return {"dev": measure(scorer, dev)} | {f"test_{test.name}": measure(scorer, test) for test in tests}

    return metrics


def _dev(bench: Bench, trained: Model) -> Metrics | None:
    if bench.data.dev is None:
        return None
    start = _score(bench, bench.start, f"{DEV}/start", {DEV: bench.data.dev})
    if not bench.data.tests:
        _score(bench, trained, f"{DEV}/bi", {DEV: bench.data.dev})  # the report's intervals are drawn from its scores
    return {"start": start[DEV], "bi": trained.dev}


def _scores(bench: Bench, trained: Model) -> dict[str, Metrics]:
    tests = {test.name: test for test in bench.data.tests}
    if not tests:
        return {}
    config = bench.config
    scores = {"start": _score(bench, bench.start, "start", tests)}
    as_is = score_start_as_is(
        bench.run,
        bench.start,
        tests,
        bench.cache,
        max_length=config.fit.max_length,
        precision=config.precision,
        device=bench.device,
    )
    if as_is is not None:
        scores["start_as_is"] = as_is.result
    return scores | {"bi": _score(bench, trained, "bi", tests)}


def _score(bench: Bench, model: Model, name: str, sets: dict[str, Any]) -> Metrics:
    config, is_start = bench.config, model is bench.start
    conditions = {
        "precision": config.precision,
        "max_length": config.fit.max_length if is_start else None,
        "pooling": config.pooling if is_start else None,
    }

    def scorer() -> Scorer:
        return bench.scorer(bench.load_start() if is_start else load_bi(model.folder, device=bench.device))

    return score_stage(bench.run, model, name, conditions, sets, scorer).result
