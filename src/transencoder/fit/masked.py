"""Masked language modelling on pairs, and on packed text: blocks of tokens of equal length on disk.

On pairs, a plain pretrained model learns to attend from one sentence to the other. BERT-like models learned this when
they were pretrained on two segments. A model pretrained on single texts cannot compare two sentences as a
cross-encoder, and pseudo-labels alone do not teach it. More pretraining on a task's own unlabelled text is
task-adaptive pretraining (Gururangan et al., ACL 2020).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from torch import nn
from torch.utils.data import DataLoader
from transformers import DataCollatorForLanguageModeling, PreTrainedModel, Trainer, TrainingArguments

from transencoder import progress
from transencoder.batching import LengthBucketSampler, joined_rows, training_rows
from transencoder.checkpoints import KeepBest
from transencoder.configs import FitConfig, Precision
from transencoder.devices import autocast
from transencoder.encoders import load_cross, load_masked
from transencoder.errors import InputError, plural
from transencoder.files import whole_file
from transencoder.fit.trainers import Session, pair_tables, run_trainer, set_dropout, trainer_arguments
from transencoder.losses.masked_words import replace_chosen
from transencoder.tokens import TokenCache, Tokens

_SHOWN_STEPS = 100
"""Number of steps whose losses are recorded as one mean; in short runs a tenth of all steps."""

_CHUNK = 1024


@dataclass(frozen=True)
class Pretrained:
    """Record of a pretraining, besides the model."""

    losses: list[tuple[int, float]]
    """(step, mean cross-entropy of the masked tokens in nats, over the steps since the entry before: at most 100)."""
    n_steps: int
    """Total number of optimiser steps."""
    seconds: float
    """Wall time of the training in this process; interrupted attempts before it do not count."""


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
    """Continue a model's masked language modelling on "[CLS] sentence1 [SEP] sentence2 [SEP]".

    Args:
        start: A plain pretrained model with its language-modelling head and a mask token; others are refused.
        pairs: n pairs with `sentence1` and `sentence2`.
        config: Training settings; no required field may be None.
        mask_ratio: Share of each pair's tokens to predict, above 0 and below 1.
        session: How and where the training runs.
        device: Device to train on.
        both_orders: Train on (a, b) and (b, a).

    Returns:
        The encoder without its language-modelling head, and the record.
    """
    try:
        model, tokenizer = load_masked(start, seed=session.seed)
    except InputError as error:
        raise InputError(f"{error} as cross_start, or leave pretraining out") from error
    reader = load_cross(start, max_length=config.max_length, device="cpu")
    tables = pair_tables(session.cache or TokenCache(), reader, pairs, both_orders)
    n_vocabulary = min(len(tokenizer), model.config.vocab_size)
    collator = MaskedPairsCollator(tables, tokenizer, n_vocabulary, mask_ratio, session.seed)
    lengths = np.concatenate([table.lengths for table in tables])
    record = _train(model, collator, lengths, config, session, device)
    return model.base_model, record  # type: ignore[return-value]


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
    """Train a masked language model on packed blocks, in place, and keep its last weights; otherwise as `pretrain`."""
    set_dropout(model, config.dropout)
    collator = MaskedBlocksCollator(blocks, tokenizer, mask_ratio, session.seed)
    return _train(model, collator, np.full(len(blocks), config.max_length, np.uint16), config, session, device)


def _train(
    model: PreTrainedModel, collator: Any, lengths: np.ndarray, config: FitConfig, session: Session, device: str
) -> Pretrained:
    """Train on a collator's batches. `lengths` are the tokens of each row; the same rows always get the same masks."""
    started = time.monotonic()
    arguments = trainer_arguments(
        TrainingArguments,
        config,
        session,
        device=device,
        has_dev=False,
        logging_steps=1,  # a resumed run loses the losses since the last one logged
    )
    arguments.gradient_checkpointing = config.gradient_checkpointing
    rows = training_rows(len(lengths), np.zeros(len(lengths), np.float32))
    with guessing_masked_only(model):
        trainer = _MaskedTrainer(model=model, args=arguments, train_dataset=rows, data_collator=collator)
        trainer.model_accepts_loss_kwargs = False  # the losses here are means: the trainer must divide them
        run_trainer(trainer, KeepBest(model, session.folder), lengths, config, session)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return Pretrained(_means(losses), trainer.state.global_step, time.monotonic() - started)


class _MaskedTrainer(Trainer):
    """transformers' plain trainer on length-bucketed batches."""

    model: PreTrainedModel
    batches: LengthBucketSampler

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return a loader of the bucketed batches, as sentence-transformers' trainers do."""
        self.accelerator.even_batches = False
        loader: DataLoader[Any] = DataLoader(
            self.train_dataset,  # type: ignore[arg-type]
            batch_sampler=self.batches,
            collate_fn=self.data_collator,
            pin_memory=self.args.dataloader_pin_memory,
        )
        return self.accelerator.prepare(loader)  # type: ignore[no-any-return]

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Save safetensors under the model's own names, which resuming reads, and no pickled arguments."""
        self.model.save_pretrained(output_dir or str(self.args.output_dir), save_original_format=False)


@contextmanager
def guessing_masked_only(model: PreTrainedModel) -> Iterator[None]:
    """Apply the language-modelling head to masked positions only: on all of them it costs more than a small encoder.

    The labels, int (batch, longest) with -100 where nothing is predicted, become (1, n_masked).
    """
    is_masked: Any = None

    def before(_: nn.Module, args: tuple[Any, ...], features: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        nonlocal is_masked
        is_masked = features["labels"] != -100
        return args, features | {"labels": features["labels"][is_masked][None]}

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state[is_masked][None]
        return output

    with model.register_forward_pre_hook(before, with_kwargs=True), model.base_model.register_forward_hook(after):
        yield


def _means(losses: list[float]) -> list[tuple[int, float]]:
    size = min(_SHOWN_STEPS, max(1, len(losses) // 10))
    parts = [losses[i : i + size] for i in range(0, len(losses), size)]
    return [(i * size + len(part), round(sum(part) / len(part), 4)) for i, part in enumerate(parts)]


class MaskedPairsCollator:
    """A collator that joins pairs and masks some of their tokens. Rows from n on are pairs in swapped order.

    A share of each row's tokens, at least one, is chosen for prediction and replaced by `replace_chosen` (Devlin et
    al., NAACL 2019, section 3.1 and appendix A.1). Special tokens and unknown words are left alone. The masks depend on
    the seed and the batch's rows only, so a resumed run draws the same.

    Args:
        tables: Tokens of n pairs and, for symmetric tasks, of the same pairs in swapped order.
        tokenizer: Provides the ids of the mask and of the special tokens.
        n_vocabulary: Number of tokens that the model knows.
        mask_ratio: Share of a row's tokens to predict.
        seed: Seed of the masks, together with the rows.
    """

    def __init__(self, tables: list[Tokens], tokenizer: Any, n_vocabulary: int, mask_ratio: float, seed: int) -> None:
        self.tables = tables
        self.mask_id = tokenizer.mask_token_id
        self.special_ids = np.array(tokenizer.all_special_ids)
        self.n_vocabulary = n_vocabulary
        self.mask_ratio = mask_ratio
        self.seed = seed

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Return the batch as transformers' masked language models take it: `input_ids`, `labels` and so on."""
        rows, features = joined_rows(self.tables, examples)
        features = {name: values for name, values in features.items() if isinstance(values, torch.Tensor)}
        random = np.random.default_rng((self.seed, *rows))
        ids, is_text = features["input_ids"], features["attention_mask"].numpy() == 1
        is_chosen = torch.from_numpy(self._choose(ids.numpy(), is_text, random))
        fates, anything = random.random(ids.shape), random.integers(self.n_vocabulary, size=ids.shape)
        masked = replace_chosen(ids, is_chosen, torch.from_numpy(fates), torch.from_numpy(anything), self.mask_id)
        return features | {"input_ids": masked, "labels": ids.masked_fill(~is_chosen, -100)}

    def _choose(self, ids: np.ndarray, is_text: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Choose tokens to predict, bool (batch, longest), at least one: without any the loss would be NaN."""
        may_be = is_text & ~np.isin(ids, self.special_ids)
        if not may_be.any():
            may_be = is_text
        n_words = may_be.sum(1)
        n_chosen = np.where(n_words > 0, np.maximum(1, np.rint(self.mask_ratio * n_words)), 0)
        ranks = np.where(may_be, random.random(ids.shape), 1.0).argsort(1).argsort(1)
        is_chosen: np.ndarray = ranks < n_chosen[:, None]
        return is_chosen


class MaskedBlocksCollator:
    """A collator that masks blocks with transformers' own collator. The masks depend on the seed and the rows only.

    So a resumed run draws the same; the random numbers of transformers' collator would depend on the batches before.
    """

    def __init__(self, blocks: Dataset, tokenizer: Any, mask_ratio: float, seed: int) -> None:
        self.blocks = blocks
        self.special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        self.mask_id = tokenizer.mask_token_id
        self.collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=mask_ratio)
        self.seed = seed

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Return the batch as transformers' masked language models take it, with at least one token to predict."""
        rows = [example["row"] for example in examples]
        ids = self.blocks[rows]["input_ids"]
        is_special = [[int(token in self.special) for token in block] for block in ids]
        random = np.random.default_rng((self.seed, *rows))
        # The collator gets no seed: with one, transformers 5.24 makes a new generator in each process.
        self.collator.generator = torch.Generator().manual_seed(int(random.integers(1 << 62)))
        batch: dict[str, torch.Tensor] = self.collator(
            [{"input_ids": block, "special_tokens_mask": mask} for block, mask in zip(ids, is_special, strict=True)]
        )
        if (batch["labels"] == -100).all():  # the mean over none would be NaN
            places = [(i, j) for i, mask in enumerate(is_special) for j, special in enumerate(mask) if not special]
            i, j = places[random.integers(len(places))]
            batch["labels"][i, j], batch["input_ids"][i, j] = ids[i][j], self.mask_id
        return batch


def pack(texts: Dataset, tokenizer: Any, block_length: int, file: Path) -> Dataset:
    """Write the texts to a file as blocks, `[CLS] text [SEP] text [SEP] text`, cut every `block_length` tokens.

    No token is lost, only the last block needs padding, and every block has a word. Memory does not grow with the
    number of texts.

    Args:
        texts: Texts in `text`.
        tokenizer: A tokenizer with tokens for the beginning and the end of a text.
        block_length: Tokens per block, including the one at its beginning; at least 3.
        file: The Arrow file to write; it gets its name when it is complete.

    Returns:
        `input_ids`, memory-mapped; all rows have the same length except the last.
    """
    schema = pa.schema([("input_ids", pa.list_(pa.int32()))])
    with whole_file(file) as draft:
        with pa.OSFile(str(draft), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for blocks in _blocks(texts, tokenizer, block_length):
                writer.write_batch(pa.record_batch([pa.array(blocks, schema[0].type)], schema))
        if not len(Dataset.from_file(str(draft))):
            raise InputError(f"the tokenizer finds no word in the {plural(len(texts), 'text')}; give other text")
    return Dataset.from_file(str(file))


def _blocks(texts: Dataset, tokenizer: Any, block_length: int) -> Iterator[list[list[int]]]:
    """Yield the blocks of each chunk of texts; tokens left over from a chunk go to the next."""
    first, size = tokenizer.cls_token_id, block_length - 1
    waiting: list[int] = []
    for rows in progress.blocks("pack", len(texts), _CHUNK):
        chunk = texts[rows]["text"]
        tokens = tokenizer(chunk, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]
        for ids in filter(None, tokens):
            waiting += [*ids, tokenizer.sep_token_id]
        n_whole = len(waiting) // size * size
        yield [[first, *waiting[i : i + size]] for i in range(0, n_whole, size)]
        del waiting[:n_whole]
    if len(waiting) > 1:  # more than the end of a text
        yield [[first, *waiting]]


@torch.inference_mode()
def masked_loss(
    model: PreTrainedModel, tokenizer: Any, blocks: Dataset, mask_ratio: float, *, batch_size: int, precision: Precision
) -> float:
    """Return the mean cross-entropy in nats of the masked tokens of some blocks. Their masks are the same each time."""
    collate = MaskedBlocksCollator(blocks, tokenizer, mask_ratio, seed=0)
    was_training, total, n_guessed = model.training, 0.0, 0
    model.eval()  # type: ignore[no-untyped-call]
    with autocast(model.device, precision), guessing_masked_only(model):
        for block in progress.blocks("held-out text", len(blocks), batch_size):
            rows = [{"row": row} for row in range(block.start, block.stop)]
            batch = {name: values.to(model.device) for name, values in collate(rows).items()}
            n_masked = int((batch["labels"] != -100).sum())
            total += float(model(**batch).loss) * n_masked
            n_guessed += n_masked
    model.train(was_training)
    return total / n_guessed
