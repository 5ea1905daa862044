"""Trainings that stop once their best checkpoint is so many epochs old."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fit.fitting import Stopped, same, scripted, stopping
from transencoder import MLM, DvBERT, FitConfig, SimCSE, TransEncoder, train
from transencoder.errors import InputError

AFTER_ITS_BEST = [5, 9, 1, 1, 1, 1]
"""At steps 3, 4, 6, 8, 9, 12, of which four are an epoch."""


def test_it_stops_and_keeps_what_the_whole_training_keeps(form, fit_tiny):
    whole, fitted_whole = fit_tiny(form, dev=scripted(AFTER_ITS_BEST), folder="whole")
    stopped, fitted = fit_tiny(form, dev=scripted(AFTER_ITS_BEST), patience_epochs=1)
    assert (fitted.n_steps, fitted_whole.n_steps) == (8, 12)
    assert (fitted.n_planned, fitted_whole.n_planned) == (12, None)
    assert (fitted.best, fitted.best_step) == (fitted_whole.best, fitted_whole.best_step) == (9, 4)
    assert fitted.curve == fitted_whole.curve[:4]
    assert same(stopped.state_dict(), whole.state_dict())


@pytest.mark.parametrize(
    ("values", "patience"),
    [(AFTER_ITS_BEST, 3), ([1, 2, 3, 4, 5, 6], 1), ([5, 5, 6, 6, 6, 7], 1), ([math.nan] * 6, 1)],
)
def test_it_goes_on_while_there_is_hope(values, patience, fit_tiny):
    assert fit_tiny("bi", dev=scripted(values), patience_epochs=patience)[1].n_steps == 12


def test_the_best_of_all_evaluations_counts_not_of_those_at_the_ends_of_epochs(fit_tiny):
    """The released codes of SCT and ConGen would go on: the ends of epochs have 5, 6 and 7."""
    assert fit_tiny("bi", dev=scripted([9, 5, 1, 6, 1, 7]), patience_epochs=1)[1].n_steps == 8


def test_without_evaluations_it_goes_on(fit_tiny):
    assert fit_tiny("bi", patience_epochs=1)[1].n_steps == 12


def test_killed_at_its_last_evaluation_it_ends_the_same(form, fit_tiny, tmp_path):
    alone, fitted = fit_tiny(form, dev=scripted(AFTER_ITS_BEST), folder="alone", patience_epochs=1)
    assert not (tmp_path / "alone" / "checkpoint-8").exists(), "resumed from there it would train a step more"
    with pytest.raises(Stopped):
        fit_tiny(form, dev=stopping(AFTER_ITS_BEST[:3]), patience_epochs=1)
    resumed, again = fit_tiny(form, dev=scripted(AFTER_ITS_BEST[3:]), patience_epochs=1)
    assert (again.curve, again.best_step, again.n_steps) == (fitted.curve, fitted.best_step, fitted.n_steps)
    assert same(resumed.state_dict(), alone.state_dict())


def test_it_needs_what_to_choose_by():
    with pytest.raises(InputError, match=r"fit\.patience_epochs is 2, .*; give dev, or leave it out \(--fit"):
        SimCSE(start="minilm", sentences="s.txt", output="o", fit=replace(SimCSE.fit, patience_epochs=2))
    for form in ("bi", "cross"):
        fit = {form: FitConfig(patience_epochs=2, selection="last")}
        with pytest.raises(
            InputError,
            match=rf"{form}\.patience_epochs is 2, and nothing chooses among checkpoints; give dev, or another",
        ):
            TransEncoder(pairs="p.tsv", output="o", **fit)
        TransEncoder(pairs="p.tsv", output="o", dev="stsb", **{form: FitConfig(patience_epochs=2)})
    cross = replace(DvBERT.cross, patience_epochs=2)
    labelled = {"start": "minilm", "labelled": "l.tsv", "output": "o", "teacher": ("bert",), "cross": cross}
    for more in ({}, {"dev": "stsb"}, {"label_kind": "scores"}):
        with pytest.raises(InputError, match=r"cross\.patience_epochs is 2, .* give dev and labels that are scores"):
            DvBERT(**labelled, **more)
    DvBERT(**labelled, dev="stsb", label_kind="scores")
    with pytest.raises(InputError, match=r"fit\.patience_epochs is 2, and it is of encoders"):
        MLM(sentences="s.txt", from_scratch=True, output="o", fit=replace(MLM.fit, patience_epochs=2))


def test_fewer_pairs_than_can_be_held_out_are_refused(tiny_bi_encoder, tiny_pairs, tmp_path):
    pairs = tiny_pairs.select(range(64)).remove_columns("score")
    with pytest.raises(InputError, match=r"bi\.patience_epochs needs evaluations.* of 64 pairs, fewer than 500"):
        train(TransEncoder(pairs=pairs, start=tiny_bi_encoder, output=str(tmp_path), bi=FitConfig(patience_epochs=1)))


def test_the_report_says_that_a_training_ended_early(tiny_start):
    fit = replace(SimCSE.fit, batch_size=8, epochs=9, eval_steps=1, learning_rate=0.0, patience_epochs=1)
    result = train(tiny_start("simcse", fit=fit)).result
    (note,) = [each for each in result["notes"] if "ended early" in each]
    assert re.search(r"bi-encoder at step (\d+) of (\d+)\.$", note)
    assert note in (Path(result["config"]["output"]) / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("patient", "other"), [("bi", "cross"), ("cross", "bi")])
def test_in_the_standard_preset_a_criterion_then_chooses_for_that_form_alone(patient, other):
    fits = {patient: FitConfig(patience_epochs=2)}
    config = TransEncoder(pairs="p.tsv", output="o", preset="standard", same_form=False, **fits).prepared(1)
    assert (getattr(config, patient).selection, getattr(config, other).selection) == ("auto", "last")


def test_what_was_trained_before_keeps_its_key():
    assert "patience_epochs" not in FitConfig().key_settings
    assert FitConfig(patience_epochs=2).key_settings["patience_epochs"] == 2
