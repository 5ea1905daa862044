"""Masked language modelling over pairs: a plain pretrained model learns to look from one sentence to the other.

BERT-like models got this from pretraining on two segments; one that only read single texts cannot compare two sentences
as a cross-encoder, and pseudo-labels alone do not teach it. More pretraining on a task's own unlabelled text is
task-adaptive pretraining (Gururangan et al., ACL 2020).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from torch import nn
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, Trainer, TrainingArguments

from transencoder.batching import LengthBucketSampler, training_rows
from transencoder.checkpoints import KeepBest
from transencoder.config import FitConfig
from transencoder.encoders import load_cross, load_masked
from transencoder.errors import InputError
from transencoder.fit.masking import MaskedPairsCollator
from transencoder.fit.running import bucketed, pair_tables, run_trainer, trainer_arguments
from transencoder.fit.session import Session
from transencoder.tokens import TokenCache

_SHOWN_STEPS = 100
"""Steps whose losses are recorded as one mean; in short runs a tenth of them."""


@dataclass(frozen=True)
class Pretrained:
    """What pretraining leaves behind, next to the model."""

    losses: list[tuple[int, float]]
    """(step, mean cross-entropy of the masked tokens over the last 100 steps or what there is of them, in nats)."""
    n_steps: int
    """Optimiser steps in all."""
    seconds: float
    """Wall time of this process's part."""


def pretrain(
    start: Path,
    pairs: Dataset,
    config: FitConfig,
    mask_ratio: float,
    session: Session,
    *,
    device: str = "cpu",
    both_orders: bool = True,
) -> tuple[PreTrainedModel, Pretrained]:
    """Go on with a model's masked language modelling, on "[CLS] sentence1 [SEP] sentence2 [SEP]".

    Args:
        start: A plain pretrained model with its language-modelling head.
        pairs: n pairs with `sentence1` and `sentence2`.
        config: How to train; no field empty.
        mask_ratio: Share of each pair's tokens to guess, above 0 and below 1.
        session: How and where it runs.
        device: Where it trains.
        both_orders: Read (a, b) and (b, a).

    Returns:
        The encoder without its language-modelling head, and the record.

    Raises:
        InputError: `start` is no masked language model, or its tokenizer has no mask token that the model knows.
    """
    started = time.monotonic()
    model, tokenizer = _load(start, session.seed)
    reader = load_cross(start, max_length=config.max_length, device="cpu")
    tables = pair_tables(session.cache or TokenCache(), reader, pairs, both_orders)
    n_vocabulary = min(len(tokenizer), model.config.vocab_size)
    lengths = np.concatenate([table.lengths for table in tables])
    losses, n_steps = train_masked(
        model,
        MaskedPairsCollator(tables, tokenizer, n_vocabulary, mask_ratio, session.seed),
        training_rows(len(lengths), np.zeros(len(pairs), np.float32)),
        lengths,
        config,
        session,
        device=device,
    )
    record = Pretrained(losses, n_steps, time.monotonic() - started)
    return model.base_model, record  # type: ignore[return-value]


def train_masked(
    model: PreTrainedModel,
    collator: Any,
    rows: Dataset,
    lengths: np.ndarray,
    config: FitConfig,
    session: Session,
    *,
    device: str,
) -> tuple[list[tuple[int, float]], int]:
    """Train a masked language model on what a collator makes of rows; its last weights stay.

    Args:
        model: With its language-modelling head, trained in place.
        collator: Rows -> batch, the labels -100 where nothing is to guess; the same rows give the same masks.
        rows: See `training_rows`.
        lengths: uint16 (n,), tokens of each row.
        config: How to train; no field empty.
        session: How and where it runs.
        device: Where it trains.

    Returns:
        The losses as `Pretrained` has them, and the optimiser steps.
    """
    arguments = trainer_arguments(
        TrainingArguments,
        config,
        session,
        device=device,
        has_dev=False,
        logging_steps=1,  # a resumed run has lost the losses since the last one
    )
    arguments.gradient_checkpointing = config.gradient_checkpointing
    with guessing_masked_only(model):
        trainer = _MaskedTrainer(model=model, args=arguments, train_dataset=rows, data_collator=collator)
        trainer.model_accepts_loss_kwargs = False  # the losses here are means: the trainer must divide them
        batches = bucketed(lengths, config, session.seed)
        run_trainer(trainer, KeepBest(model, session.folder), batches, config.max_length, session.log_folder)
    return _means([entry["loss"] for entry in trainer.state.log_history if "loss" in entry]), trainer.state.global_step


class _MaskedTrainer(Trainer):
    """The plain trainer on bucketed batches."""

    model: PreTrainedModel
    batches: LengthBucketSampler

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The bucketed batches, as the sentence-transformers trainers have them."""
        self.accelerator.even_batches = False
        loader: DataLoader[Any] = DataLoader(
            self.train_dataset,  # type: ignore[arg-type]
            batch_sampler=self.batches,
            collate_fn=self.data_collator,
            pin_memory=self.args.dataloader_pin_memory,
        )
        return self.accelerator.prepare(loader)  # type: ignore[no-any-return]

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Safetensors under the model's own names, which are the ones that resuming reads; no pickled arguments."""
        self.model.save_pretrained(output_dir or str(self.args.output_dir), save_original_format=False)


def _load(start: Path, seed: int) -> tuple[PreTrainedModel, Any]:
    try:
        return load_masked(start, seed=seed)
    except InputError as error:
        raise InputError(f"{error} as cross_start, or leave pretraining out") from error


@contextmanager
def guessing_masked_only(model: PreTrainedModel) -> Iterator[None]:
    """Give the language-modelling head the masked positions alone: over all of them it costs more than a small encoder.

    The labels, int (batch, longest) with -100 where nothing is to guess, become (1, n_masked).
    """
    is_masked: Any = None

    def before(_: nn.Module, args: tuple[Any, ...], features: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        nonlocal is_masked
        is_masked = features["labels"] != -100
        return args, features | {"labels": features["labels"][is_masked][None]}

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state[is_masked][None]
        return output

    hooks = [
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.base_model.register_forward_hook(after),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _means(losses: list[float]) -> list[tuple[int, float]]:
    size = min(_SHOWN_STEPS, max(1, len(losses) // 10))
    parts = [losses[i : i + size] for i in range(0, len(losses), size)]
    return [(i * size + len(part), round(sum(part) / len(part), 4)) for i, part in enumerate(parts)]
