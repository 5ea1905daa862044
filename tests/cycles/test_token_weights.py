"""Bi-encoders that are kept with weighted tokens: what is measured is what is kept, and when a run decides for them."""

from pathlib import Path

import pytest
import torch
from datasets import concatenate_datasets
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, WordWeights

from transencoder import BiScorer, FitConfig, train
from transencoder.cycles.stages import BiStudent
from transencoder.encoders import weight_tokens
from transencoder.errors import InputError
from transencoder.evaluation import agreement
from transencoder.pairs import read_pairs
from transencoder.training.members import looks_unlabelled

FIT = FitConfig(learning_rate=1e-3, batch_size=16, epochs=1, eval_steps=100, checkpoint_steps=4)


def weights_of(model):
    return [module for module in model if isinstance(module, WordWeights)]


@pytest.fixture(scope="module")
def runs(tiny_method):
    """The same run without weights and with them; dev is looked at once, after the only epoch."""
    return [train(tiny_method(same_form=True, weight_tokens=each, bi=FIT)) for each in (False, True)]


def test_it_learns_the_same_and_is_kept_with_the_weights_of_its_pairs(runs, tiny_files, tmp_path):
    plain, kept = (run.bi_encoder for run in runs)
    assert not weights_of(plain) and len(weights_of(kept)) == 1
    states = plain.state_dict(), kept[0].state_dict()
    assert all(torch.equal(states[0][f"0.{name}"], tensor) for name, tensor in states[1].items())
    pairs = read_pairs(str(tiny_files / "pairs.tsv"))
    texts = concatenate_datasets(
        [pairs.select_columns([side]).rename_column(side, "text") for side in ("sentence1", "sentence2")]
    )
    distinct = texts.select(sorted({text: i for i, text in reversed([*enumerate(texts["text"])])}.values()))
    weight_tokens(runs[0].folder / "bi-encoder", distinct, tmp_path / "by-hand")
    by_hand = SentenceTransformer(str(tmp_path / "by-hand"), device="cpu")
    assert weights_of(by_hand)[0].word_weights == weights_of(kept)[0].word_weights


def test_a_run_that_ends_between_the_weighted_model_and_its_record_goes_on(runs, tiny_method, monkeypatch):
    config = tiny_method(same_form=True, weight_tokens=True, bi=FIT)
    write = BiStudent.write

    def interrupted(self, work, computed):
        write(self, work, computed)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(BiStudent, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(config)
    files = [
        train(config).folder / "bi-encoder" / "model.safetensors",
        runs[1].folder / "bi-encoder" / "model.safetensors",
    ]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_dev_is_measured_as_the_model_is_kept(runs, tiny_files):
    dev = read_pairs(str(tiny_files / "dev.tsv"), needs_score=True)
    for run in runs:
        own = agreement(dev, BiScorer(run.bi_encoder).score(dev), "spearman")
        assert run.result["dev"]["bi"] == pytest.approx(own, abs=0.1)
    assert runs[0].result["dev"]["bi"] != pytest.approx(runs[1].result["dev"]["bi"], abs=0.1)


def test_the_next_cycle_learns_from_the_weighted_model(tiny_method):
    first, second = (train(tiny_method(same_form=True, cycles=2, weight_tokens=each)) for each in (False, True))
    labels = [next(run.folder.glob("stages/cycle-2-*labels*/labels.parquet")).read_bytes() for run in (first, second)]
    assert labels[0] != labels[1]


@pytest.mark.parametrize(("uniformity", "is_weighted"), [(1.9, True), (3.1, True), (3.2, False)])
def test_preset_standard_weights_where_the_base_model_looks_unlabelled(
    uniformity, is_weighted, tiny_method, monkeypatch
):
    """Criteria are higher for what is better: the negative uniformity."""
    monkeypatch.setattr("transencoder.cycles.members.LEAST_PAIRS", 90)
    monkeypatch.setattr("transencoder.selection.HeldOut.criteria", lambda *_: {"uniformity": uniformity})
    trained = train(tiny_method(preset="standard"))
    assert trained.result["config"]["weight_tokens"] is (True if is_weighted else None)
    assert bool(weights_of(trained.bi_encoder)) == is_weighted
    chosen = [each for each in trained.result["choices"] if each["setting"] == "weight_tokens"]
    assert len(chosen) == is_weighted


def test_few_pairs_say_nothing_of_the_base_model():
    assert not looks_unlabelled({})
    assert not looks_unlabelled({"uniformity": None})


def test_a_model_that_cannot_be_weighted_is_refused_and_left_alone_by_preset(
    tiny_method, tiny_bi_encoder, tmp_path, monkeypatch
):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    model[1] = Pooling(model[1].embedding_dimension, pooling_mode="cls")
    model.save(str(tmp_path / "cls"))
    given = {"start": str(tmp_path / "cls"), "members": (), "same_form": True}
    with pytest.raises(InputError, match=r"weight_tokens is true, but .*cls has no mean pooling"):
        train(tiny_method(**given, weight_tokens=True))
    monkeypatch.setattr("transencoder.cycles.members.LEAST_PAIRS", 90)
    monkeypatch.setattr("transencoder.selection.HeldOut.criteria", lambda *_: {"uniformity": 1.0})
    trained = train(tiny_method(**given, preset="standard"))
    assert not weights_of(trained.bi_encoder) and Path(trained.folder / "bi-encoder").is_dir()
