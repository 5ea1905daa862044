"""The one training entry for both forms: sentence-transformers' trainers, fed with bucketed, pre-tokenised batches."""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import nn
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from transencoder import distributed, progress
from transencoder.batching import BiCollator, CrossCollator, LengthBucketSampler, training_rows
from transencoder.checkpoints import KeepBest, newest_checkpoint
from transencoder.config import FitConfig, Precision
from transencoder.cpu import fast_training
from transencoder.errors import InputError
from transencoder.inference import uses_bf16
from transencoder.scorers import default_prompt
from transencoder.tokens import Encoder, TokenCache

logger = logging.getLogger(__name__)

DevMetrics = Callable[[Any], dict[str, float]]
"""Encoder -> metrics; `dev` is the one that chooses, the others are only recorded."""


@dataclass(frozen=True)
class Fitted:
    """What a fit leaves behind; the student itself holds the best weights."""

    best: float | None
    """Best dev metric; None without a dev set, or where none was defined."""
    best_step: int
    """The step the kept weights are from."""
    curve: list[tuple[int, float | None]]
    """(step, dev metric) of every evaluation; None where all scores were equal."""
    others: list[tuple[int, dict[str, float | None]]]
    """(step, other metrics) of every evaluation that had some."""
    n_steps: int
    """Optimiser steps in all."""
    seconds: float
    """Wall time of this process's part, evaluations included."""


def fit(
    student: Encoder,
    loss: Callable[[Any], nn.Module],
    pairs: Dataset,
    targets: np.ndarray,
    dev: DevMetrics | None,
    config: FitConfig,
    *,
    folder: Path,
    seed: int,
    precision: Precision = "auto",
    both_orders: bool = False,
    cache: TokenCache | None = None,
    report_to: tuple[str, ...] = (),
) -> Fitted:
    """Train a bi-encoder or a cross-encoder on pseudo-labels and leave its best weights in it.

    Interrupted, it goes on from the last complete checkpoint in `folder` and ends with the same bytes.

    Args:
        student: The encoder to train, in place.
        loss: Makes the loss module from the student.
        pairs: n pairs with `sentence1` and `sentence2`.
        targets: float32 (n,), one target a pair.
        dev: Metrics of the student; the weights with the highest `dev` are kept. None keeps the last ones.
        config: How to train; no field empty.
        folder: Where checkpoints live.
        seed: Decides shuffling and dropout.
        precision: `auto` trains under bf16 autocast where the hardware has it.
        both_orders: Train a cross-encoder on (a, b) and (b, a).
        cache: Token ids made earlier, for instance when the pairs were labelled.
        report_to: Trackers the trainer reports to.

    Returns:
        The dev curve and which step was kept.
    """
    started = time.monotonic()
    student.max_seq_length = config.max_length
    if config.dropout is not None:
        _set_dropout(student, config.dropout)
    if config.gradient_checkpointing:
        student.gradient_checkpointing_enable()
    collator, lengths = _collate(student, pairs, both_orders, cache or TokenCache())
    data = training_rows(len(lengths), np.asarray(targets, np.float32))
    n_processes = distributed.world_size()
    batches = LengthBucketSampler(lengths, _batch_size(config), config.bucket_batches, seed, n_processes)
    keep = KeepBest(student, folder)
    trainer_class, arguments_class = _CLASSES[type(student)]
    arguments = arguments_class(
        output_dir=str(folder), **_arguments(student, config, seed, precision, dev is not None, report_to)
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # one process, one GPU: more than one would mean DataParallel
    trainer = trainer_class(
        model=student,
        args=arguments,
        train_dataset=data,
        loss=loss(student),
        evaluator=None if dev is None else _DevEvaluator(dev),
        data_collator=collator,
        callbacks=[keep, _TellEpoch(batches), _ShowProgress(type(student).__name__)],
    )
    trainer.batches = batches
    trainer.remove_callback(PrinterCallback)
    checkpoint = distributed.broadcast(newest_checkpoint(folder) if distributed.rank() == 0 else None)
    keep.restore(checkpoint)
    with fast_training(student):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    n_steps = trainer.state.global_step
    keep.load_best()
    student.eval()
    return Fitted(keep.best, keep.best_step or n_steps, keep.curve, keep.others, n_steps, time.monotonic() - started)


def steps_in_all(n_pairs: int, config: FitConfig, both_orders: bool) -> int:
    """Optimiser steps a fit takes under as many processes as there are."""
    batch = _batch_size(config) * config.gradient_accumulation_steps * distributed.world_size()
    return -(-n_pairs * (2 if both_orders else 1) // batch) * (config.epochs or 1)


def _set_dropout(student: Encoder, share: float) -> None:
    for module in student.modules():
        if isinstance(module, nn.Dropout):
            module.p = share


def _batch_size(config: FitConfig) -> int:
    """The batch size of a config that is filled."""
    empty = [field.name for field in fields(config) if getattr(config, field.name) is None and field.name != "dropout"]
    if config.batch_size is None or empty:
        raise InputError(f"{', '.join(empty)} of the fit's config are not set; methods.defaults.fill sets them")
    return config.batch_size


def _collate(student: Encoder, pairs: Dataset, both_orders: bool, cache: TokenCache) -> tuple[Any, np.ndarray]:
    prompt = default_prompt(student)
    if isinstance(student, SentenceTransformer):
        sentences = cache.sentences(student, pairs, prompt)
        return BiCollator(sentences), sentences.lengths
    tables = [cache.pairs(student, pairs, swapped, prompt) for swapped in ([False, True] if both_orders else [False])]
    return CrossCollator(tables), np.concatenate([table.lengths for table in tables])


def _arguments(
    student: Encoder,
    config: FitConfig,
    seed: int,
    precision: Precision,
    has_dev: bool,
    report_to: tuple[str, ...],
) -> dict[str, Any]:
    return {
        "num_train_epochs": config.epochs,
        "per_device_train_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "linear",
        "warmup_steps": config.warmup_ratio,
        "weight_decay": config.weight_decay,
        "max_grad_norm": config.max_grad_norm,
        "bf16": uses_bf16(student.device, precision),
        "use_cpu": student.device.type == "cpu",
        "seed": seed,
        "data_seed": seed,
        "eval_strategy": "steps" if has_dev else "no",
        "eval_steps": config.eval_steps,
        "save_strategy": "steps",
        "save_steps": config.checkpoint_steps,
        "logging_steps": config.eval_steps,
        "report_to": list(report_to) or "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": student.device.type == "cuda",
        "ddp_backend": "gloo" if student.device.type == "cpu" and distributed.world_size() > 1 else None,
        "ddp_find_unused_parameters": True,
    }


class _Quiet:
    """What our two trainers change: batches and token features are used as they come, and the model card is ours."""

    batches: LengthBucketSampler
    model: Any

    def get_batch_sampler(self, *_: Any, **__: Any) -> LengthBucketSampler:
        """The bucketed batches."""
        return self.batches

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """The model in a checkpoint, without a card: for a small model writing it took 8 times as long as the rest."""
        self.model.save_pretrained(output_dir, create_model_card=False)

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """No card here: `report.model_card` writes it from the run's records."""

    def collect_features(self, inputs: dict[str, Any]) -> tuple[list[dict[str, Any]], Any]:
        """The collator's features as both trainers' losses take them."""
        return SentenceTransformerTrainer.collect_features(self, inputs)  # type: ignore[arg-type]


class _BiTrainer(_Quiet, SentenceTransformerTrainer): ...


class _CrossTrainer(_Quiet, CrossEncoderTrainer): ...


_CLASSES: dict[type, tuple[Any, Any]] = {
    SentenceTransformer: (_BiTrainer, SentenceTransformerTrainingArguments),
    CrossEncoder: (_CrossTrainer, CrossEncoderTrainingArguments),
}


class _DevEvaluator(BaseEvaluator):
    def __init__(self, metrics: DevMetrics) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.metrics = metrics

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        return self.metrics(model)


class _TellEpoch(TrainerCallback):
    """Tells the batches their epoch: under torchrun the trainer does not, where it resumes inside an epoch."""

    def __init__(self, batches: LengthBucketSampler) -> None:
        self.batches = batches

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.batches.set_epoch(int(state.epoch or 0))


class _ShowProgress(TrainerCallback):
    def __init__(self, name: str) -> None:
        self.name = name
        self.stack = ExitStack()
        self.last_step = 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.advance = self.stack.enter_context(progress.task(f"train {self.name}", state.max_steps))
        self.advance(state.global_step)
        self.last_step = state.global_step

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.advance(state.global_step - self.last_step)
        self.last_step = state.global_step

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.stack.close()
