"""Cache of tokenised texts: flat token ids on disk, memory-mapped, read back as padded batches.

Cost: one pass of the tokenizer for each text, tokenizer and maximum length. Disk: 5 bytes per token and 8 bytes per
row. Memory: only the lengths grow with the rows, by 2 bytes per row.
"""

import hashlib
import json
import logging
import re
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Transformer

from transencoder import progress
from transencoder.cutting import Texts, cut
from transencoder.files import allocate, remove_folder, scratch_folder, whole_folder
from transencoder.pairs import fingerprint, text_hashes
from transencoder.runs.files import (
    DamagedError,
    check_files,
    read_checked_json,
    sync_files,
    write_checked_json,
)

logger = logging.getLogger(__name__)

_CHUNK = 1024
_AS_LISTS: Any = {"text": {"padding": False}, "common": {"return_tensors": None}}
"""Options that return lists, not tensors: pairs take half the time, sentences the same or a third less."""
_PARTITIONS = 64
_BLOCK = 1 << 18
_FIRSTS = ".firsts.bin"
_ABOUT = "about.json"
_SIDE = re.compile(r"sentence\d+")

Encoder = SentenceTransformer | CrossEncoder


@dataclass(frozen=True)
class Tokens:
    """Token ids of n texts (or pairs of texts), as the model's own `preprocess` returns them."""

    ids: np.ndarray
    """Token ids of all rows, one after the other, special tokens included: int32 (n_tokens,)."""
    types: np.ndarray
    """Token type ids, uint8 (n_tokens,); empty if the model has none."""
    offsets: np.ndarray
    """Bounds of the rows, int64 (n + 1,): row i is ids[offsets[i]:offsets[i + 1]]."""
    pad_id: int
    """Id of the padding token."""
    pad_left: bool
    """Whether rows are padded on the left."""
    extras: dict[str, Any]
    """Features that are the same for every batch, such as the modality."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each row, uint16 (n,), cast block by block to avoid an int64 copy of all rows."""
        lengths: np.ndarray = np.subtract(self.offsets[1:], self.offsets[:-1], dtype=np.uint16, casting="unsafe")
        return lengths

    def widths(self, rows: slice) -> np.ndarray:
        """Return the number of tokens of each row in a slice, int64."""
        return np.diff(self.offsets[rows.start : rows.stop + 1])

    def rows(self, rows: slice) -> "Tokens":
        """Return the tokens of the rows in a slice."""
        return replace(self, offsets=self.offsets[rows.start : rows.stop + 1])

    def width(self, rows: np.ndarray) -> int:
        """Return the number of tokens of the longest of the given rows."""
        return int((self.offsets[rows + 1] - self.offsets[rows]).max())

    def batch(self, rows: np.ndarray, width: int | None = None) -> dict[str, Any]:
        """Return the padded features of the given rows.

        Args:
            rows: Row numbers, int (batch,).
            width: Number of tokens to pad to; None: that of the longest of these rows.

        Returns:
            `input_ids`, `attention_mask` and, where the model has them, `token_type_ids`: int64 (batch, width).
        """
        starts, ends = self.offsets[rows][:, None], self.offsets[rows + 1][:, None]
        width = width or self.width(rows)
        where = (ends - width if self.pad_left else starts) + np.arange(width)
        mask = (starts <= where) & (where < ends)
        where = np.where(mask, where, starts)
        features: dict[str, Any] = {
            "input_ids": torch.from_numpy(np.where(mask, self.ids[where], self.pad_id).astype(np.int64)),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
        }
        if len(self.types):
            features["token_type_ids"] = torch.from_numpy(np.where(mask, self.types[where], 0).astype(np.int64))
        return features | self.extras


@dataclass(frozen=True)
class SentenceTokens:
    """Tokens of the distinct sentences of n rows with one or more sides, and the sentences of each row."""

    tokens: Tokens
    """Tokens of the distinct sentences, in order of first appearance."""
    index: np.ndarray
    """Rows of `tokens` for sentence1, sentence2 and so on: int32 (n, sides)."""

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of the longest side of each row, uint16 (n,)."""
        longest: np.ndarray = self.tokens.lengths[self.index].max(axis=1)
        return longest

    @property
    def longest(self) -> np.ndarray:
        """The longest sentence of each row, the first of equally long ones: int32 (n,)."""
        side = self.tokens.lengths[self.index].argmax(axis=1, keepdims=True)
        longest: np.ndarray = np.take_along_axis(self.index, side, axis=1)[:, 0]
        return longest


class TokenCache:
    """Cache of tokens by content: equal texts, tokenizer and length are tokenised once, across stages and runs.

    Args:
        folder: Folder for the arrays. None: a temporary folder that is removed with the cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        scratch = ExitStack()
        self.folder = scratch.enter_context(scratch_folder()) if folder is None else folder
        self._fingerprints: dict[str, str] = {}
        self._checked: set[Path] = set()
        weakref.finalize(self, scratch.close)

    def sentences(self, model: SentenceTransformer, pairs: Dataset, prompt: str | None = None) -> SentenceTokens:
        """Tokenise the distinct sentences of `pairs`, which may have more than two sides, as `model` reads them."""

        def build(folder: Path) -> None:
            firsts = _index_sentences(pairs, folder)
            texts = (_sentences_at(pairs, firsts[i : i + _CHUNK]) for i in range(0, len(firsts), _CHUNK))
            _write_tokens(model, texts, len(firsts), prompt, folder)
            (folder / _FIRSTS).unlink()

        folder = self._folder("sentences", model, pairs, prompt, build)
        index = np.load(folder / "index.npy", mmap_mode="r")
        return SentenceTokens(_open_tokens(folder), index)

    def sides(
        self, model: SentenceTransformer, pairs: Dataset, prompt: str | None, document_prompt: str | None
    ) -> list[SentenceTokens]:
        """Tokenise the sentences of all sides together or, if `sentence2` has its own prompt, each side separately."""
        if document_prompt == prompt:
            return [self.sentences(model, pairs, prompt)]
        prompts = {"sentence2": document_prompt}
        return [
            self.sentences(model, pairs.select_columns([side]), prompts.get(side, prompt)) for side in _sides(pairs)
        ]

    def pairs(self, model: CrossEncoder, pairs: Dataset, swapped: bool = False, prompt: str | None = None) -> Tokens:
        """Tokenise each pair as one input, `[CLS] sentence1 [SEP] sentence2 [SEP]`; `swapped` reverses the order."""
        columns = ("sentence2", "sentence1") if swapped else ("sentence1", "sentence2")

        def build(folder: Path) -> None:
            batches = (pairs[i : i + _CHUNK] for i in range(0, len(pairs), _CHUNK))
            texts = (list(zip(batch[columns[0]], batch[columns[1]], strict=True)) for batch in batches)
            _write_tokens(model, texts, len(pairs), prompt, folder)

        return _open_tokens(self._folder(f"pairs-{columns[0]}", model, pairs, prompt, build))

    def _folder(self, kind: str, model: Encoder, pairs: Dataset, prompt: str | None, build: Any) -> Path:
        what = json.dumps([kind, self._fingerprint(pairs), _reader(model), prompt])
        folder = self.folder / f"{kind}-{hashlib.sha256(what.encode()).hexdigest()[:20]}"
        if folder not in self._checked and not _is_whole(folder):
            try:
                with whole_folder(folder) as draft:
                    build(draft)
            except OSError:
                if not folder.exists():  # if it exists, another rank was quicker
                    raise
        self._checked.add(folder)
        return folder

    def _fingerprint(self, pairs: Dataset) -> str:
        """Return the fingerprint of the texts' content, computed once for each fingerprint that `datasets` gives."""
        known = pairs._fingerprint
        if known not in self._fingerprints:
            self._fingerprints[known] = fingerprint(pairs.select_columns(_sides(pairs)))
        return self._fingerprints[known]


def _is_whole(folder: Path) -> bool:
    """Check whether the tokens exist and are as they were written; remove damaged ones with a warning."""
    if not folder.exists():
        return False
    try:
        check_files(folder, read_checked_json(folder / _ABOUT)["files"])
        return True
    except (FileNotFoundError, DamagedError) as error:
        logger.warning("tokens are damaged, their texts are tokenised again: %s", error)
    remove_folder(folder)
    return False


def inverse_document_frequencies(tokens: Tokens) -> np.ndarray:
    """Return log((N + 1) / (n + 1)) for each token id in n of N texts, float32 (n_ids,); 0 if all texts have it.

    Cost: one pass over the tokens, and 12 bytes for each id up to the highest.
    """
    n_ids = 1 + int(tokens.ids.max(initial=tokens.pad_id))
    n_with = np.zeros(n_ids, np.int64)
    for i in range(0, len(tokens), _CHUNK):
        offsets = tokens.offsets[i : i + _CHUNK + 1]
        ids = tokens.ids[offsets[0] : offsets[-1]].astype(np.int64)
        distinct = np.unique(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * n_ids + ids)
        n_with += np.bincount(distinct % n_ids, minlength=n_ids)
    frequencies: np.ndarray = np.log((len(tokens) + 1) / (n_with + 1)).astype(np.float32)
    return frequencies


def _sides(pairs: Dataset) -> list[str]:
    """Return `sentence1`, `sentence2` and so on, in this order."""
    return sorted((name for name in pairs.column_names if _SIDE.fullmatch(name)), key=lambda name: int(name[8:]))


def _reader(model: Encoder) -> list[Any]:
    """Return everything that determines how `model` turns text into ids."""
    tokenizer = model.tokenizer
    is_fast = tokenizer.is_fast
    return [
        type(model).__name__,
        _digest_of_fast(tokenizer.backend_tokenizer.to_str()) if is_fast else _digest(tokenizer.get_vocab()),
        model.max_seq_length,
        tokenizer.padding_side,
        tokenizer.truncation_side,
        list(tokenizer.model_input_names),
    ]


@lru_cache(maxsize=8)  # takes a tenth of a second for 30,000 words, and each evaluation calls it
def _digest_of_fast(serialised: str) -> str:
    # Without the truncation and padding of the last call, which a tokenizer remembers: used or new, it reads the same.
    return _digest(json.loads(serialised) | {"truncation": None, "padding": None})


def _digest(table: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def _write_tokens(model: Encoder, texts: Iterator[Texts], total: int, prompt: str | None, folder: Path) -> None:
    offsets = allocate(folder / "offsets.npy", np.int64, (total + 1,))
    row = 0
    extras: dict[str, Any] = {}
    with (
        (folder / "ids.bin").open("wb") as ids,
        (folder / "types.bin").open("wb") as types,
        padded(model),
        progress.task("tokenise", total) as advance,
    ):
        for chunk in texts:
            read = cut(chunk, model.tokenizer, model.max_seq_length)
            features = model.preprocess(read, prompt=prompt, processing_kwargs=_AS_LISTS)
            found = features["input_ids"]
            ids.write(np.concatenate(found).astype(np.int32).tobytes())
            if "token_type_ids" in features:
                types.write(np.concatenate(features["token_type_ids"]).astype(np.uint8).tobytes())
            offsets[row + 1 : row + 1 + len(chunk)] = offsets[row] + np.cumsum([len(each) for each in found])
            row += len(chunk)
            extras = {name: value for name, value in features.items() if not isinstance(value, list)}
            advance(len(chunk))
    offsets.flush()
    pad_id, pad_left = model.tokenizer.pad_token_id or 0, model.tokenizer.padding_side == "left"
    files = sync_files(folder, sorted(path.name for path in folder.iterdir() if path.name != _FIRSTS))
    about = {"format": 2, "pad_id": pad_id, "pad_left": pad_left, "extras": extras, "files": files}
    write_checked_json(folder / _ABOUT, about)


@contextmanager
def padded(model: Encoder) -> Iterator[None]:
    """Make a model prepare texts as rows, even if its attention could take them concatenated, without padding."""
    first: Any = model[0]
    flattens = isinstance(first, Transformer) and first.can_flatten_inputs
    if flattens:
        first.can_flatten_inputs = False
    try:
        yield
    finally:
        if flattens:
            first.can_flatten_inputs = True


def _open_tokens(folder: Path) -> Tokens:
    about = read_checked_json(folder / _ABOUT)
    return Tokens(
        ids=_memory_map(folder / "ids.bin", np.int32),
        types=_memory_map(folder / "types.bin", np.uint8),
        offsets=np.load(folder / "offsets.npy", mmap_mode="r"),
        pad_id=about["pad_id"],
        pad_left=about["pad_left"],
        extras=about["extras"],
    )


def _memory_map(path: Path, dtype: Any) -> np.ndarray:
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)


def _index_sentences(pairs: Dataset, folder: Path) -> np.ndarray:
    """Index the distinct sentences by first appearance, and write index.npy, int32 (n, sides).

    Sentences are compared by 64-bit hashes (the probability that two of 4 million collide is 4e-7), one partition of
    the hash space at a time, so that memory does not grow with the pairs.

    Returns:
        Position of each distinct sentence's first appearance, sides * row + side: int64 (n_distinct,), memory-mapped.
    """
    sides = _sides(pairs)
    index = allocate(folder / "index.npy", np.int32, (len(pairs), len(sides)))
    flat = index.reshape(-1)
    blocks = [slice(i, min(i + _BLOCK, len(flat))) for i in range(0, len(flat), _BLOCK)]
    n_distinct = 0
    with scratch_folder(folder) as scratch, (folder / _FIRSTS).open("wb") as found:
        hashes = allocate(scratch / "hashes.npy", np.uint64, index.shape)
        for i in range(0, len(pairs), _CHUNK):
            batch = pairs[i : i + _CHUNK]
            hashes[i : i + _CHUNK] = np.stack([text_hashes(batch[side]) for side in sides], axis=1)
        first = _first_positions(hashes.reshape(-1), blocks, scratch / "first.npy")
        numbers = allocate(scratch / "numbers.npy", np.int32, flat.shape)
        for block in blocks:
            positions = np.arange(block.start, block.stop)
            is_first = first[block] == positions
            numbers[block] = n_distinct + np.cumsum(is_first) - 1
            flat[block] = numbers[first[block]]
            found.write(positions[is_first].tobytes())
            n_distinct += int(is_first.sum())
        del hashes, first, numbers  # NFS cannot remove files that are mapped
    return _memory_map(folder / _FIRSTS, np.int64)


def _first_positions(hashes: np.ndarray, blocks: list[slice], path: Path) -> np.ndarray:
    """Return the position of the first appearance of each hash, (n,): int64 (n,), memory-mapped."""
    first = allocate(path, np.int64, hashes.shape)
    for partition in range(_PARTITIONS if blocks else 0):
        where = np.concatenate(
            [block.start + np.flatnonzero(hashes[block] % _PARTITIONS == partition) for block in blocks]
        )
        _, firsts, inverse = np.unique(hashes[where], return_index=True, return_inverse=True)
        first[where] = where[firsts][inverse]
    return first


def _sentences_at(pairs: Dataset, positions: np.ndarray) -> list[str]:
    sides = _sides(pairs)
    rows, which = np.divmod(positions, len(sides))
    batch = pairs[rows.tolist()]
    return [batch[sides[side]][i] for i, side in enumerate(which)]
