"""Training batches: pairs of similar length together, read from cached tokens."""

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
    """Sampler of batches of rows with similar length, in an order that depends on seed and epoch only.

    Each epoch is a random permutation cut into windows; a window is sorted by length, cut into batches, and its batches
    are shuffled. Rows of one group and length stay together, but for the ends of batches and windows, so that a text
    that they share is encoded once a batch.

    With several processes, each takes every n-th batch. All need the same number of batches, and full ones, or they
    wait for each other forever; so the epoch is filled up with rows from its own beginning.

    Args:
        lengths: Number of tokens of each row, uint16 (n,).
        batch_size: Rows per batch.
        window_batches: Batches per window; 1 gives plain random batches.
        seed: Seed that, with the epoch, determines the order.
        n_processes: Number of processes that share the batches.
        groups: Group of each row, a number from 0, int (n,); ignored if `window_batches` is 1. None: no groups.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        batch_size: int,
        window_batches: int,
        seed: int,
        n_processes: int = 1,
        groups: np.ndarray | None = None,
    ) -> None:
        self.lengths = lengths
        self.batch_size = batch_size
        self.window_batches = window_batches
        self.seed = seed
        self.n_processes = n_processes
        self.groups = groups
        self.epoch = 0
        self.drop_last = False

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which the trainer does; the same epoch gives the same batches, also after a resume."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.n_processes * math.ceil(len(self.lengths) / (self.batch_size * self.n_processes))

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng((self.seed, self.epoch))
        order = np.arange(len(self.lengths), dtype=np.int32)
        random.shuffle(order)
        if self.groups is not None and self.window_batches > 1:
            places = random.permutation(np.arange(self.groups.max(initial=-1) + 1, dtype=np.int32))
            order = order[np.argsort(places[self.groups[order]], kind="stable")]
            del places
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
    """Collator that turns rows of pairs into the features of both sides, or of more, and the labels.

    Args:
        sides: Tokens of the distinct sentences: one entry for all sides, which are then padded to one width, or one
            entry per side.
        teacher_embeddings: Embeddings of the sentences of all sides, float32 (distinct sentences, dim). A row's label
            then consists of its embeddings: float32 (batch, sides, dim), or (batch, dim) if there is one side, as
            sentence-transformers' losses take them.
    """

    valid_label_columns = ("label",)

    def __init__(self, sides: list[SentenceTokens], teacher_embeddings: np.ndarray | None = None) -> None:
        self.sides = sides
        self.teacher_embeddings = teacher_embeddings
        self.token_ids = [side.tokens.ids for side in sides]

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Build a batch as sentence-transformers' trainer takes it: `sentence1_input_ids` and so on, and `label`."""
        rows = np.array([example["row"] for example in examples])
        batch: dict[str, Any] = {}
        n_before = 0
        for sentences in self.sides:
            index = sentences.index[rows]
            n_sides = index.shape[1]
            for name, values in sentences.tokens.batch(index.T.reshape(-1)).items():
                parts = values.chunk(n_sides) if isinstance(values, torch.Tensor) else [values] * n_sides
                batch |= {f"sentence{number}_{name}": part for number, part in enumerate(parts, n_before + 1)}
            n_before += n_sides
        if self.teacher_embeddings is None:
            return batch | {"label": _labels(examples)}
        index = self.sides[0].index[rows]
        return batch | {
            "label": torch.from_numpy(self.teacher_embeddings[index if index.shape[1] > 1 else index[:, 0]])
        }


class CrossCollator:
    """Collator that turns rows into the features of joined pairs, and the labels. Rows from n on are the swapped pairs.

    Args:
        tables: Tokens of n pairs in their own order and, for symmetric tasks, swapped.
    """

    valid_label_columns = ("label",)

    def __init__(self, tables: list[Tokens]) -> None:
        self.tables = tables
        self.token_ids = [table.ids for table in tables]

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Build a batch as sentence-transformers' trainer takes it: `pair_input_ids` and so on, and `label`."""
        _, features = joined_rows(self.tables, examples)
        return {f"pair_{name}": values for name, values in features.items()} | {"label": _labels(examples)}


def training_rows(n_rows: int, targets: np.ndarray, rows: np.ndarray | None = None) -> Dataset:
    """Return the rows a trainer iterates over: `row` for the collators, its pair's target as `label`, 4 bytes each.

    `Dataset.from_dict` is not used: it copies both columns, and hashes a pickle of them for a fingerprint that nothing
    reads.

    Args:
        n_rows: Number of rows of all tables, a multiple of the number of pairs.
        targets: Targets, float32 (n,), one per pair, or (n, m).
        rows: Rows to return; None: all.
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
    """Return the rows of a batch, int (batch,), and their features, padded to the longest.

    Args:
        tables: Tokens of n pairs in their own order and, optionally, swapped: rows from n on are in the second table.
        examples: Examples of the batch, each with its `row`.
    """
    rows = np.array([example["row"] for example in examples])
    which, own = np.divmod(rows, len(tables[0]))
    parts = [(table, np.flatnonzero(which == i)) for i, table in enumerate(tables) if i in which]
    width = max(table.width(own[where]) for table, where in parts)
    batches = [table.batch(own[where], width) for table, where in parts]
    order = np.argsort(np.concatenate([where for _, where in parts]))
    features = {
        name: torch.cat([batch[name] for batch in batches])[order] if isinstance(values, torch.Tensor) else values
        for name, values in batches[0].items()
    }
    return rows, features


def _labels(examples: list[dict[str, Any]]) -> torch.Tensor:
    return torch.tensor([example["label"] for example in examples], dtype=torch.float32)
