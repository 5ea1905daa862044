"""Starting encoders: interrupted, they end with the same bytes; changed, their stages are others."""

import os
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from transencoder import context, train
from transencoder.runs.files import read_checked_json, write_checked_json
from transencoder.training import plan


def test_interrupted_it_ends_with_the_same_bytes(tiny_start, method, interrupt, weights):
    """What the loss trains besides the encoder is part of it. Without dev: the best on it may be the checkpoint's."""
    whole, config = train(tiny_start(method, dev=None, tests=())), tiny_start(method, dev=None, tests=())
    interrupt(config, at=lambda folder, step: "teacher" not in str(folder))
    (checkpoint,) = Path(config.output).glob("stages/bi-encoder-*/checkpoints/checkpoint-3")
    assert (checkpoint / "loss.safetensors").exists() == (not method.startswith("mirror-bert"))
    assert weights(train(config).folder) == weights(whole.folder)


def test_a_resumed_run_without_the_projectors_state_would_differ(tiny_start, interrupt, weights):
    whole, config = train(tiny_start("simcse")), tiny_start("simcse")
    interrupt(config)
    (state,) = Path(config.output).glob("stages/bi-encoder-*/checkpoints/checkpoint-3/loss.safetensors")
    state.unlink()
    marker = state.with_name("complete.json")
    record = read_checked_json(marker)
    del record["files"][state.name]  # else the checkpoint is damaged, and not used
    write_checked_json(marker, record)
    assert weights(train(config).folder) != weights(whole.folder)


@pytest.mark.parametrize("has_dropout", [True, False])
def test_with_dropout_too_both_copies_resume_to_the_same_bytes(
    tiny_start, has_dropout, monkeypatch, interrupt, weights
):
    """Was: the second copy had dropout only after the first dev evaluation, and none after a resume."""
    rising = count()
    monkeypatch.setattr(context, "measure", lambda scored, scorer: float(next(rising)))  # the last are the best
    fit = replace(tiny_start("contrastive-tension").fit, dropout=0.1 if has_dropout else 0.0)
    whole, config = (tiny_start("contrastive-tension", fit=fit, tests=()) for _ in range(2))
    train(whole)
    interrupt(config, at=lambda folder, step: step == 6)
    assert weights(train(config).folder) == weights(whole.output)


def test_each_setting_makes_a_stage_of_its_own(tiny_start):
    config = tiny_start("simcse", dev=None, tests=())
    keys = [
        plan(replace(config, **change)).stages["bi-encoder"].key
        for change in ({}, {"temperature": 0.1}, {"projector": False}, {"pooling": "cls"}, {"seed": 1})
    ]
    assert len(set(keys)) == 5


def test_the_record_is_written_when_all_else_is_there(tiny_start, monkeypatch):
    config, written = tiny_start("simcse"), []
    monkeypatch.setattr(
        "transencoder.training.result.write_report", lambda *_: written.extend(os.listdir(config.output))
    )
    train(config)
    assert "bi-encoder" in written and "result.json" not in written
    assert "result.json" in os.listdir(config.output)
