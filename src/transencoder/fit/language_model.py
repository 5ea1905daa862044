"""Masked language modelling over packed text, with transformers' own collator and trainer."""

import time
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import DataCollatorForLanguageModeling, PreTrainedModel

from transencoder import progress
from transencoder.batching import training_rows
from transencoder.config import FitConfig, Precision
from transencoder.fit.pretraining import Pretrained, guessing_masked_only, train_masked
from transencoder.fit.running import set_dropout
from transencoder.fit.session import Session
from transencoder.inference import autocast


class MaskedBlocksCollator:
    """Rows of blocks -> transformers' own masked batches, whose masks depend on the seed and the rows only.

    A resumed run draws the same: the collator's own random numbers would go on from elsewhere.

    Args:
        blocks: n blocks of `input_ids`.
        tokenizer: Of the blocks, with a mask.
        mask_ratio: Probability of each token to be guessed, above 0 and below 1.
        seed: With the rows, it decides the masks.
    """

    def __init__(self, blocks: Dataset, tokenizer: Any, mask_ratio: float, seed: int) -> None:
        self.blocks = blocks
        self.special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        self.mask_id = tokenizer.mask_token_id
        self.collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=mask_ratio, seed=seed)
        self.seed = seed

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """The batch as transformers' masked language models take it; at least one token is to guess."""
        rows = [example["row"] for example in examples]
        ids = self.blocks[rows]["input_ids"]
        is_special = [[int(token in self.special) for token in block] for block in ids]
        random = np.random.default_rng((self.seed, *rows))
        self.collator.generator = torch.Generator().manual_seed(int(random.integers(1 << 62)))
        batch: dict[str, torch.Tensor] = self.collator(
            [{"input_ids": block, "special_tokens_mask": mask} for block, mask in zip(ids, is_special, strict=True)]
        )
        if (batch["labels"] == -100).all():  # whose mean would be NaN
            places = [(i, j) for i, mask in enumerate(is_special) for j, special in enumerate(mask) if not special]
            i, j = places[random.integers(len(places))]
            batch["labels"][i, j], batch["input_ids"][i, j] = ids[i][j], self.mask_id
        return batch


def train_language_model(
    model: PreTrainedModel,
    tokenizer: Any,
    blocks: Dataset,
    config: FitConfig,
    mask_ratio: float,
    session: Session,
    *,
    device: str = "cpu",
) -> Pretrained:
    """Train a masked language model on packed blocks and leave its last weights in it.

    Args:
        model: With its language-modelling head, trained in place.
        tokenizer: Its tokenizer.
        blocks: n blocks of `input_ids`, see `pack`.
        config: How to train; no field empty.
        mask_ratio: Share of the tokens to guess, above 0 and below 1.
        session: How and where it runs.
        device: Where it trains.
    """
    started = time.monotonic()
    set_dropout(model, config.dropout)
    losses, n_steps = train_masked(
        model,
        MaskedBlocksCollator(blocks, tokenizer, mask_ratio, session.seed),
        training_rows(len(blocks), np.zeros(len(blocks), np.float32)),
        np.full(len(blocks), config.max_length, np.uint16),
        config,
        session,
        device=device,
    )
    return Pretrained(losses, n_steps, time.monotonic() - started)


@torch.inference_mode()
def masked_loss(
    model: PreTrainedModel, tokenizer: Any, blocks: Dataset, mask_ratio: float, *, batch_size: int, precision: Precision
) -> float:
    """Mean cross-entropy in nats of the masked tokens of some blocks, whose masks are always the same.

    Args:
        model: With its language-modelling head.
        tokenizer: Its tokenizer.
        blocks: Blocks of `input_ids`, at least one.
        mask_ratio: Share of the tokens to guess.
        batch_size: Blocks at a time.
        precision: Numbers that the model computes in.
    """
    collate = MaskedBlocksCollator(blocks, tokenizer, mask_ratio, seed=0)
    was_training, total, n_guessed = model.training, 0.0, 0
    model.eval()  # type: ignore[no-untyped-call]
    with (
        autocast(model.device, precision),
        guessing_masked_only(model),
        progress.task("held-out text", len(blocks)) as advance,
    ):
        for start in range(0, len(blocks), batch_size):
            rows = [{"row": row} for row in range(start, min(start + batch_size, len(blocks)))]
            batch = {name: values.to(model.device) for name, values in collate(rows).items()}
            n_masked = int((batch["labels"] != -100).sum())
            total += float(model(**batch).loss) * n_masked
            n_guessed += n_masked
            advance(len(rows))
    model.train(was_training)
    return total / n_guessed
