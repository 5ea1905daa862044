"""Texts in reading order -> blocks of tokens of one length, on disk: what a language model is pretrained on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset

from transencoder import progress
from transencoder.errors import InputError
from transencoder.files import whole_file
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
