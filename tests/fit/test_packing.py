"""Packed blocks: no token lost, reading order, one length; and the masks of a batch."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForMaskedLM, AutoTokenizer

from transencoder.errors import InputError
from transencoder.fit import masked_loss, pack
from transencoder.fit.masked import MaskedBlocksCollator


@pytest.fixture
def tokenizer(tiny_plm):
    return AutoTokenizer.from_pretrained(tiny_plm)


@pytest.mark.parametrize("length", [3, 7, 16, 1000])
@pytest.mark.parametrize("chunk", [1, 3, 1024])
def test_blocks_hold_every_token_in_reading_order(tiny_sentences, tokenizer, tmp_path, length, chunk, monkeypatch):
    monkeypatch.setattr("transencoder.fit.masked._CHUNK", chunk)
    texts = tiny_sentences.select(range(10))
    blocks = pack(texts, tokenizer, length, tmp_path / "blocks.arrow")["input_ids"][:]
    expected = [i for text in texts["text"] for i in [*tokenizer(text)["input_ids"][1:-1], tokenizer.sep_token_id]]
    packed = [i for block in blocks for i in block[1:]]
    assert expected in (packed, [*packed, tokenizer.sep_token_id])  # a lone end is no block
    assert {block[0] for block in blocks} == {tokenizer.cls_token_id}
    assert {len(block) for block in blocks[:-1]} <= {length}
    assert 2 <= len(blocks[-1]) <= length


def test_texts_without_a_word_take_no_place(tokenizer, tmp_path):
    texts = Dataset.from_dict({"text": ["\u200b", "balo", "\u200b\u200b", "bama"]})
    assert len(pack(texts, tokenizer, 8, tmp_path / "blocks.arrow")[0]["input_ids"]) == 5
    with pytest.raises(InputError, match="finds no word in the 1 text"):
        pack(texts.select([0]), tokenizer, 8, tmp_path / "none.arrow")


def test_a_mask_that_is_written_in_the_text_is_text(tokenizer, tmp_path):
    texts = Dataset.from_dict({"text": ["balo [MASK] [SEP]"]})
    (block,) = pack(texts, tokenizer, 30, tmp_path / "blocks.arrow")["input_ids"][:]
    assert tokenizer.mask_token_id not in block
    assert block.count(tokenizer.sep_token_id) == 1


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


def test_the_loss_on_held_out_text_is_the_mean_over_its_masked_tokens(tokenizer, tiny_plm):
    model = AutoModelForMaskedLM.from_pretrained(tiny_plm)
    blocks = Dataset.from_dict({"input_ids": [[2, *range(50, 50 + n), 3] for n in (3, 9, 30, 12)]})
    options = {"batch_size": 3, "precision": "fp32"}
    found = masked_loss(model.train(), tokenizer, blocks, 0.4, **options)
    assert model.training
    collate, model = MaskedBlocksCollator(blocks, tokenizer, 0.4, seed=0), model.eval()
    losses = []
    for rows in ((0, 1, 2), (3,)):
        batch = collate([{"row": row} for row in rows])
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.detach().double()
        losses += [
            (torch.logsumexp(logits[i, j], 0) - logits[i, j, batch["labels"][i, j]]).item()
            for i, j in (batch["labels"] != -100).nonzero().tolist()
        ]
    assert found == pytest.approx(np.mean(losses), rel=1e-5)
