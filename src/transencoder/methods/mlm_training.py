"""A language model's run from its config to its model: a start or a new one, packed text, one training, the tests."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel

from transencoder import distributed
from transencoder.cycles import Model, start_model
from transencoder.encoders import (
    check_length,
    count_parameters,
    fetch,
    fresh_masked,
    fresh_tokenizer,
    load_bi,
    load_masked,
)
from transencoder.errors import InputError
from transencoder.fit import masked_loss, pack, stage_session, steps_in_all, train_language_model
from transencoder.methods.data import Data, read_start_data
from transencoder.methods.mlm import MLM
from transencoder.methods.outcome import BAD_ROWS, FOLDERS, finish, open_run, remove_unfinished, result_of
from transencoder.methods.placement import placed
from transencoder.methods.planning import operations_a_second, settings_in_words
from transencoder.methods.scoring import Metrics, score_stage
from transencoder.progress import duration
from transencoder.records import Result
from transencoder.runs import Run, StageRecord, stage_seed, warn_of_absent
from transencoder.scorers import BiScorer
from transencoder.tokens import TokenCache
from transencoder.wording import plural

_CODE_VERSION = 1
"""Raised when a change of the code changes what a stage computes."""

_STAGE = "masked-language-model"
_BLOCKS = "blocks.arrow"
_CHUNK = 1024


@dataclass(frozen=True)
class TrainedMLM:
    """What a run leaves: the masked language model, the record, the folder."""

    model: PreTrainedModel
    result: Result
    """The content of result.json."""
    folder: Path
    """The run folder; the model lies in `masked-lm`."""


def train_mlm(config: MLM, *, recipe: str | None = None) -> TrainedMLM:
    """Train a masked language model, or go on with a run that was interrupted.

    Args:
        config: The method's config.
        recipe: Name of the recipe that the config comes from, for reports.

    Returns:
        The model, its scores, and the run's path.

    Raises:
        InputError: Data or an option cannot be used.
        RunError: The run folder is locked, foreign, or its disk is full.
    """
    distributed.start()
    started = time.monotonic()
    given, config, folder = _prepare(config)
    with open_run(given, config) as run:
        remove_unfinished(run)
        data = read_start_data(config, run.folder / BAD_ROWS)
        start = _fresh(run, config, data) if folder is None else start_model(folder)
        blocks = _blocks(run, config, data, start)
        record = _train(run, config, start, blocks)
        trained = Model("mlm", record.folder / "model", record.key, _STAGE, 1, record.result, record.seconds)
        result = result_of(
            run,
            given,
            data,
            [{"mlm": trained}],
            {"mlm": trained},
            dev=None,
            scores=_scores(run, config, data, start, trained),
            seconds=time.monotonic() - started,
            recipe=recipe,
            notes=[],
        )
        result["pretraining"] = {"steps": record.result["n_steps"], "losses": record.result["losses"]}
        if record.result["held_out"]:
            result["pretraining"]["held_out"] = record.result["held_out"]
        finish(run, result, {"mlm": trained})
    distributed.barrier()
    model = AutoModelForMaskedLM.from_pretrained(Path(config.output) / FOLDERS["mlm"])
    return TrainedMLM(model, result, Path(config.output))


def _prepare(config: MLM) -> tuple[MLM, MLM, Path | None]:
    """The config with every default written out, the same with its variables expanded, and the start's folder."""
    given, usable = placed(config)
    default = 5e-4 if config.from_scratch else 5e-5
    rate = default if config.fit.learning_rate is None else config.fit.learning_rate
    given, usable = (replace(each, fit=replace(each.fit, learning_rate=rate)) for each in (given, usable))
    if usable.start is None:
        return given, usable, None
    folder = fetch(usable.start, revision=usable.revision, token=usable.token, cache_folder=usable.cache_dir)
    _check_start(folder, usable)
    return given, usable, folder


def _check_start(folder: Path, config: MLM) -> None:
    """Refuse, before the text is read, a start that cannot be trained on it."""
    try:
        model, tokenizer = load_masked(folder, new_head=config.new_head)
    except InputError as error:
        raise InputError(f"{error}, or set new_head where only the head is missing") from error
    check_length(folder, config.fit.max_length, "fit.max_length", str(config.start))
    if len(tokenizer) > model.config.vocab_size:
        raise InputError(
            f"the tokenizer of {config.start} has {len(tokenizer)} tokens, of which the model knows "
            f"{model.config.vocab_size}; give a model whose embeddings were resized for its tokenizer"
        )


def _fresh(run: Run, config: MLM, data: Data) -> Model:
    """A model with random weights, its tokenizer made of the text, as a stage."""
    assert config.fit.max_length is not None
    shape = {"n_layers": config.layers, "width": config.width, "max_length": config.fit.max_length}
    seed = stage_seed(config.seed, "fresh")

    def compute(folder: Path) -> dict[str, Any]:
        if distributed.rank() == 0:
            tokenizer = fresh_tokenizer(partial(_texts, data.training), config.vocabulary)
            tokenizer.model_max_length = config.fit.max_length
            fresh_masked(len(tokenizer), **shape, seed=seed).save_pretrained(folder / "model")
            tokenizer.save_pretrained(folder / "model")
        return {}

    record = run.stage(
        "fresh",
        config={"version": _CODE_VERSION, "vocabulary": config.vocabulary, "seed": seed, **shape},
        inputs=[data.record["fingerprint"]],
        compute=compute,
    )
    return Model("mlm", record.folder / "model", record.key, "fresh")


def _texts(rows: Dataset) -> Iterator[list[str]]:
    return (rows[start : start + _CHUNK]["text"] for start in range(0, len(rows), _CHUNK))


def _blocks(run: Run, config: MLM, data: Data, start: Model) -> StageRecord:
    def compute(folder: Path) -> dict[str, Any]:
        if distributed.rank() == 0:
            tokenizer = AutoTokenizer.from_pretrained(start.folder)
            pack(data.training, tokenizer, config.fit.max_length or 2, folder / _BLOCKS)
        return {}

    return run.stage(
        "blocks",
        config={"version": _CODE_VERSION, "length": config.fit.max_length},
        inputs=[data.record["fingerprint"], start.key],
        compute=compute,
    )


def _train(run: Run, config: MLM, start: Model, blocks: StageRecord) -> StageRecord:
    return run.stage(
        _STAGE,
        config={
            "version": _CODE_VERSION,
            "fit": config.fit.outcome | {"eval_steps": None},
            "mask_ratio": config.mask_ratio,
            "held_out": config.held_out,
            "new_head": config.new_head,
            "seed": config.seed,
            "precision": config.precision,
            "n_processes": distributed.world_size(),
        },
        inputs=[blocks.key, start.key],
        compute=partial(_fit, run, config, start, blocks),
    )


def _fit(run: Run, config: MLM, start: Model, blocks: StageRecord, folder: Path) -> dict[str, Any]:
    session = stage_session(run, config, _STAGE, folder)
    model, tokenizer = load_masked(start.folder, seed=session.seed, new_head=config.new_head)
    model.to(config.device)  # type: ignore[arg-type]
    training, held_out = _split(Dataset.from_file(str(blocks.folder / _BLOCKS)), config.held_out, session.seed)

    def loss() -> float:
        batch_size = config.fit.batch_size or 1
        return masked_loss(
            model, tokenizer, held_out, config.mask_ratio, batch_size=batch_size, precision=config.precision
        )

    before = loss() if len(held_out) else None
    trained = train_language_model(
        model,
        tokenizer,
        training,
        config.fit,
        config.mask_ratio,
        session,
        device=str(config.device),
    )
    if distributed.rank() == 0:
        model.save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
    found = {"held_out": None if before is None else [before, loss()], "n_blocks": len(training)}
    return asdict(trained) | found | {"best": None, "curve": [], "others": []}


def _split(blocks: Dataset, held_out: float, seed: int) -> tuple[Dataset, Dataset]:
    """Blocks to train on, and the share to measure with; at least one of each, where there are two."""
    n_held_out = min(len(blocks) - 1, max(1, round(held_out * len(blocks)))) if held_out else 0
    order = np.random.default_rng(seed).permutation(len(blocks))
    return blocks.select(np.sort(order[n_held_out:])), blocks.select(np.sort(order[:n_held_out]))


def _scores(run: Run, config: MLM, data: Data, start: Model, trained: Model) -> dict[str, Metrics]:
    """Of start and trained model as bi-encoders that take the mean over the tokens."""
    tests = {test.name: test for test in data.tests}
    if not tests:
        return {}
    cache = TokenCache(run.folder / "tokens")
    conditions = {"precision": config.precision, "max_length": config.fit.max_length, "pooling": "mean"}

    def scorer(model: Model) -> BiScorer:
        bi = load_bi(model.folder, max_length=config.fit.max_length, pooling="mean", device=config.device)
        return BiScorer(bi, precision=config.precision, cache=cache)

    return {
        name: score_stage(run, model, name, conditions, tests, partial(scorer, model)).result
        for name, model in (("start", start), ("mlm", trained))
    }


@dataclass(frozen=True)
class MLMPlan:
    """What a run would do, and about what it would cost."""

    config: MLM
    n_texts: int
    steps: int
    """About: how many tokens the text has is not known before it is tokenised."""
    seconds: float
    """Rough estimate: training, by floating-point operations at the speed of two cores or one GPU."""
    disk_bytes: int
    """Two models, one checkpoint, blocks."""

    def __str__(self) -> str:
        """The plan as a person reads it."""
        config = self.config
        model = f"a new BERT of {config.layers} layers x {config.width}" if config.from_scratch else f"{config.start}"
        return "\n".join(
            [
                f"{plural(self.n_texts, 'sentence')}; train {model} about {plural(self.steps, 'step')}",
                settings_in_words(config.fit),
                f"about {duration(self.seconds)} on {config.device} ({config.precision}; a rough estimate), "
                f"{self.disk_bytes / 1e9:.1f} GB of disk in {config.output}",
            ]
        )


_BYTES_A_TOKEN = 4
"""Of text, about."""


def plan_mlm(config: MLM) -> MLMPlan:
    """What a run would do with this config: reads the text and the model's size, trains nothing."""
    _, config, folder = _prepare(config)
    warn_of_absent(config.reuse_from)
    texts = read_start_data(config, None).training
    n_tokens = sum(len(text) for chunk in _texts(texts) for text in chunk) // _BYTES_A_TOKEN + len(texts)
    block_length, batch_size = config.fit.max_length or 2, config.fit.batch_size or 1
    n_blocks = -(-n_tokens // block_length)
    steps = steps_in_all(max(1, n_blocks - round(config.held_out * n_blocks)), config.fit, both_orders=False)
    n_own = 12 * config.layers * config.width**2
    n_parameters = n_own + config.vocabulary * config.width if folder is None else count_parameters(folder)
    operations = 3 * n_parameters * steps * batch_size * block_length
    disk = 4 * n_parameters * (2 + 4) + 5 * n_tokens
    return MLMPlan(config, len(texts), steps, operations / operations_a_second(config), disk)
