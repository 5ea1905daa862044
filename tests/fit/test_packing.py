"""Packed blocks: no token lost, reading order, one length; and the masks of a batch."""

import numpy as np
import pytest
from datasets import Dataset
from transformers import AutoTokenizer

from transencoder.fit import pack
from transencoder.fit.language_model import MaskedBlocksCollator


@pytest.fixture
def tokenizer(tiny_plm):
    return AutoTokenizer.from_pretrained(tiny_plm)


@pytest.mark.parametrize("length", [2, 7, 16, 1000])
@pytest.mark.parametrize("chunk", [1, 3, 1024])
def test_blocks_hold_every_token_in_reading_order(tiny_sentences, tokenizer, tmp_path, length, chunk, monkeypatch):
    monkeypatch.setattr("transencoder.fit.packing._CHUNK", chunk)
    texts = tiny_sentences.select(range(10))
    blocks = pack(texts, tokenizer, length, tmp_path / "blocks.arrow")["input_ids"][:]
    expected = [i for text in texts["text"] for i in [*tokenizer(text)["input_ids"][1:-1], tokenizer.sep_token_id]]
    assert [i for block in blocks for i in block[1:]] == expected
    assert {block[0] for block in blocks} == {tokenizer.cls_token_id}
    assert {len(block) for block in blocks[:-1]} <= {length}
    assert 2 <= len(blocks[-1]) <= length


def collated(tokenizer, rows, seed=0, ratio=0.3):
    blocks = Dataset.from_dict({"input_ids": [[2, *range(50, 64), 3, 70][: 5 + i] for i in range(12)]})
    return MaskedBlocksCollator(blocks, tokenizer, ratio, seed)([{"row": row} for row in rows])


def test_masks_depend_on_seed_and_rows_only(tokenizer):
    first, again = collated(tokenizer, range(12)), collated(tokenizer, range(12))
    other, moved = collated(tokenizer, range(12), seed=1), collated(tokenizer, range(1, 12))
    assert all((first[name] == again[name]).all() for name in first)
    assert not (first["labels"] == other["labels"]).all()
    assert not (first["labels"][1:] == moved["labels"]).all()


def test_special_tokens_and_padding_are_never_guessed(tokenizer):
    batch = collated(tokenizer, range(12), ratio=0.9)
    guessed = batch["labels"][batch["labels"] != -100]
    assert not np.isin(guessed.numpy(), [0, 2, 3]).any()
    assert len(guessed) > 60


def test_a_batch_always_has_something_to_guess(tokenizer):
    for row in range(12):
        assert (collated(tokenizer, [row], ratio=1e-3)["labels"] != -100).any()
