"""sentence-transformers' trainers, adapted to our batches, checkpoints, progress and resumption."""

import logging
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from safetensors.torch import load_model, save_model
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from torch import nn
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import TensorBoardCallback

from transencoder import distributed, progress
from transencoder.batching import LengthBucketSampler
from transencoder.checkpoints import KeepBest, newest_checkpoint
from transencoder.configs import FitConfig, Precision
from transencoder.configs.fit import NEEDED
from transencoder.cpu import fast_training
from transencoder.devices import quick_products, uses_bf16
from transencoder.encoders import save
from transencoder.errors import InputError
from transencoder.files import whole_folder
from transencoder.first_token import first_token_alone
from transencoder.fit.optimizers import FormerAdamW
from transencoder.losses import Annealing
from transencoder.losses.features import distinct_tokens
from transencoder.models import default_prompt
from transencoder.tokens import TokenCache, Tokens

logger = logging.getLogger(__name__)

_STUDENT = "student.safetensors"

_TOKENS_AT_ONCE = 4096
"""Number of tokens above which a CPU learns a batch in parts: those of 64 pairs of 32 tokens a side. A bi-encoder's are
those of distinct texts, without padding, which it leaves out; a cross-encoder's include padding.
Whole batches of twice as many took half as much memory again, and no less time (all-MiniLM-L6-v2, fp32)."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """How and where one training runs. Only seed and precision affect what the model learns.

    An interrupted training resumes from the last complete checkpoint in `folder` and ends with the same bytes.
    """

    folder: Path
    """Folder of the checkpoints."""
    seed: int
    """Seed of shuffling, masks and dropout."""
    precision: Precision = "auto"
    """Precision of the training; `auto`: bf16 autocast where the hardware supports it."""
    cache: TokenCache | None = None
    """Cache with token ids made earlier, for instance when the pairs were labelled."""
    report_to: tuple[str, ...] = ()
    """Experiment trackers that the trainer reports to."""
    log_folder: Path | None = None
    """Folder for TensorBoard's events; None: `folder`."""
    steps_folder: Path | None = None
    """Folder for the models of `save_steps`, named `step-500` and so on; None: `folder`."""


class _Ours:
    """Changes to both trainers: they take our batches and token features as they are, and write no model card."""

    batches: LengthBucketSampler
    args: Any
    model: Any
    loss: Any
    _share = 1.0
    """Share of the batch's rows that are in the part that is learned."""

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """Learn a batch, a large one in parts to save memory: their gradients add up to that of the batch."""
        losses = []
        for part, share in self._parts(inputs):
            self._share = share
            losses.append(super().training_step(model, part, num_items_in_batch))  # type: ignore[misc]
        return torch.stack(losses).sum()

    def _parts(self, inputs: dict[str, Any]) -> Iterator[tuple[dict[str, Any], float]]:
        """Yield the parts of a batch and their shares of its rows: on a CPU several, if the loss is a mean of rows."""
        is_alone = self.args.device.type == "cpu" and distributed.world_size() == 1
        if not is_alone or not getattr(self.loss, "is_mean_of_rows", False):
            yield inputs, 1.0
            return
        columns, n_rows = self.collect_features(inputs)[0], len(inputs["label"])
        n_tokens = distinct_tokens(columns) if len(columns) > 1 else columns[0]["input_ids"].numel()
        for rows in torch.arange(n_rows).chunk(math.ceil(n_tokens / _TOKENS_AT_ONCE)):
            part = {name: each[rows] if isinstance(each, torch.Tensor) else each for name, each in inputs.items()}
            yield part, len(rows) / n_rows

    def compute_loss(self, *arguments: Any, **named: Any) -> Any:
        """Return a part's share in the batch's loss."""
        return self._share * super().compute_loss(*arguments, **named)  # type: ignore[misc]

    def get_batch_sampler(self, *_: Any, **__: Any) -> LengthBucketSampler:
        """Return the bucketed batches."""
        return self.batches

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Save the weights, including adapters, in a checkpoint; nothing else of a model changes in training."""
        assert output_dir is not None
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        save_model(self.model, str(Path(output_dir) / _STUDENT))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Load the weights of a checkpoint into the existing model; the trainer's own method would make another one."""
        load_model(self.model, Path(resume_from_checkpoint) / _STUDENT)

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Do nothing: the report writes the model card from the run's records."""

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        """Clip the gradients of the loss's own parameters together with the model's."""
        return super()._clip_grad_norm(self.loss)  # type: ignore[misc]

    def collect_features(self, inputs: dict[str, Any]) -> tuple[list[dict[str, Any]], Any]:
        """Return the collator's features as both trainers' losses take them."""
        return SentenceTransformerTrainer.collect_features(self, inputs)  # type: ignore[arg-type]


class _BiTrainer(_Ours, SentenceTransformerTrainer): ...


class _CrossTrainer(_Ours, CrossEncoderTrainer): ...


TRAINERS: dict[type, tuple[Any, Any]] = {
    SentenceTransformer: (_BiTrainer, SentenceTransformerTrainingArguments),
    CrossEncoder: (_CrossTrainer, CrossEncoderTrainingArguments),
}
"""Class of the student -> classes of its trainer and of the trainer's arguments."""


def trainer_arguments(
    arguments_class: type[TrainingArguments],
    config: FitConfig,
    session: Session,
    *,
    device: str,
    has_dev: bool,
    logging_steps: int,
    heads: Sequence[str] = (),
) -> Any:
    """Build a trainer's arguments from config and session; `heads` are the parameters with their own learning rate."""
    on_cpu = device.startswith("cpu")
    arguments: Any = arguments_class(
        output_dir=str(session.folder),
        num_train_epochs=config.epochs,  # type: ignore[arg-type]
        per_device_train_batch_size=batch_size(config),
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        learning_rate=config.learning_rate,  # type: ignore[arg-type]
        lr_scheduler_type="constant_with_warmup" if config.schedule == "constant" else config.schedule,
        optim="rmsprop" if config.optimizer == "rmsprop" else arguments_class.default_optim,
        adam_beta1=config.adam_beta1,
        adam_beta2=config.adam_beta2,
        adam_epsilon=config.adam_epsilon,
        warmup_steps=config.warmup_ratio,  # type: ignore[arg-type]
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        bf16=uses_bf16(device, session.precision),
        use_cpu=on_cpu,
        seed=session.seed,
        data_seed=session.seed,
        eval_strategy="steps" if has_dev else "no",
        eval_steps=config.eval_steps,
        save_strategy="no" if config.checkpoint_steps is None else "steps",
        save_steps=config.checkpoint_steps or 1,
        logging_steps=logging_steps,
        report_to=list(session.report_to) or "none",
        disable_tqdm=True,
        dataloader_pin_memory=device.startswith("cuda"),
        ddp_backend="gloo" if on_cpu and distributed.world_size() > 1 else None,
        ddp_find_unused_parameters=True,
        remove_unused_columns=False,
    )
    if heads:
        arguments.learning_rate_mapping = {f"^({'|'.join(map(re.escape, heads))})$": config.head_learning_rate}
    arguments._n_gpu = min(1, arguments.n_gpu)  # one process, one GPU: more than one would mean DataParallel
    return arguments


def run_trainer(
    trainer: Trainer,
    keep: KeepBest,
    lengths: np.ndarray,
    config: FitConfig,
    session: Session,
    groups: np.ndarray | None = None,
) -> float:
    """Train from the last complete checkpoint in the session's folder, or from the beginning.

    `lengths` are the tokens of each row, uint16 (n,); a batch has rows of similar length, and the `groups`, int (n,),
    stay together (`LengthBucketSampler`). The trainer takes its batches from its attribute `batches`, which is set
    here. Returns the seconds that the trainer counts, from its first step on.
    """
    size, seed, world_size = batch_size(config), session.seed, distributed.world_size()
    batches = LengthBucketSampler(lengths, size, config.bucket_batches, seed, world_size, groups)
    trainer.batches = batches  # type: ignore[attr-defined]
    if config.optimizer in ("adamw_hf", "bert_adam"):
        _, settings = trainer.get_optimizer_cls_and_kwargs(trainer.args, trainer.model)  # type: ignore[arg-type]
        settings.pop("fused", None)
        settings["is_bias_corrected"] = config.optimizer == "adamw_hf"
        trainer.optimizer_cls_and_kwargs = FormerAdamW, settings
    shower = _ProgressShower(type(keep.model).__name__)
    for callback in (keep, _EpochTeller(batches), shower):
        trainer.add_callback(callback)
    if config.save_steps is not None:
        trainer.add_callback(_ModelSaver(keep.model, session.steps_folder or session.folder, config.save_steps))
    trainer.remove_callback(PrinterCallback)
    for callback in trainer.callback_handler.callbacks:
        if session.log_folder is not None and isinstance(callback, TensorBoardCallback):
            callback.logging_dir = callback.logging_dir or str(session.log_folder)  # TENSORBOARD_LOGGING_DIR overrides
    checkpoint = distributed.broadcast(newest_checkpoint(keep.folder) if distributed.rank() == 0 else None)
    if checkpoint is not None:
        logger.info("going on from step %s", checkpoint.name.rpartition("-")[2])
    keep.restore(checkpoint)
    trained = keep.model if keep.loss is None else keep.loss
    with (
        first_token_alone(keep.model),
        fast_training(trained, trainer.args.device),
        quick_products(trainer.args.bf16),
        shower.stack,
    ):
        return trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None).metrics["train_runtime"]


def set_dropout(model: nn.Module, share: float | None) -> None:
    """Set the probability of all dropout layers, and of attention's own dropout; None leaves them unchanged."""
    if share is not None:
        for module, name in _dropouts(model):
            setattr(module, name, share)


def has_dropout(model: nn.Module) -> bool:
    """Return whether anything is dropped when a model is trained."""
    return any(getattr(module, name) > 0 for module, name in _dropouts(model))


def _dropouts(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Yield the modules that drop something, each with the name of its attribute for the probability."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            yield module, "p"
        for name in ("dropout", "attention_dropout"):  # numbers in T5's, ModernBERT's and NomicBERT's attention
            if isinstance(vars(module).get(name), float):
                yield module, name


def pair_tables(cache: TokenCache, model: CrossEncoder, pairs: Dataset, both_orders: bool) -> list[Tokens]:
    """Return the tokens of n joined pairs as `model` reads them and, for both orders, of the pairs in swapped order."""
    prompt = default_prompt(model)
    return [cache.pairs(model, pairs, turned, prompt) for turned in ([False, True] if both_orders else [False])]


def steps_in_all(n_rows: int, config: FitConfig) -> int:
    """Return the total number of optimiser steps of a fit with the present number of processes."""
    batch = batch_size(config) * config.gradient_accumulation_steps * distributed.world_size()
    return -(-n_rows // batch) * (config.epochs or 1)


def batch_size(config: FitConfig) -> int:
    """Return the batch size of a config, after checking that no field that a method fills in is None."""
    empty = [name for name in NEEDED if getattr(config, name) is None]
    if config.batch_size is None or empty:
        raise InputError(
            f"{', '.join(empty)} of the fit's config {'is' if len(empty) == 1 else 'are'} not set; give FitConfig a "
            "value for each, or train with a method, which has defaults"
        )
    return config.batch_size


class GoldAnnealing(TrainerCallback):
    """A callback that raises a loss's `gold_share` linearly from 0 at the first step to 1 at the last.

    Source: DvBERT, section 2.3. The share depends on the step only, so a resumed training continues with it. With one
    step only it is 1.
    """

    def __init__(self, loss: Annealing) -> None:
        self.loss = loss

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Set the share of the step."""
        last = state.max_steps - 1
        self.loss.gold_share = state.global_step / last if last else 1.0


class _ModelSaver(TrainerCallback):
    """A callback that saves the encoder every `save_steps` steps; plain sentence-transformers can load it."""

    def __init__(self, model: Any, folder: Path, save_steps: int) -> None:
        self.model = model
        self.folder = folder
        self.save_steps = save_steps

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero and state.global_step % self.save_steps == 0:
            with whole_folder(self.folder / f"step-{state.global_step}", replaces=True) as draft:
                save(self.model, draft)


class _EpochTeller(TrainerCallback):
    """A callback that tells the batches the epoch: under torchrun the trainer does not when it resumes in an epoch."""

    def __init__(self, batches: LengthBucketSampler) -> None:
        self.batches = batches

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.batches.set_epoch(int(state.epoch or 0))


class _ProgressShower(TrainerCallback):
    """A callback that shows a training's steps and loss until its `stack` is closed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stack = ExitStack()
        self.last_step = 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.stack.callback(progress.tell, "")
        self.advance = self.stack.enter_context(progress.task(f"train {self.name}", state.max_steps))
        self.advance(state.global_step)
        self.last_step = state.global_step

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.advance(state.global_step - self.last_step)
        self.last_step = state.global_step

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **told: Any) -> None:
        if "loss" in told["logs"]:
            progress.tell(f"loss {told['logs']['loss']:.3g}")
