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
from transformers import AutoTokenizer, set_seed

from transencoder import distributed
from transencoder.cycles import Model, start_model
from transencoder.encoders import fetch, load_bi, weights_fingerprint
from transencoder.fit import fit
from transencoder.methods.data import Data, read_start_data
from transencoder.methods.outcome import BAD_ROWS, FOLDERS, finish, open_run, remove_unfinished, result_of
from transencoder.methods.scoring import Metrics, measure, score_stage, score_start_as_is
from transencoder.methods.start import Sentences, StartMethod
from transencoder.methods.start_planning import check_held_out, prepare_start
from transencoder.report.result import Result
from transencoder.runs import Run, StageRecord, stage_seed
from transencoder.scorers import BiScorer, Scorer, default_prompt
from transencoder.settings import method_name
from transencoder.tokens import TokenCache

_CODE_VERSION = 3
"""Raised when a change of the code changes what a stage computes."""

_STAGE = "bi-encoder"
_PAIRS = "pairs.arrow"
_EMBEDDINGS = "embeddings.npy"


@dataclass(frozen=True)
class TrainedStart:
    """What a run leaves: the trained bi-encoder, the record, the folder."""

    bi_encoder: SentenceTransformer
    result: Result
    """The content of result.json."""
    folder: Path
    """The run folder; the model lies in `bi-encoder`."""


def train_start(config: StartMethod, *, recipe: str | None = None) -> TrainedStart:
    """Train a bi-encoder on unlabelled text, or go on with a run that was interrupted.

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
        bench = _Bench(
            run, config, read_start_data(config, run.folder / BAD_ROWS), start_model(folder, pooling=config.pooling)
        )
        pairs, pairs_key = _pairs(bench)
        check_held_out(config, len(pairs))
        trained = _train(bench, pairs, pairs_key, _taught(bench, pairs, pairs_key))
        scores, dev = _scores(bench, trained), _dev(bench, trained)
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
        finish(run, result, {"bi": trained})
    distributed.barrier()
    model = SentenceTransformer(str(Path(config.output) / FOLDERS["bi"]), device=config.device)
    return TrainedStart(model, result, Path(config.output))


class _Bench:
    """What every stage works with."""

    def __init__(self, run: Run, config: StartMethod, data: Data, start: Model) -> None:
        self.run = run
        self.config = config
        self.data = data
        self.start = start
        self.device = str(config.device)
        self.cache = TokenCache(run.folder / "tokens")

    def load_start(self) -> SentenceTransformer:
        """The model that is trained, with its pooling and its length."""
        length, pooling = self.config.fit.max_length, self.config.pooling
        return load_bi(self.start.folder, max_length=length, pooling=pooling, device=self.device)

    def scorer(self, model: SentenceTransformer) -> Scorer:
        """A model's scorer in the run's precision."""
        return BiScorer(model, precision=self.config.precision, cache=self.cache)


def _pairs(bench: _Bench) -> tuple[Dataset, str]:
    """The rows to train on and what names them: pairs that were given or that a stage makes of text, or the texts."""
    given, fingerprint = bench.data.training, bench.data.record["fingerprint"]
    if "text" not in given.column_names:
        return given, fingerprint
    maker = bench.config.pair_maker(AutoTokenizer.from_pretrained(bench.start.folder).mask_token)
    if maker is None:
        return given.select_columns("text").rename_column("text", "sentence1"), fingerprint
    seed = stage_seed(bench.config.seed, "pairs")

    def compute(folder: Path) -> dict[str, Any]:
        if distributed.rank() == 0:
            maker(given, folder / _PAIRS, seed)
        return {}

    record = bench.run.stage(
        "pairs",
        config={"version": _CODE_VERSION, "maker": repr(maker), "seed": seed},
        inputs=[fingerprint],
        compute=compute,
    )
    return Dataset.from_file(str(record.folder / _PAIRS)), record.key


def _taught(bench: _Bench, pairs: Dataset, pairs_key: str) -> StageRecord | None:
    """The stage that holds the teacher's embeddings of the pairs' distinct sentences, where there is a teacher.

    It knows nothing of the student: another run with the same pairs and teacher takes it over (`reuse_from`).
    """
    config = bench.config
    if config.taught_by is None:
        return None
    teacher = fetch(config.taught_by, form="bi", token=config.token, cache_folder=config.cache_dir)
    length, pooling = config.fit.max_length, config.teacher_pooling

    def compute(folder: Path) -> dict[str, Any]:
        if distributed.rank() == 0:
            model = load_bi(teacher, max_length=length, pooling=pooling, device=bench.device)
            scorer = BiScorer(model, precision=config.precision, cache=bench.cache)
            tokens = bench.cache.sentences(model, pairs, scorer.prompt).tokens
            embeddings = scorer.embed(tokens, folder)
            if not isinstance(embeddings, np.memmap):  # large ones are on disk already, under that name
                np.save(folder / _EMBEDDINGS, embeddings)
        return {}

    return bench.run.stage(
        "teacher-embeddings",
        config={
            "version": _CODE_VERSION,
            "max_length": length,
            "pooling": pooling,
            "precision": config.precision,
        },
        inputs=[pairs_key, weights_fingerprint(teacher)],
        compute=compute,
    )


def _train(bench: _Bench, pairs: Dataset, pairs_key: str, taught: StageRecord | None) -> Model:
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
            bench.start.key,
            *(weights_fingerprint(config.fetch_helper(field)) for field in config.helpers),
            "" if data.dev is None else data.dev.fingerprint,
            *(test.fingerprint for test in tests),
        ],
        compute=partial(_fit, bench, pairs, None if taught is None else taught.folder / _EMBEDDINGS),
    )
    return Model("bi", record.folder / "model", record.key, _STAGE, 1, record.result, record.seconds)


def _own_settings(config: StartMethod) -> dict[str, Any]:
    """What the method itself adds to the settings of all starting encoders, less what is in the key by other means."""
    shared = {field.name for kind in (StartMethod, Sentences) for field in fields(kind)}
    shared |= {*config.text_fields, *config.helpers, *config.teacher_fields}
    return {field.name: getattr(config, field.name) for field in fields(config) if field.name not in shared}


def _fit(bench: _Bench, pairs: Dataset, embeddings: Path | None, folder: Path) -> dict[str, Any]:
    config = bench.config
    seed = stage_seed(config.seed, _STAGE)
    student = bench.load_start()
    taught = rows = None
    if embeddings is not None:
        taught = np.load(embeddings, mmap_mode="r")
        rows, held_out = _held_out(bench, student, pairs)
        queue = torch.from_numpy(taught[held_out])
        set_seed(seed)  # a projection is new
        student = config.projected(student, taught.shape[1])

    def loss(model: SentenceTransformer) -> Any:
        set_seed(seed)  # a projector is new
        return config.loss(model) if taught is None else config.distillation_loss(model, taught.shape[1], queue)

    fitted = fit(
        student,
        loss,
        pairs,
        pairs.data["label"].to_numpy() if "label" in pairs.column_names else np.zeros(len(pairs), np.float32),
        _dev_metrics(bench),
        config.fit,
        folder=folder / "checkpoints",
        seed=seed,
        precision=config.precision,
        cache=bench.cache,
        report_to=config.report_to,
        log_folder=bench.run.folder / "tensorboard" / _STAGE,
        rivals=config.rivals,
        taught=taught,
        rows=rows,
    )
    if distributed.rank() == 0:
        student.save_pretrained(str(folder / "model"), create_model_card=False)
    return asdict(fitted)


def _held_out(bench: _Bench, student: SentenceTransformer, pairs: Dataset) -> tuple[np.ndarray | None, np.ndarray]:
    """Rows to train on, and which distinct sentences are the first texts of the others, drawn with the seed."""
    n_held_out = bench.config.n_held_out
    if not n_held_out:
        return None, np.empty(0, np.int64)
    order = np.random.default_rng(stage_seed(bench.config.seed, "queue")).permutation(len(pairs))
    sentences = bench.cache.sentences(student, pairs, default_prompt(student))
    return np.sort(order[n_held_out:]), sentences.index[order[:n_held_out], 0]


def _dev_metrics(bench: _Bench) -> Callable[[Any], dict[str, float]] | None:
    dev, tests = bench.data.dev, bench.data.tests if bench.config.test_every_eval else []
    if dev is None:
        return None

    def metrics(model: SentenceTransformer) -> dict[str, float]:
        scorer = bench.scorer(model)
        return {"dev": measure(dev, scorer)} | {f"test_{test.name}": measure(test, scorer) for test in tests}

    return metrics


def _dev(bench: _Bench, trained: Model) -> Metrics | None:
    if bench.data.dev is None:
        return None
    start = _score(bench, bench.start, "start-on-dev", {"dev": bench.data.dev})
    return {"start": start["dev"], "bi": trained.dev}


def _scores(bench: _Bench, trained: Model) -> dict[str, Metrics]:
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


def _score(bench: _Bench, model: Model, name: str, sets: dict[str, Any]) -> Metrics:
    config, is_start = bench.config, model is bench.start
    conditions = {
        "precision": config.precision,
        "max_length": config.fit.max_length if is_start else None,
        "pooling": config.pooling if is_start else None,
    }

    def scorer() -> Scorer:
        return bench.scorer(bench.load_start() if is_start else load_bi(model.folder, device=bench.device))

    return score_stage(bench.run, model, name, conditions, sets, scorer).result
