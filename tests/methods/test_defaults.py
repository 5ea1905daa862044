"""Table 16 of the paper, written out again."""

import dataclasses

import pytest

from transencoder.configs import FitConfig, Member
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
    ("preset", "cycles", "bi_epochs", "cross_epochs"), [("quick", 1, 2, 1), ("standard", 2, 15, 3), ("paper", 5, 15, 3)]
)
def test_presets_fill_what_is_left_empty(preset, cycles, bi_epochs, cross_epochs):
    filled = config(task_kind="binary", preset=preset).prepared(BASE)
    assert (filled.cycles, filled.bi.epochs, filled.cross.epochs) == (cycles, bi_epochs, cross_epochs)
    assert config(preset=preset, cycles=4, bi=FitConfig(epochs=7)).prepared(BASE).bi.epochs == 7
    assert config(preset="paper").prepared(BASE) == dataclasses.replace(config().prepared(BASE), preset="paper")


def test_large_begins_between_bert_base_and_large():
    assert BASE < LARGE_PARAMETERS < LARGE
    assert config().prepared(LARGE_PARAMETERS - 1).bi.batch_size == 128
    assert config().prepared(LARGE_PARAMETERS).bi.batch_size == 64


def test_what_was_given_stays():
    given = FitConfig(learning_rate=0.0, batch_size=7, epochs=2, max_length=9, warmup_ratio=0.0)
    filled = config(cycles=1, bi=given, cross=given).prepared(LARGE)
    assert (filled.cycles, filled.bi, filled.cross) == (1, given, given)
    assert filled.prepared(BASE) == filled
