"""Masked language modelling over packed text: blocks of tokens of one length on disk, and the training on them."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from transformers import DataCollatorForLanguageModeling, PreTrainedModel

from transencoder import progress
from transencoder.batching import training_rows
from transencoder.configs import FitConfig, Precision
from transencoder.devices import autocast
from transencoder.errors import InputError
from transencoder.files import whole_file
from transencoder.fit.pretraining import Pretrained, guessing_masked_only, train_masked
from transencoder.fit.trainers import Session, set_dropout
from transencoder.wording import plural

_CHUNK = 1024


def pack(texts: Dataset, tokenizer: Any, block_length: int, file: Path) -> Dataset:
    """Write the texts as blocks, `[CLS] text [SEP] text [SEP] text`, cut every `block_length` tokens.

    No token is lost, and nothing is padded but the last block; every block has a word. Memory does not grow with the
    texts.

    Args:
        texts: Texts in `text`.
        tokenizer: Has tokens for the beginning and the end of a text.
        block_length: Tokens of a block, the one at its beginning included; at least 3.
        file: The Arrow file to write; it gets its name when it is complete.

    Returns:
        `input_ids`, memory-mapped, all of one length but the last row.

    Raises:
        InputError: The tokenizer finds no word in the texts.
    """
    with whole_file(file) as draft:
        _write_blocks(texts, tokenizer, block_length, draft)
        if not len(Dataset.from_file(str(draft))):
            raise InputError(f"the tokenizer finds no word in the {plural(len(texts), 'text')}; give other text")
    return Dataset.from_file(str(file))


def _write_blocks(texts: Dataset, tokenizer: Any, block_length: int, file: Path) -> None:
    schema = pa.schema([("input_ids", pa.list_(pa.int32()))])
    with (
        pa.OSFile(str(file), "wb") as sink,
        pa.ipc.new_stream(sink, schema) as writer,
        progress.task("pack", len(texts)) as advance,
    ):
        waiting: list[int] = []
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]["text"]
            waiting += _tokens(chunk, tokenizer)
            blocks = list(_blocks(waiting, tokenizer.cls_token_id, block_length - 1))
            del waiting[: len(blocks) * (block_length - 1)]
            writer.write_batch(pa.record_batch([pa.array(blocks, schema[0].type)], schema))
            advance(len(chunk))
        if len(waiting) > 1:  # more than the end of a text
            last = [[tokenizer.cls_token_id, *waiting]]
            writer.write_batch(pa.record_batch([pa.array(last, schema[0].type)], schema))


def _tokens(texts: list[str], tokenizer: Any) -> Iterator[int]:
    for ids in tokenizer(texts, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]:
        if ids:
            yield from ids
            yield tokenizer.sep_token_id


def _blocks(tokens: list[int], first: int, n_texts: int) -> Iterator[list[int]]:
    for start in range(0, len(tokens) - n_texts + 1, n_texts):
        yield [first, *tokens[start : start + n_texts]]


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
    """Return the mean cross-entropy in nats of the masked tokens of some blocks, whose masks are always the same.

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


class MaskedBlocksCollator:
    """A collator: rows of blocks -> transformers' own masked batches; the masks depend on the seed and the rows only.

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
        """Return the batch as transformers' masked language models take it; at least one token is to guess."""
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
