"""Training batches: pairs of like length together, read from tokens that were made once."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from torch.utils.data import BatchSampler

from transencoder.tokens import SentenceTokens, Tokens


class LengthBucketSampler(BatchSampler):
    """Batches of rows of like length, in an order that depends on seed and epoch only.

    Each epoch is a random permutation cut into windows; a window is sorted by length, cut into batches, and its batches
    are shuffled.

    Under several processes each takes every n-th batch. All must take as many, and full ones, or they wait for each
    other for ever; so the epoch is filled up with rows from its own beginning.

    Args:
        lengths: uint16 (n,), tokens of each row.
        batch_size: Rows a batch.
        window_batches: Batches a window; 1 gives plain random batches.
        seed: With the epoch, it decides the order.
        n_processes: Processes that share the batches.
    """

    def __init__(
        self, lengths: np.ndarray, batch_size: int, window_batches: int, seed: int, n_processes: int = 1
    ) -> None:
        self.lengths = lengths
        self.batch_size = batch_size
        self.window_batches = window_batches
        self.seed = seed
        self.n_processes = n_processes
        self.epoch = 0
        self.drop_last = False

    def set_epoch(self, epoch: int) -> None:
        """The trainer says which epoch comes; the same epoch gives the same batches, also after a resume."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.n_processes * math.ceil(len(self.lengths) / (self.batch_size * self.n_processes))

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng((self.seed, self.epoch))
        order = np.arange(len(self.lengths), dtype=np.int32)
        random.shuffle(order)
        if self.n_processes > 1:
            order = np.resize(order, len(self) * self.batch_size)
        window = self.batch_size * self.window_batches
        for start in range(0, len(order), window):
            rows = order[start : start + window]
            if self.window_batches > 1:
                rows = rows[np.argsort(self.lengths[rows], kind="stable")]
            batches = [rows[i : i + self.batch_size] for i in range(0, len(rows), self.batch_size)]
            for i in random.permutation(len(batches)):
                yield batches[i].tolist()


class BiCollator:
    """Rows of pairs -> the features of both sides, or of more, already padded to one width, and the labels.

    Args:
        sentences: The tokens of the pairs' distinct sentences.
        taught: float32 (distinct sentences, dim), a teacher's embeddings of them; those of all sides are then the
            labels, float32 (batch, sides, dim), or (batch, dim) where there is one side, as sentence-transformers'
            losses take them.
    """

    valid_label_columns = ("label",)

    def __init__(self, sentences: SentenceTokens, taught: np.ndarray | None = None) -> None:
        self.sentences = sentences
        self.taught = taught

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """The batch as sentence-transformers' trainer wants it: `sentence1_input_ids` and so on, and `label`."""
        rows = np.array([example["row"] for example in examples])
        index = self.sentences.index[rows]
        n_sides = index.shape[1]
        joined = self.sentences.tokens.batch(index.T.reshape(-1))
        batch: dict[str, Any] = {}
        for name, values in joined.items():
            parts = values.chunk(n_sides) if isinstance(values, torch.Tensor) else [values] * n_sides
            batch |= {f"sentence{side}_{name}": part for side, part in enumerate(parts, 1)}
        if self.taught is not None:
            return batch | {"label": torch.from_numpy(self.taught[index if n_sides > 1 else index[:, 0]])}
        return batch | {"label": _labels(examples)}


class QueryDocumentCollator:
    """Rows of pairs whose sides have prompts of their own -> the features of each side, padded to its width, labels.

    Args:
        sides: The tokens of each side's distinct sentences, `index` being int32 (n, 1).
    """

    valid_label_columns = ("label",)

    def __init__(self, sides: list[SentenceTokens]) -> None:
        self.sides = sides

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """The batch as `BiCollator` makes it, but for the padding."""
        rows = np.array([example["row"] for example in examples])
        batch: dict[str, Any] = {"label": _labels(examples)}
        for number, side in enumerate(self.sides, 1):
            features = side.tokens.batch(side.index[rows, 0])
            batch |= {f"sentence{number}_{name}": values for name, values in features.items()}
        return batch


class CrossCollator:
    """Rows of pairs -> the features of joined pairs, and the labels. Rows from n on are the pairs turned round.

    Args:
        tables: The tokens of n pairs as they stand and, for symmetric tasks, turned round.
    """

    valid_label_columns = ("label",)

    def __init__(self, tables: list[Tokens]) -> None:
        self.tables = tables

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """The batch as sentence-transformers' trainer wants it: `pair_input_ids` and so on, and `label`."""
        _, features = joined_rows(self.tables, examples)
        return {f"pair_{name}": values for name, values in features.items()} | {"label": _labels(examples)}


def training_rows(n_rows: int, targets: np.ndarray, rows: np.ndarray | None = None) -> Dataset:
    """What a trainer iterates over: `row` for the collators, and the target of its pair as `label`; 4 bytes each.

    Not `Dataset.from_dict`: it copies both columns, and hashes a pickle of them for a fingerprint that nothing reads.

    Args:
        n_rows: Rows of all tables, a multiple of the pairs.
        targets: float32 (n,), one a pair, or (n, m).
        rows: Which of them; None: all.
    """
    labels = np.concatenate([np.asarray(targets, np.float32)] * (n_rows // len(targets)))
    if rows is None:
        rows = np.arange(n_rows, dtype=np.int32)
    else:
        rows, labels = rows.astype(np.int32), labels[rows]
    column = pa.array(labels.reshape(-1))
    if labels.ndim > 1:
        column = pa.FixedSizeListArray.from_arrays(column, labels.shape[1])
    return Dataset(pa.table({"row": rows, "label": column}), fingerprint=f"rows-{len(rows)}")


def joined_rows(tables: list[Tokens], examples: list[dict[str, Any]]) -> tuple[np.ndarray, dict[str, Any]]:
    """The rows of a batch, int (batch,), and their features. Rows from n on are in the second of the tables.

    Args:
        tables: The tokens of n pairs as they stand and, perhaps, turned round.
        examples: Each with its `row`.
    """
    rows = np.array([example["row"] for example in examples])
    n_pairs = len(tables[0])
    return rows, join_tables(tables, rows // n_pairs, rows % n_pairs)


def join_tables(tables: list[Tokens], which: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
    """Features of rows from several tables in one batch, padded to the longest.

    Args:
        tables: Token tables of one tokenizer.
        which: int (batch,), the table of each row.
        rows: int (batch,), the row in its table.
    """
    parts = [(np.flatnonzero(which == i), table) for i, table in enumerate(tables)]
    batches = [(where, table.batch(rows[where])) for where, table in parts if len(where)]
    width = max(batch["input_ids"].shape[1] for _, batch in batches)
    first = tables[0]
    features: dict[str, Any] = dict(first.extras)
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        if name not in batches[0][1]:
            continue
        fill = first.pad_id if name == "input_ids" else 0
        joined = torch.full((len(rows), width), fill)
        for where, batch in batches:
            values = batch[name]
            columns = slice(width - values.shape[1], None) if first.pad_left else slice(values.shape[1])
            joined[where, columns] = values
        features[name] = joined
    return features


def _labels(examples: list[dict[str, Any]]) -> torch.Tensor:
    return torch.tensor([example["label"] for example in examples], dtype=torch.float32)
