"""Masked language modelling over pairs and packed text: what is masked and seen, what is kept, and that it resumes."""

import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer

from tests.fit.fitting import Stopped, same
from transencoder.checkpoints import KeepBest
from transencoder.configs import FitConfig
from transencoder.encoders import load_cross
from transencoder.errors import InputError
from transencoder.fit import Session, masked_loss, pack, pretrain
from transencoder.fit.masked import MaskedBlocksCollator, MaskedPairsCollator, guessing_masked_only

CONFIG = FitConfig(
    learning_rate=1e-3, batch_size=16, epochs=2, max_length=24, warmup_ratio=0.1, eval_steps=3, checkpoint_steps=3
)


@pytest.fixture(scope="module")
def mixed_pairs(tiny_pairs):
    """The tiny pairs, the second text of every other one cut to its first word: batches have padding."""
    return tiny_pairs.map(
        lambda pair, row: {"sentence2": pair["sentence2"].split()[0]} if row % 2 else {}, with_indices=True
    )


@pytest.fixture
def collator(tiny_plm, mixed_pairs, cache):
    """Makes a collator over pairs in both orders."""

    def make(pairs=mixed_pairs, mask_ratio=0.25, seed=1, side="right"):
        reader = load_cross(Path(tiny_plm), max_length=24, device="cpu")
        reader.tokenizer.padding_side = side
        tables = [cache.pairs(reader, pairs, turned) for turned in (False, True)]
        return MaskedPairsCollator(tables, reader.tokenizer, len(reader.tokenizer), mask_ratio, seed)

    return make


@pytest.fixture
def tokenizer(tiny_plm):
    return AutoTokenizer.from_pretrained(tiny_plm)


@pytest.fixture
def pretrain_tiny(tiny_plm, tiny_pairs, cache, tmp_path):
    def run(start=tiny_plm, *, folder="checkpoints", pairs=None, precision="fp32", **changes):
        pairs = tiny_pairs.select(range(64)) if pairs is None else pairs
        session = Session(folder=tmp_path / folder, seed=1, precision=precision, cache=cache)
        return pretrain(Path(start), pairs, replace(CONFIG, **changes), 0.25, session)

    return run


def batch_of(collator, rows):
    return collator([{"row": row} for row in rows])


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_share_of_each_rows_tokens_is_to_guess_and_no_special_one(collator, tokenizer, side):
    batch = batch_of(collator(side=side), range(400))
    assert (batch["attention_mask"] == 0).any()
    labels, is_text = batch["labels"], batch["attention_mask"] == 1
    to_guess = labels != -100
    assert not torch.isin(labels[to_guess], torch.tensor(tokenizer.all_special_ids)).any()
    assert not (to_guess & ~is_text).any()
    n_words = is_text.sum(1) - 3  # [CLS] and two [SEP]
    assert np.array_equal(to_guess.sum(1).numpy(), np.maximum(1, np.rint(0.25 * n_words.numpy())))


def test_eight_tenths_are_masked_one_tenth_is_anything_one_tenth_stays(collator, tokenizer):
    batches = [batch_of(collator(seed=seed), range(400)) for seed in range(10)]
    read = torch.cat([batch["input_ids"][batch["labels"] != -100] for batch in batches])
    truth = torch.cat([batch["labels"][batch["labels"] != -100] for batch in batches])
    assert len(truth) > 5000
    assert (read == tokenizer.mask_token_id).float().mean() == pytest.approx(0.8, abs=0.02)
    assert (read == truth).float().mean() == pytest.approx(0.1, abs=0.02)
    unmasked = torch.cat([batch["input_ids"][batch["labels"] == -100] for batch in batches])
    assert not (unmasked == tokenizer.mask_token_id).any()


def test_rows_from_n_on_are_turned_round(collator, mixed_pairs, tokenizer):
    batch = batch_of(collator(), [3, len(mixed_pairs) + 3])
    whole = torch.where(batch["labels"] != -100, batch["labels"], batch["input_ids"])
    first, second = (mixed_pairs[3][f"sentence{side}"] for side in (1, 2))
    assert whole[0][batch["attention_mask"][0] == 1].tolist() == tokenizer(first, second)["input_ids"]
    assert whole[1][batch["attention_mask"][1] == 1].tolist() == tokenizer(second, first)["input_ids"]


def test_the_masks_depend_on_seed_and_rows_alone(collator):
    drawn = collator()
    one, other_rows, again = (batch_of(drawn, rows)["labels"] for rows in (range(16), range(15), range(16)))
    assert torch.equal(one, again)
    assert not torch.equal(one[:15], other_rows)  # in another batch, other masks
    assert not torch.equal(one, batch_of(collator(seed=2), range(16))["labels"])


def test_a_row_without_a_known_word_gives_nothing_to_guess(collator):
    pairs = Dataset.from_dict({"sentence1": ["\u200b", "balo", "\u2603"], "sentence2": ["\u200b", "bama", "\u2603"]})
    labels = batch_of(collator(pairs), [0, 1, 2])["labels"]
    assert (labels != -100).sum(1).tolist() == [0, 1, 0]


def test_a_batch_without_a_known_word_has_a_finite_loss(collator, tiny_plm):
    empty = Dataset.from_dict({"sentence1": ["\u200b"], "sentence2": ["\u200b"]})  # the tokenizer drops it
    batch = batch_of(collator(empty), [0])
    assert (batch["labels"] != -100).any()
    assert AutoModelForMaskedLM.from_pretrained(tiny_plm)(**batch).loss.isfinite()


def test_guessing_masked_positions_only_changes_neither_loss_nor_gradients(collator, tiny_plm):
    batch = batch_of(collator(), range(8))

    def gradients(prepare):
        model = AutoModelForMaskedLM.from_pretrained(tiny_plm).eval()
        with prepare(model):
            output = model(**batch)
        output.loss.backward()
        return output, {name: value.grad for name, value in model.named_parameters() if value.grad is not None}

    plain, plain_gradients = gradients(nullcontext)
    ours, our_gradients = gradients(guessing_masked_only)
    assert ours.logits.shape[:2] == (1, (batch["labels"] != -100).sum())
    assert torch.allclose(plain.loss, ours.loss)
    assert plain_gradients.keys() == our_gradients.keys()
    assert all(torch.allclose(value, our_gradients[name], atol=1e-6) for name, value in plain_gradients.items())


def test_it_learns_to_guess(pretrain_tiny, tiny_plm, tiny_pairs):
    model, record = pretrain_tiny(pairs=tiny_pairs, epochs=5)
    assert record.n_steps == 5 * 400 // 16
    steps, losses = zip(*record.losses, strict=True)
    assert steps == (*range(12, 125, 12), 125)  # a tenth of the steps each
    assert losses[-2] < losses[0] - 0.1
    start = AutoModel.from_pretrained(tiny_plm).state_dict()
    trained = model.state_dict()
    assert {name for name in start if "pooler" not in name} == set(trained)
    weights = [name for name in trained if name.endswith("weight")]
    assert len(weights) > 10
    assert not any(torch.equal(start[name], trained[name]) for name in weights)


def test_accumulated_batches_count_as_one(pretrain_tiny):
    whole, in_parts = (
        pretrain_tiny(folder=str(size), batch_size=size, gradient_accumulation_steps=16 // size, epochs=1)[1]
        for size in (16, 4)
    )
    assert whole.n_steps == in_parts.n_steps == 8
    means = [np.mean([loss for _, loss in record.losses]) for record in (whole, in_parts)]
    assert means[0] == pytest.approx(means[1], rel=0.05), "summed instead of averaged it would be four times as much"


def test_recomputed_activations_change_nothing(pretrain_tiny):
    plain, saving = (
        pretrain_tiny(folder=str(is_on), gradient_checkpointing=is_on, epochs=1)[0].state_dict()
        for is_on in (False, True)
    )
    assert all(torch.allclose(plain[name], saving[name], atol=1e-5) for name in plain)


@pytest.fixture
def old_plm(tiny_plm, tmp_path):
    """The tiny model with the names that BERT's first checkpoints have for LayerNorm's weights."""
    weights = load_file(Path(tiny_plm) / "model.safetensors")
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def old(name):
        for new, before in names.items():
            name = name.replace(new, before)
        return name

    folder = tmp_path / "old"
    shutil.copytree(tiny_plm, folder)
    save_file({old(name): value for name, value in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("stop_at", "precision", "start"),
    [(2, "fp32", "tiny"), (7, "fp32", "tiny"), (8, "bf16", "tiny"), (11, "fp32", "old")],
)
def test_stopped_and_resumed_it_ends_with_the_same_weights(
    pretrain_tiny, monkeypatch, stop_at, precision, start, tiny_plm, old_plm
):
    start = {"tiny": tiny_plm, "old": old_plm}[start]
    whole, record = pretrain_tiny(start, folder="whole", precision=precision)

    class Watched(KeepBest):
        def on_step_end(self, args, state, control, **more):
            super().on_step_end(args, state, control, **more)
            if state.global_step == stop_at:
                raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("transencoder.fit.masked.KeepBest", Watched)
        with pytest.raises(Stopped):
            pretrain_tiny(start, precision=precision)
    resumed, resumed_record = pretrain_tiny(start, precision=precision)
    assert resumed_record.losses == record.losses
    assert same(whole.state_dict(), resumed.state_dict())


def test_a_start_without_a_language_modelling_head_is_refused(pretrain_tiny, tiny_bi_encoder):
    with pytest.raises(
        InputError, match=r"is no masked language model \(it lacks cls\.predictions.*leave pretraining out"
    ):
        pretrain_tiny(tiny_bi_encoder)


@pytest.mark.parametrize("mask_token", [None, "[NEW MASK]"])
def test_a_tokenizer_without_a_mask_that_the_model_knows_is_refused(
    pretrain_tiny, tiny_plm, tokenizer, tmp_path, mask_token
):
    shutil.copytree(tiny_plm, tmp_path / "maskless")
    tokenizer.mask_token = mask_token
    if mask_token:
        tokenizer.add_special_tokens({"mask_token": mask_token})
    tokenizer.save_pretrained(tmp_path / "maskless")
    with pytest.raises(InputError, match="no mask token that the model knows"):
        pretrain_tiny(tmp_path / "maskless")


def test_a_vocabulary_larger_than_the_models_is_no_harm(pretrain_tiny, tiny_plm, tokenizer, tmp_path):
    shutil.copytree(tiny_plm, tmp_path / "larger")
    tokenizer.add_tokens([f"new{i}" for i in range(400)])
    tokenizer.save_pretrained(tmp_path / "larger")
    assert pretrain_tiny(tmp_path / "larger", epochs=1)[1].n_steps == 8


@pytest.mark.parametrize("name", ["roberta", "distilbert", "mpnet", "modernbert"])
def test_other_architectures(pretrain_tiny, tiny_plm, tmp_path, name):
    sizes = {
        "vocab_size": len(AutoTokenizer.from_pretrained(tiny_plm)),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "pad_token_id": 0,
        "max_position_embeddings": 128,
    }
    if name == "distilbert":
        sizes = {"vocab_size": sizes["vocab_size"], "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
    special = {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3} if "modern" in name else {}
    model = AutoModelForMaskedLM.from_config(AutoConfig.for_model(name, **sizes, **special))
    shutil.copytree(tiny_plm, tmp_path / name)
    model.save_pretrained(tmp_path / name)
    _, record = pretrain_tiny(tmp_path / name, epochs=1)
    assert 0 < record.losses[0][1] < 8


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
