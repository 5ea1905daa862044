"""What every training run has in common: the trainer's arguments, bucketed batches, progress, resumption."""

import logging
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import CrossEncoder
from torch import nn
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import TensorBoardCallback

from transencoder import distributed, progress
from transencoder.batching import LengthBucketSampler
from transencoder.checkpoints import KeepBest, newest_checkpoint
from transencoder.config import FitConfig
from transencoder.cpu import fast_training
from transencoder.errors import InputError
from transencoder.fit.session import Session
from transencoder.inference import quick_products, uses_bf16
from transencoder.prompts import default_prompt
from transencoder.tokens import TokenCache, Tokens

logger = logging.getLogger(__name__)

_OPTIONAL = ("dropout", "lora_rank", "lora_alpha")
"""Fields of a fit's config that mean something when they are None."""


def trainer_arguments(
    arguments_class: type[TrainingArguments],
    config: FitConfig,
    session: Session,
    *,
    device: str,
    has_dev: bool,
    logging_steps: int,
) -> Any:
    """Config and session as a trainer takes them."""
    on_cpu = device.startswith("cpu")
    arguments = arguments_class(
        output_dir=str(session.folder),
        num_train_epochs=config.epochs,  # type: ignore[arg-type]
        per_device_train_batch_size=batch_size(config),
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        learning_rate=config.learning_rate,  # type: ignore[arg-type]
        lr_scheduler_type="constant_with_warmup" if config.schedule == "constant" else config.schedule,
        optim=arguments_class.default_optim if config.optimizer == "adamw" else config.optimizer,
        warmup_steps=config.warmup_ratio,  # type: ignore[arg-type]
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        bf16=uses_bf16(device, session.precision),
        use_cpu=on_cpu,
        seed=session.seed,
        data_seed=session.seed,
        eval_strategy="steps" if has_dev else "no",
        eval_steps=config.eval_steps,
        save_strategy="steps",
        save_steps=config.checkpoint_steps,
        logging_steps=logging_steps,
        report_to=list(session.report_to) or "none",
        disable_tqdm=True,
        dataloader_pin_memory=device.startswith("cuda"),
        ddp_backend="gloo" if on_cpu and distributed.world_size() > 1 else None,
        ddp_find_unused_parameters=True,
        remove_unused_columns=False,
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # one process, one GPU: more than one would mean DataParallel
    return arguments


def run_trainer(
    trainer: Trainer,
    keep: KeepBest,
    batches: LengthBucketSampler,
    max_length: int | None,
    log_folder: Path | None,
) -> None:
    """Train from the last complete checkpoint in the trainer's folder, or from the beginning.

    Args:
        trainer: A trainer that takes its batches from its attribute `batches`.
        keep: What completes its checkpoints.
        batches: The batches.
        max_length: Tokens of its longest texts.
        log_folder: Where TensorBoard's events go; None: with the checkpoints.
    """
    trainer.batches = batches  # type: ignore[attr-defined]
    for callback in (keep, _TellEpoch(batches), _ShowProgress(type(keep.model).__name__)):
        trainer.add_callback(callback)
    trainer.remove_callback(PrinterCallback)
    for callback in trainer.callback_handler.callbacks:
        if log_folder is not None and isinstance(callback, TensorBoardCallback):
            callback.logging_dir = callback.logging_dir or str(log_folder)  # TENSORBOARD_LOGGING_DIR goes first
    checkpoint = distributed.broadcast(newest_checkpoint(keep.folder) if distributed.rank() == 0 else None)
    if checkpoint is not None:
        logger.info("going on from step %s", checkpoint.name.rpartition("-")[2])
    keep.restore(checkpoint)
    with fast_training(keep.model, trainer.args.device, max_length), quick_products(trainer.args.bf16):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)


def set_dropout(model: nn.Module, share: float | None) -> None:
    """Give all dropout layers this share; None leaves them."""
    for module in model.modules():
        if share is not None and isinstance(module, nn.Dropout):
            module.p = share


def pair_tables(cache: TokenCache, model: CrossEncoder, pairs: Dataset, both_orders: bool) -> list[Tokens]:
    """The tokens of n joined pairs as `model` reads them, and, for both orders, those of the pairs turned round."""
    prompt = default_prompt(model)
    return [cache.pairs(model, pairs, turned, prompt) for turned in ([False, True] if both_orders else [False])]


def bucketed(lengths: Any, config: FitConfig, seed: int) -> LengthBucketSampler:
    """The batches of rows with these lengths, for as many processes as there are."""
    return LengthBucketSampler(lengths, batch_size(config), config.bucket_batches, seed, distributed.world_size())


def steps_in_all(n_pairs: int, config: FitConfig, both_orders: bool) -> int:
    """Optimiser steps a fit takes under as many processes as there are."""
    batch = batch_size(config) * config.gradient_accumulation_steps * distributed.world_size()
    return -(-n_pairs * (2 if both_orders else 1) // batch) * (config.epochs or 1)


def batch_size(config: FitConfig) -> int:
    """The batch size of a config that is filled."""
    names = [field.name for field in fields(config) if field.name not in _OPTIONAL]
    empty = [name for name in names if getattr(config, name) is None]
    if config.batch_size is None or empty:
        raise InputError(f"{', '.join(empty)} of the fit's config are not set; methods.defaults.fill sets them")
    return config.batch_size


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
