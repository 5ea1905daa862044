"""Masked language modelling over pairs: a plain pretrained model learns to look from one sentence to the other.

BERT-like models got this from pretraining on two segments; one that only read single texts cannot compare two sentences
as a cross-encoder, and pseudo-labels alone do not teach it. More pretraining on a task's own unlabelled text is
task-adaptive pretraining (Gururangan et al., ACL 2020); the masks are BERT's (Devlin et al., NAACL 2019, section 3.1).
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModel, AutoModelForMaskedLM, PreTrainedModel, Trainer, TrainingArguments, set_seed

from transencoder.batching import LengthBucketSampler, MaskedPairsCollator, training_rows
from transencoder.checkpoints import KeepBest
from transencoder.config import FitConfig, Precision
from transencoder.encoders import load_cross
from transencoder.errors import InputError
from transencoder.fit.trainer import bucketed, run_trainer, trainer_arguments
from transencoder.tokens import TokenCache


@dataclass(frozen=True)
class Pretrained:
    """What pretraining leaves behind, next to the model."""

    losses: list[tuple[int, float]]
    """(step, mean cross-entropy of the masked tokens since the one before, in nats)."""
    n_steps: int
    """Optimiser steps in all."""
    seconds: float
    """Wall time of this process's part."""


def pretrain(
    start: Path,
    pairs: Dataset,
    config: FitConfig,
    mask_ratio: float,
    *,
    folder: Path,
    seed: int,
    precision: Precision = "auto",
    device: str = "cpu",
    both_orders: bool = True,
    cache: TokenCache | None = None,
    report_to: tuple[str, ...] = (),
) -> tuple[PreTrainedModel, Pretrained]:
    """Go on with a model's masked language modelling, on "[CLS] sentence1 [SEP] sentence2 [SEP]".

    Interrupted, it goes on from the last complete checkpoint in `folder` and ends with the same bytes.

    Args:
        start: A plain pretrained model with its language-modelling head.
        pairs: n pairs with `sentence1` and `sentence2`.
        config: How to train; no field empty.
        mask_ratio: Share of each pair's tokens to guess, above 0 and below 1.
        folder: Where checkpoints live.
        seed: Decides shuffling, masks and dropout.
        precision: `auto` trains under bf16 autocast where the hardware has it.
        device: Where it trains.
        both_orders: Read (a, b) and (b, a).
        cache: Token ids made earlier.
        report_to: Trackers the trainer reports to.

    Returns:
        The encoder without its language-modelling head, and the record.

    Raises:
        InputError: `start` has no language-modelling head, or its tokenizer no mask token.
    """
    started = time.monotonic()
    reader = load_cross(start, max_length=config.max_length, seed=seed, device="cpu")
    tables = [(cache or TokenCache()).pairs(reader, pairs, turned) for turned in ([False, True][: 1 + both_orders])]
    lengths = np.concatenate([table.lengths for table in tables])
    model = _load_masked(start, seed)
    _guess_masked_only(model)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable()  # type: ignore[no-untyped-call]
    batches = bucketed(lengths, config, seed)
    trainer = _MaskedTrainer(
        model=model,
        args=trainer_arguments(
            TrainingArguments,
            config,
            folder=folder,
            device=device,
            seed=seed,
            precision=precision,
            has_dev=False,
            report_to=report_to,
        ),
        train_dataset=training_rows(len(lengths), np.zeros(len(pairs), np.float32)),
        data_collator=MaskedPairsCollator(tables, _mask_token(reader.tokenizer, start), mask_ratio, seed),
    )
    trainer.batches = batches
    run_trainer(trainer, model, KeepBest(model, folder), batches, config.max_length or 0)
    losses = [(int(entry["step"]), entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    record = Pretrained(losses, trainer.state.global_step, time.monotonic() - started)
    return _encoder(start, model, seed), record


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
        """Safetensors alone, no pickled arguments."""
        self.model.save_pretrained(output_dir or str(self.args.output_dir))


def _load_masked(start: Path, seed: int) -> PreTrainedModel:
    set_seed(seed)
    try:
        model, report = AutoModelForMaskedLM.from_pretrained(start, output_loading_info=True)
    except ValueError as error:  # an architecture without masked language models
        raise InputError(_no_head(start, str(error).splitlines()[0])) from error
    if missing := report["missing_keys"]:
        raise InputError(_no_head(start, f"it lacks {', '.join(sorted(missing)[:3])}"))
    return model  # type: ignore[no-any-return]


def _no_head(start: Path, reason: str) -> str:
    return (
        f"{start} cannot be pretrained further: it is no masked language model ({reason}). Give the plain pretrained "
        "model as cross_start, or leave pretraining out"
    )


def _mask_token(tokenizer: Any, start: Path) -> Any:
    if tokenizer.mask_token_id is None:
        raise InputError(_no_head(start, "its tokenizer has no mask token"))
    return tokenizer


def _guess_masked_only(model: PreTrainedModel) -> None:
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

    model.register_forward_pre_hook(before, with_kwargs=True)
    model.base_model.register_forward_hook(after)


def _encoder(start: Path, model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """The trained encoder with all that the start has besides, such as a pooler; what it lacks comes from `seed`."""
    set_seed(seed)
    encoder: PreTrainedModel = AutoModel.from_pretrained(start)
    encoder.load_state_dict(model.base_model.state_dict(), strict=False)
    return encoder
