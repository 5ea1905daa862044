"""Pipeline of masked language modelling: a base model or a new one, packed text, one training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import AutoTokenizer

from transencoder.configs import FitConfig
from transencoder.context import Model, Rows, Training, Work, base_model, trained_model
from transencoder.encoders import check_length, forget_last_call, fresh_masked, fresh_tokenizer, load_masked
from transencoder.errors import InputError, plural
from transencoder.fit import masked_loss, pack, train_language_model
from transencoder.methods.mlm import MLM
from transencoder.runs import Cost, Executor, Planner, Stage, StageRecord, implied, made_of, setting, stage_seed
from transencoder.training.data import read_text_data
from transencoder.training.parts import fetched
from transencoder.training.pipeline import BaseContext, Pipeline, placed, settings_in_words
from transencoder.training.result import Measurements
from transencoder.training.scoring import measured

_BLOCKS = "blocks.arrow"
_CHUNK = 1024
_CHARACTERS_PER_TOKEN = 4
"""Approximate number of characters of a token, for plans."""

LanguageModelContext = BaseContext[MLM]


class LanguageModelPipeline(Pipeline[MLM, LanguageModelContext]):
    """Pipeline of a run that makes a masked language model.

    Raises:
        InputError: The base model cannot be loaded or trained; raised before the text is read.
    """

    def __init__(self, config: MLM) -> None:
        default = 5e-4 if config.from_scratch else 5e-5
        rate = default if config.fit.learning_rate is None else config.fit.learning_rate
        self.given, self.config = placed(replace(config, fit=replace(config.fit, learning_rate=rate)))
        self.recipe = self.given
        self.folder: Path | None = None
        if (usable := self.config).start is not None:
            self.folder = fetched(usable, usable.start, revision=usable.revision)
            _check_base(self.folder, usable)

    def open(self, executor: Executor, run_folder: Path | None) -> LanguageModelContext:
        """Read the text, and make a new model if there is no base model."""
        config, data = self.config, read_text_data(self.config, self.config.text, run_folder)
        if self.folder is not None:
            base = base_model(self.folder, form="mlm", pooling="mean")
        else:
            stage = Fresh(
                name="fresh",
                texts=data.rows,
                vocabulary=config.vocabulary,
                seed=stage_seed(config.seed, "fresh"),
                n_layers=config.layers,
                width=config.width,
                max_length=config.fit.max_length,
            )
            (record,) = executor.make([stage])
            base = Model(
                "mlm",
                record.folder / "model",
                record.key,
                "fresh",
                pooling="mean",
                n_parameters=12 * config.layers * config.width**2 + config.vocabulary * config.width,
            )
        return LanguageModelContext(config, executor, data, base=base, max_length=config.fit.max_length)

    def train(self, context: LanguageModelContext) -> StageRecord:
        """Pack the text, and train the model."""
        config = self.config
        blocks = Blocks(name="blocks", texts=context.data.rows, base=context.base, length=config.fit.max_length)
        return context.make(
            LanguageModel(
                name="masked-language-model",
                blocks=context.make(blocks),
                base=context.base,
                fit=config.fit,
                mask_ratio=config.mask_ratio,
                held_out=config.held_out,
                new_head=config.new_head,
                seed=config.seed,
                precision=config.precision,
                texts=context.data.rows,
            )
        )

    def measure(self, context: LanguageModelContext, trained: StageRecord) -> Measurements:
        """Score the base model and the trained model as bi-encoders with mean pooling."""
        found = trained.result
        model = replace(trained_model(trained, context.base), pooling="mean")
        as_base = replace(model, cycle=0)  # loaded in the same way as a base model
        (worth,) = measured(context, {"": {"start": context.base, "mlm": as_base}})
        pretraining = {"steps": found["n_steps"], "losses": found["losses"]}
        if found["held_out"]:
            pretraining["held_out"] = found["held_out"]
        return Measurements(
            cycles=[{"mlm": model}],
            best={"mlm": model},
            dev=None,
            scores=worth.scores,
            details={"pretraining": pretraining},
        )

    def lines(self, context: LanguageModelContext, planner: Planner) -> list[str]:
        """Return lines on the texts, the steps and the settings."""
        config = self.config
        model = f"a new BERT of {config.layers} layers x {config.width}" if config.from_scratch else f"{config.start}"
        (stage,) = planner.of_kind(LanguageModel)
        return [
            f"{plural(len(context.data.training), 'sentence')}; train {model} about {plural(stage.n_steps, 'step')}",
            settings_in_words(config.fit),
        ]

    def extra_cost(self, context: LanguageModelContext, planner: Planner) -> Cost:
        """Return the cost of the exported model."""
        return Cost(disk_bytes=4 * context.base.n_parameters)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fresh(Stage[Work]):
    """A model with random weights, and a tokenizer trained on the text."""

    texts: Rows = made_of()
    vocabulary: int
    """Number of word pieces."""
    seed: int
    n_layers: int
    width: int
    max_length: int | None

    def write(self, work: Work, computed: None) -> dict[str, Any]:
        """Write the model and the tokenizer."""
        assert self.max_length is not None, "a language model's config has a length"
        tokenizer = fresh_tokenizer(partial(_texts, self.texts.data), self.vocabulary)
        tokenizer.model_max_length = self.max_length
        model = fresh_masked(
            len(tokenizer), n_layers=self.n_layers, width=self.width, max_length=self.max_length, seed=self.seed
        )
        model.save_pretrained(work.folder / "model")
        tokenizer.save_pretrained(work.folder / "model")
        return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Blocks(Stage[Work]):
    """Tokens of the text, packed into blocks of one length."""

    texts: Rows = made_of()
    base: Model = made_of()
    length: int | None

    def write(self, work: Work, computed: None) -> dict[str, Any]:
        """Write the blocks."""
        tokenizer = AutoTokenizer.from_pretrained(self.base.folder)
        pack(self.texts.data, tokenizer, self.length or 2, work.folder / _BLOCKS)
        return {}

    def cost(self) -> Cost:
        """Return the size of the blocks on disk."""
        return Cost(disk_bytes=5 * _n_tokens(self.texts.data))


@dataclass(frozen=True, kw_only=True, eq=False)
class LanguageModel(Training):
    """Training of a masked language model."""

    blocks: StageRecord = made_of()
    base: Model = made_of()
    fit: FitConfig = setting(lambda fit: fit.key_settings | {"eval_steps": None})
    mask_ratio: float
    held_out: float
    """Share of the blocks that is held out from training."""
    new_head: bool
    texts: Rows = implied()

    def compute(self, work: Work) -> tuple[Any, Any]:
        """Train."""
        session = self.session(work)
        model, tokenizer = load_masked(self.base.folder, seed=session.seed, new_head=self.new_head)
        model.to(work.device)  # type: ignore[arg-type]
        blocks = Dataset.from_file(str(self.blocks.folder / _BLOCKS))
        training, held_out = _split(blocks, self.held_out, session.seed)

        def loss() -> float:
            batch_size = self.fit.batch_size or 1
            return masked_loss(
                model, tokenizer, held_out, self.mask_ratio, batch_size=batch_size, precision=self.precision
            )

        before = loss() if len(held_out) else None
        trained = train_language_model(
            model, tokenizer, training, self.fit, self.mask_ratio, session, device=work.device
        )
        found = {"held_out": None if before is None else [before, loss()], "n_blocks": len(training)}
        return (model, tokenizer), asdict(trained) | found | {"best": None, "curve": [], "others": []}

    def write(self, work: Work, computed: tuple[Any, Any]) -> dict[str, Any]:
        """Save the model and the tokenizer."""
        saved, found = computed
        forget_last_call(saved[1])
        for each in saved:
            each.save_pretrained(work.folder / "model")
        return found  # type: ignore[no-any-return]

    @property
    def n_trained(self) -> int:
        """Approximate number of blocks: the number of tokens is not known before the text is tokenised."""
        n_blocks = -(-_n_tokens(self.texts.data) // (self.fit.max_length or 2))
        return max(1, n_blocks - round(self.held_out * n_blocks))

    def cost(self) -> Cost:
        """Return the cost of the training, and of the model and its checkpoint."""
        n_parameters = self.base.n_parameters
        n_tokens = self.n_steps * (self.fit.batch_size or 1) * (self.fit.max_length or 2)
        return Cost(
            operations=3 * n_parameters * n_tokens, disk_bytes=4 * n_parameters, scratch_bytes=16 * n_parameters
        )


def _check_base(folder: Path, config: MLM) -> None:
    """Raise an error, before the text is read, if the base model cannot be trained on it."""
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


def _split(blocks: Dataset, held_out: float, seed: int) -> tuple[Dataset, Dataset]:
    """Return the blocks to train on, and the held-out ones; at least one of each, if there are two blocks."""
    n_held_out = min(len(blocks) - 1, max(1, round(held_out * len(blocks)))) if held_out else 0
    order = np.random.default_rng(seed).permutation(len(blocks))
    return blocks.select(np.sort(order[n_held_out:])), blocks.select(np.sort(order[:n_held_out]))


def _texts(rows: Dataset) -> Iterator[list[str]]:
    return (rows[start : start + _CHUNK]["text"] for start in range(0, len(rows), _CHUNK))


def _n_tokens(rows: Dataset) -> int:
    """Return the approximate number of tokens of the texts."""
    return sum(len(text) for chunk in _texts(rows) for text in chunk) // _CHARACTERS_PER_TOKEN + len(rows)
