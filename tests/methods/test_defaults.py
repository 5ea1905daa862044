"""Default settings of trainings: Table 16 of Trans-Encoder, and the other papers' or released codes', written out again."""

import dataclasses

import pytest

from transencoder import CKD, DCLR, SCT, ConGen, ContrastiveTension, DeCLUTR, DiffCSE, DvBERT, MirrorBERT, SimCSE
from transencoder.configs import FitConfig, Member, PretrainingConfig
from transencoder.methods import TransEncoder
from transencoder.methods.trans_encoder import LARGE_PARAMETERS

BASE, LARGE = 110_000_000, 340_000_000


def config(**changes):
    return TransEncoder(pairs="a.tsv", members=(Member(start="x"),), output="run", **changes)


@pytest.mark.parametrize(
    ("kind", "n_parameters", "cycles", "cross_epochs", "bi_epochs", "bi_batch"),
    [
        ("graded", BASE, 3, 1, 10, 128),
        ("graded", LARGE, 3, 1, 10, 64),
        ("binary", BASE, 5, 3, 15, 128),
        ("binary", LARGE, 5, 3, 15, 64),
    ],
)
def test_table_16(kind, n_parameters, cycles, cross_epochs, bi_epochs, bi_batch):
    filled = config(task_kind=kind).prepared(n_parameters)
    assert filled.cycles == cycles
    cross, bi = filled.cross, filled.bi
    assert (cross.learning_rate, cross.batch_size, cross.epochs, cross.max_length) == (
        2e-5,
        32,
        cross_epochs,
        64,
    )
    assert (bi.learning_rate, bi.batch_size, bi.epochs, bi.max_length) == (5e-5, bi_batch, bi_epochs, 32)
    assert (cross.warmup_ratio, bi.warmup_ratio) == (0.1, 0.0)  # released code
    assert cross.eval_steps == bi.eval_steps == 200


@pytest.mark.parametrize(
    ("method", "optimizer", "schedule", "warmup_ratio", "weight_decay", "max_grad_norm", "beta2", "bucket_batches"),
    [
        (SimCSE, "adamw", "linear", 0.0, 0.0, 1.0, 0.999, 1),
        (DiffCSE, "adamw", "linear", 0.0, 0.0, 1.0, 0.999, 1),
        (DCLR, "adamw", "linear", 0.0, 0.0, 1.0, 0.999, 1),
        (MirrorBERT, "adamw", "constant", 0.0, 0.01, 0.0, 0.999, 1),
        (ContrastiveTension, "rmsprop", "linear", 0.0, 0.0, 0.0, 0.999, 1),
        (DeCLUTR, "adamw", "linear", 0.1, 0.1, 1.0, 0.999, 1),
        (SCT, "adamw", "linear", 0.1, 0.01, 1.0, 0.999, 64),
        (ConGen, "adamw", "linear", 0.1, 0.01, 1.0, 0.999, 64),
        (CKD, "adamw", "cosine", 0.005, 0.0, 1.0, 0.98, 64),
        (DvBERT, "adamw", "linear", 0.1, 0.01, 1.0, 0.999, 64),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_how_the_other_methods_learn(
    method, optimizer, schedule, warmup_ratio, weight_decay, max_grad_norm, beta2, bucket_batches
):
    """docs/papers.md says of which paper or code each is; contrastive methods draw their batches at random."""
    fit = method.fit
    assert (fit.optimizer, fit.adam_beta1, fit.adam_beta2, fit.adam_epsilon) == (optimizer, 0.9, beta2, 1e-8)
    assert (fit.schedule, fit.warmup_ratio) == (schedule, warmup_ratio)
    assert (fit.weight_decay, fit.max_grad_norm, fit.bucket_batches) == (weight_decay, max_grad_norm, bucket_batches)


def test_declutrs_spans_and_its_documents_of_so_many_words():
    config = DeCLUTR(documents="a.txt", start="x", output="run")
    assert (config.document_words, config.n_anchors, config.n_positives) == (2048, 2, 2)
    assert (config.spans.shortest, config.spans.longest) == (32, 512)


def test_preset_standard_fills_what_is_left_open_and_says_why():
    filled = config(preset="standard").prepared(BASE)
    assert (filled.same_form, filled.bi_labels, filled.cycles, filled.max_length) == (True, "tokens", 1, "auto")
    assert (filled.bi.learning_rate, filled.bi.batch_size, filled.bi.epochs) == (5e-5, 64, 2)
    assert all(choice.because for choice in config(preset="standard").choices)
    taught = config(preset="standard", teachers="y")
    assert (taught.prepared(BASE).bi.learning_rate, taught.prepared(BASE).bi.epochs) == (5e-5, 8)
    assert len({choice.setting for choice in taught.choices}) == len(taught.choices), "one reason for each"
    assert (filled.bi.selection, filled.record_criteria) == ("last", True)
    for chosen in ({"dev": "stsb"}, {"patience_cycles": 1}, {"test_every_eval": True, "tests": ("stsb",)}):
        by_others = config(preset="standard", **chosen).prepared(BASE)
        assert (by_others.bi.selection, by_others.record_criteria) == ("auto", False)
    given = config(preset="standard", bi_labels="cosine", max_length=48, bi=FitConfig(epochs=7))
    assert (given.prepared(BASE).bi_labels, given.prepared(BASE).bi.epochs) == ("cosine", 7)
    assert {"bi_labels", "max_length", "bi.epochs"}.isdisjoint(choice.setting for choice in given.choices)


@pytest.mark.parametrize(
    "asks",
    [
        {"same_form": False},
        {"cross": FitConfig(epochs=2)},
        {"pretraining": PretrainingConfig(epochs=1)},
        {"members": (Member(start="x", cross_start="y"),)},
        {"members": (Member(start="x", cross_epochs=2),)},
        {"members": (Member(start="x", pretraining_epochs=2),)},
        {"cross_loss": "mse"},
        {"head": "linear"},
        {"label_both_orders": True},
        {"cross_test_length": 128},
    ],
)
def test_preset_standard_makes_a_cross_encoder_where_a_setting_speaks_of_one(asks):
    filled = TransEncoder(**{"pairs": "a.tsv", "members": (Member(start="x"),), "preset": "standard"} | asks).prepared(
        BASE
    )
    assert (filled.same_form, filled.bi_labels, filled.cycles, filled.bi.epochs) == (False, "tokens", 1, 4)
    assert (filled.cross.learning_rate, filled.cross.batch_size, filled.cross.epochs) == (5e-5, 64, 2)
    assert filled.bi.learning_rate == 2e-5


@pytest.mark.parametrize("preset", [None, "paper"])
def test_other_presets_choose_nothing(preset):
    given = config(task_kind="binary", preset=preset)
    filled = given.prepared(BASE)
    assert given.choices == () and filled == dataclasses.replace(
        config(task_kind="binary").prepared(BASE), preset=preset
    )
    assert (filled.same_form, filled.bi_labels, filled.cycles, filled.cross.epochs) == (False, "cosine", 5, 3)


def test_large_begins_between_bert_base_and_large():
    assert BASE < LARGE_PARAMETERS < LARGE
    assert config().prepared(LARGE_PARAMETERS - 1).bi.batch_size == 128
    assert config().prepared(LARGE_PARAMETERS).bi.batch_size == 64


def test_what_was_given_stays():
    given = FitConfig(learning_rate=0.0, batch_size=7, epochs=2, max_length=9, warmup_ratio=0.0)
    filled = config(cycles=1, bi=given, cross=given).prepared(LARGE)
    assert (filled.cycles, filled.bi, filled.cross) == (1, given, given)
    assert filled.prepared(BASE) == filled
