"""A student learns from pairs: sentence-transformers' trainers, fed with bucketed, pre-tokenised batches."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
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
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import nn
from transformers import PreTrainedModel

from transencoder import distributed
from transencoder.batching import BiCollator, CrossCollator, LengthBucketSampler, QueryDocumentCollator, training_rows
from transencoder.checkpoints import KeepBest, own_parameters
from transencoder.config import FitConfig, Precision
from transencoder.fit.annealing import GoldAnnealing
from transencoder.fit.lora import LoRA
from transencoder.fit.trainer import bucketed, pair_tables, run_trainer, set_dropout, trainer_arguments
from transencoder.losses import Annealing
from transencoder.prompts import OWN_PROMPTS, Prompts
from transencoder.tokens import Encoder, TokenCache

_STUDENT = "student.safetensors"

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
    prompts: Prompts = OWN_PROMPTS,
    cache: TokenCache | None = None,
    report_to: tuple[str, ...] = (),
    log_folder: Path | None = None,
    rivals: Callable[[nn.Module], Sequence[Encoder]] | None = None,
    taught: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> Fitted:
    """Train a bi-encoder or a cross-encoder on pairs and leave its best weights in it.

    Interrupted, it goes on from the last complete checkpoint in `folder` and ends with the same bytes.

    Args:
        student: The encoder to train, in place.
        loss: Makes the loss module from the student.
        pairs: n pairs with `sentence1` and `sentence2`.
        targets: float32 (n,), one target a pair, such as pseudo-labels; zeros for losses that take none. Or
            (n, m): what the loss takes as labels, such as gold ones beside a teacher's.
        dev: Metrics of the student; the weights with the highest `dev` are kept. None keeps the last ones.
        config: How to train; no field empty.
        folder: Where checkpoints live.
        seed: Decides shuffling and dropout.
        precision: `auto` trains under bf16 autocast where the hardware has it.
        both_orders: Train a cross-encoder on (a, b) and (b, a).
        prompts: What a bi-encoder reads before the texts of a pair.
        cache: Token ids made earlier, for instance when the pairs were labelled.
        report_to: Trackers the trainer reports to.
        log_folder: Where TensorBoard's events go; None: into `folder`.
        rivals: Of the loss, other encoders that it trains; the best of them and the student on dev is kept.
        taught: float32 (distinct sentences, dim), a teacher's embeddings in the order of `TokenCache.sentences`. A
            bi-encoder's labels are then those of all sides, and the targets are not used.
        rows: Of the pairs, those to train on; None: all.

    Returns:
        The dev curve and which step was kept.
    """
    started = time.monotonic()
    student.max_seq_length = config.max_length
    set_dropout(student, config.dropout)
    lora = None
    if config.lora_rank is not None:
        lora = LoRA(student, config.lora_rank, config.lora_alpha or 2.0 * config.lora_rank, seed)
    if config.gradient_checkpointing:
        student.gradient_checkpointing_enable()
    collator, lengths = _collate(student, pairs, both_orders, prompts, cache or TokenCache(), taught)
    if rows is not None:  # in the pairs turned round too, where there are these
        rows = np.concatenate([rows + first for first in range(0, len(lengths), len(pairs))])
    data = training_rows(len(lengths), np.asarray(targets, np.float32), rows)
    lengths = lengths if rows is None else lengths[rows]
    loss_module = loss(student).to(student.device).train()
    distributed.average_gradients(own_parameters(loss_module))
    keep = KeepBest(student, folder, loss_module)
    keep.candidates += rivals(loss_module) if rivals else ()
    trainer_class, arguments_class = _CLASSES[type(student)]
    trainer = trainer_class(
        model=student,
        args=trainer_arguments(
            arguments_class,
            config,
            folder=folder,
            device=str(student.device),
            seed=seed,
            precision=precision,
            has_dev=dev is not None,
            logging_steps=config.eval_steps,
            report_to=report_to,
        ),
        train_dataset=data,
        loss=loss_module,
        evaluator=None if dev is None else _DevEvaluator(dev, keep),
        data_collator=collator,
    )
    if isinstance(loss_module, Annealing):
        trainer.add_callback(GoldAnnealing(loss_module))
    _autocast_helpers(trainer, loss_module)
    run_trainer(trainer, keep, bucketed(lengths, config, seed), config.max_length, log_folder)
    n_steps = trainer.state.global_step
    keep.load_best()
    if lora is not None:
        lora.merge()
    student.eval()
    return Fitted(keep.best, keep.best_step or n_steps, keep.curve, keep.others, n_steps, time.monotonic() - started)


def _autocast_helpers(trainer: Any, loss: nn.Module) -> None:
    """Give a loss's own encoders the trainer's precision, which the trainer gives to the student alone."""
    for name, part in loss.named_children():
        if name != "model" and isinstance(part, SentenceTransformer | PreTrainedModel):
            trainer.accelerator.prepare_model(part, device_placement=False, evaluation_mode=True)


def _collate(
    student: Encoder,
    pairs: Dataset,
    both_orders: bool,
    prompts: Prompts,
    cache: TokenCache,
    taught: np.ndarray | None,
) -> tuple[Any, np.ndarray]:
    if isinstance(student, SentenceTransformer):
        sides = cache.sides(student, pairs, *prompts.sides(student))
        lengths = np.max([side.lengths for side in sides], axis=0)
        return BiCollator(sides[0], taught) if len(sides) == 1 else QueryDocumentCollator(sides), lengths
    tables = pair_tables(cache, student, pairs, both_orders)
    return CrossCollator(tables), np.concatenate([table.lengths for table in tables])


class _Quiet:
    """What our two trainers change: batches and token features are used as they come, and the model card is ours."""

    batches: LengthBucketSampler
    model: Any
    loss: Any

    def get_batch_sampler(self, *_: Any, **__: Any) -> LengthBucketSampler:
        """The bucketed batches."""
        return self.batches

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """The weights in a checkpoint, adapters among them; what else a model has does not change."""
        assert output_dir is not None
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        save_model(self.model, str(Path(output_dir) / _STUDENT))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """The weights of a checkpoint, into the model that there is: the trainer would make another one."""
        weights = Path(resume_from_checkpoint) / _STUDENT
        if weights.exists():
            load_model(self.model, weights)
        else:  # of an earlier version, which saved whole models
            super()._load_from_checkpoint(resume_from_checkpoint)  # type: ignore[misc]

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """No card here: `report.model_card` writes it from the run's records."""

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        """Clip what the loss trains of its own together with the model."""
        return super()._clip_grad_norm(self.loss)  # type: ignore[misc]

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
    """Metrics of the candidate that is best on dev, and which it is."""

    def __init__(self, metrics: DevMetrics, keep: KeepBest) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.metrics = metrics
        self.keep = keep

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        found = [self.metrics(encoder) for encoder in self.keep.candidates]
        best = max(range(len(found)), key=lambda i: -math.inf if math.isnan(found[i]["dev"]) else found[i]["dev"])
        return found[best] | ({"candidate": float(best)} if len(found) > 1 else {})
