"""Masked language modelling over pairs: what is masked, what the head sees, what is kept, and that it resumes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertForPreTraining

from transencoder.batching import MaskedPairsCollator
from transencoder.config import FitConfig
from transencoder.encoders import load_cross
from transencoder.errors import InputError
from transencoder.fit import pretrain
from transencoder.fit.pretraining import _guess_masked_only
from transencoder.tokens import TokenCache

CONFIG = FitConfig(
    learning_rate=1e-3, batch_size=16, epochs=2, max_length=24, warmup_ratio=0.1, eval_steps=3, checkpoint_steps=3
)


class Stopped(Exception):
    pass


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return TokenCache(tmp_path_factory.mktemp("tokens"))


@pytest.fixture
def collator(tiny_plm, tiny_pairs, cache):
    """Makes a collator over the tiny pairs in both orders."""
    reader = load_cross(Path(tiny_plm), max_length=24, device="cpu")

    def make(pairs=tiny_pairs, mask_ratio=0.25, seed=1):
        tables = [cache.pairs(reader, pairs, turned) for turned in (False, True)]
        return MaskedPairsCollator(tables, reader.tokenizer, mask_ratio, seed)

    return make


@pytest.fixture
def pretrain_tiny(tiny_plm, tiny_pairs, cache, tmp_path):
    def run(start=tiny_plm, *, folder="checkpoints", pairs=tiny_pairs, **options):
        given = {"seed": 1, "precision": "fp32", "cache": cache} | options
        return pretrain(Path(start), pairs, CONFIG, 0.25, folder=tmp_path / folder, **given)

    return run


def batch_of(collator, rows):
    return collator([{"row": row} for row in rows])


def test_a_share_of_each_rows_tokens_is_to_guess_and_no_special_one(collator, tiny_plm):
    batch = batch_of(collator(), range(400))
    tokenizer = AutoTokenizer.from_pretrained(tiny_plm)
    labels, is_text = batch["labels"], batch["attention_mask"] == 1
    to_guess = labels != -100
    assert not torch.isin(labels[to_guess], torch.tensor(tokenizer.all_special_ids)).any()
    assert not (to_guess & ~is_text).any()
    n_words = is_text.sum(1) - 3  # [CLS] and two [SEP]
    assert np.array_equal(to_guess.sum(1).numpy(), np.maximum(1, np.rint(0.25 * n_words.numpy())))


def test_eight_tenths_are_masked_one_tenth_is_anything_one_tenth_stays(collator, tiny_plm):
    mask_id = AutoTokenizer.from_pretrained(tiny_plm).mask_token_id
    batches = [batch_of(collator(seed=seed), range(400)) for seed in range(10)]
    read = torch.cat([batch["input_ids"][batch["labels"] != -100] for batch in batches])
    truth = torch.cat([batch["labels"][batch["labels"] != -100] for batch in batches])
    assert len(truth) > 5000
    assert (read == mask_id).float().mean() == pytest.approx(0.8, abs=0.02)
    assert (read == truth).float().mean() == pytest.approx(0.1, abs=0.02)
    unmasked = torch.cat([batch["input_ids"][batch["labels"] == -100] for batch in batches])
    assert not (unmasked == mask_id).any()


def test_rows_from_n_on_are_turned_round(collator, tiny_pairs, tiny_plm):
    tokenizer = AutoTokenizer.from_pretrained(tiny_plm)
    batch = batch_of(collator(), [3, len(tiny_pairs) + 3])
    whole = torch.where(batch["labels"] != -100, batch["labels"], batch["input_ids"])
    first, second = (tiny_pairs[3][f"sentence{side}"] for side in (1, 2))
    assert whole[0][batch["attention_mask"][0] == 1].tolist() == tokenizer(first, second)["input_ids"]
    assert whole[1][batch["attention_mask"][1] == 1].tolist() == tokenizer(second, first)["input_ids"]


def test_the_masks_depend_on_seed_and_rows_alone(collator):
    one, again, other_seed = (batch_of(collator(seed=seed), range(16))["labels"] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other_seed)
    assert not torch.equal(one[:15], batch_of(collator(), range(15))["labels"])  # in another batch, other masks


def test_a_row_without_a_word_gives_a_special_token_and_the_loss_stays_finite(collator, tiny_plm):
    empty = Dataset.from_dict({"sentence1": ["\u200b"], "sentence2": ["\u200b"]})  # the tokenizer drops it
    batch = batch_of(collator(empty), [0])
    assert batch["attention_mask"].sum() == 3
    assert (batch["labels"] != -100).sum() == 1
    model = AutoModelForMaskedLM.from_pretrained(tiny_plm)
    assert model(**batch).loss.isfinite()


def test_guessing_masked_positions_only_changes_neither_loss_nor_gradients(collator, tiny_plm):
    batch = batch_of(collator(), range(8))

    def gradients(prepare):
        model = AutoModelForMaskedLM.from_pretrained(tiny_plm).eval()
        prepare(model)
        output = model(**batch)
        output.loss.backward()
        return output, {name: value.grad for name, value in model.named_parameters() if value.grad is not None}

    plain, plain_gradients = gradients(lambda model: None)
    ours, our_gradients = gradients(_guess_masked_only)
    assert ours.logits.shape[:2] == (1, (batch["labels"] != -100).sum())
    assert torch.allclose(plain.loss, ours.loss)
    assert plain_gradients.keys() == our_gradients.keys()
    assert all(torch.allclose(value, our_gradients[name], atol=1e-6) for name, value in plain_gradients.items())


def test_it_learns_to_guess(pretrain_tiny, tiny_plm):
    model, record = pretrain_tiny()
    assert record.n_steps == 2 * 400 // 16
    assert [step for step, _ in record.losses] == list(range(3, 51, 3))
    losses = [loss for _, loss in record.losses]
    assert np.mean(losses[-4:]) < np.mean(losses[:4]) - 0.3
    start = AutoModel.from_pretrained(tiny_plm)
    assert {name for name, _ in model.named_parameters()} == {name for name, _ in start.named_parameters()}


def test_what_the_language_model_has_not_is_kept_from_the_start(pretrain_tiny, tiny_plm, tmp_path):
    whole = BertForPreTraining(AutoModel.from_pretrained(tiny_plm).config)
    whole.save_pretrained(tmp_path / "whole")
    AutoTokenizer.from_pretrained(tiny_plm).save_pretrained(tmp_path / "whole")
    model, _ = pretrain_tiny(tmp_path / "whole")
    assert torch.equal(model.pooler.dense.weight, whole.bert.pooler.dense.weight)
    words = "embeddings.word_embeddings.weight"
    assert not torch.equal(model.state_dict()[words], whole.bert.state_dict()[words])


@pytest.mark.parametrize(("stop_at", "precision"), [(2, "fp32"), (7, "fp32"), (25, "bf16"), (29, "fp32")])
def test_stopped_and_resumed_it_ends_with_the_same_weights(pretrain_tiny, monkeypatch, stop_at, precision):
    from transencoder.checkpoints import KeepBest

    whole, record = pretrain_tiny(folder="whole", precision=precision)

    class Watched(KeepBest):
        def on_step_end(self, args, state, control, **more):
            super().on_step_end(args, state, control, **more)
            if state.global_step == stop_at:
                raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("transencoder.fit.pretraining.KeepBest", Watched)
        with pytest.raises(Stopped):
            pretrain_tiny(precision=precision)
    resumed, resumed_record = pretrain_tiny(precision=precision)
    assert resumed_record.losses == record.losses
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in whole.state_dict().items())


def test_a_start_without_a_language_modelling_head_is_refused(pretrain_tiny, tiny_bi_encoder):
    with pytest.raises(InputError, match=r"cannot be pretrained further.*it lacks cls\.predictions"):
        pretrain_tiny(tiny_bi_encoder)


def test_a_tokenizer_without_a_mask_is_refused(pretrain_tiny, tiny_plm, tmp_path):
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(tiny_plm), AutoTokenizer.from_pretrained(tiny_plm)
    tokenizer.mask_token = None
    model.save_pretrained(tmp_path / "maskless")
    tokenizer.save_pretrained(tmp_path / "maskless")
    with pytest.raises(InputError, match="no mask token"):
        pretrain_tiny(tmp_path / "maskless")
