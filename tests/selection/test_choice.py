"""What chooses checkpoints and cycles where there is no dev set."""

from dataclasses import replace

import pytest

from transencoder import train
from transencoder.errors import InputError
from transencoder.methods import training
from transencoder.report.notes import notes_of
from transencoder.selection import criterion_of, regrets_of


def test_auto_is_the_criterion_that_cost_least_and_last_is_none():
    assert criterion_of("bi", "last") is None
    assert criterion_of("bi", "uniformity") == "uniformity"
    for form in ("bi", "cross"):
        regrets = {name: value for name, value in regrets_of(form).items() if name != "left_out"}
        assert regrets[criterion_of(form, "auto") or "last"] == min(regrets.values())


@pytest.fixture
def without_dev(tiny_method, tiny_pairs, monkeypatch):
    """A run without a dev set, whose bi- and cross-encoder are chosen by the criteria that it is given."""
    monkeypatch.setattr(training, "LEAST_PAIRS", 100)

    def make(bi, cross, **changes):
        config = tiny_method(pairs=tiny_pairs, dev=None, tests=(), **changes)
        return replace(
            config,
            bi=replace(config.bi, selection=bi),
            cross=replace(config.cross, selection=cross),
            patience_cycles=None,
        )

    return make


def test_the_checkpoint_and_the_cycle_that_the_criterion_likes_best_are_kept(without_dev):
    result = train(without_dev("uniformity", "teacher_agreement")).result
    assert result["dev"] is None and result["data"]["pairs"]["held_out_rows"] == 20
    for form, name in (("bi", "uniformity"), ("cross", "teacher_agreement")):
        trainings = [cycle[form] for cycle in result["cycles"]]
        assert all(each["chosen_by"] == name and each["dev"] is None and not each["curve"] for each in trainings)
        for each in trainings:
            values = dict((step, found[name]) for step, found in each["criteria"])
            assert values[each["step"]] == max(values.values())
        highest = [max(found[name] for _, found in each["criteria"]) for each in trainings]
        assert result["best"][form]["cycle"] == 1 + highest.index(max(highest))
        assert result["best"][form]["dev"] is None
    (note,) = [note for note in notes_of(result) if "no dev set" in note]
    assert "the bi-encoder's by uniformity and the cross-encoder's by teacher_agreement, on 20 held-out pairs" in note
    assert f"{regrets_of('bi')['last']:.2f} (bi-encoder)" in note


def test_one_checkpoint_of_each_form_is_no_choice(without_dev):
    config = without_dev("auto", "auto", cycles=1)
    once = {"bi": replace(config.bi, eval_steps=100), "cross": replace(config.cross, eval_steps=100)}
    result = train(replace(config, **once)).result
    assert any("only one checkpoint of each form" in note for note in notes_of(result))
    assert not any("were chosen without labels" in note for note in notes_of(result))


def test_test_curves_are_recorded_and_choose_nothing(without_dev, tiny_files):
    tests = (str(tiny_files / "test.tsv"),)
    config = without_dev("uniformity", "teacher_agreement", cycles=1)
    watched = train(replace(config, tests=tests, test_every_eval=True, output=f"{config.output}-watched")).result
    (training,) = [cycle["bi"] for cycle in watched["cycles"]]
    steps = [step for step, _ in training["criteria"]]
    assert [(step, set(values)) for _, step, values in watched["analysis"]["bi"]] == [
        (step, {"test"}) for step in steps
    ]
    plain = train(config).result["cycles"][0]["bi"]
    assert (training["step"], training["criteria"]) == (plain["step"], plain["criteria"])


def test_test_curves_without_evaluations_are_refused(without_dev, tiny_files, monkeypatch):
    watched = {"tests": (str(tiny_files / "test.tsv"),), "test_every_eval": True}
    with pytest.raises(InputError, match="test_every_eval needs tests"):
        replace(without_dev("uniformity", "last"), **watched)
    monkeypatch.setattr(training, "LEAST_PAIRS", 201)
    with pytest.raises(InputError, match="of 200 pairs, fewer than 201, none can be held out"):
        train(replace(without_dev("auto", "auto"), **watched))


def test_without_enough_pairs_or_where_it_is_said_the_last_is_kept(without_dev, monkeypatch):
    for config in (without_dev("last", "last"), without_dev("auto", "auto")):
        result = train(config).result
        assert "held_out_rows" not in result["data"]["pairs"]
        assert result["best"]["bi"]["cycle"] == len(result["cycles"])
        assert not any("chosen_by" in cycle[form] for cycle in result["cycles"] for form in ("bi", "cross"))
        assert set(result["sample_agreement"]) == {"bi", "cross"}
        monkeypatch.setattr(training, "LEAST_PAIRS", 201)


def test_a_criterion_beside_a_dev_set_or_of_what_a_cross_encoder_has_not_is_refused(tiny_method):
    config = tiny_method()
    with pytest.raises(InputError, match="bi.selection is uniformity, but dev chooses"):
        replace(config, bi=replace(config.bi, selection="uniformity"))
    with pytest.raises(InputError, match="cross.selection is member_agreement, but no two members"):
        replace(config, dev=None, cross=replace(config.cross, selection="member_agreement"))
    with pytest.raises(InputError, match="a cross-encoder has none"):
        replace(config, dev=None, cross=replace(config.cross, selection="uniformity"))


def test_a_weak_start_is_said_before_anything_is_trained(without_dev, caplog, monkeypatch):
    monkeypatch.setattr("transencoder.cycles.distillation.learn", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(pytest.fail.Exception):
        train(without_dev("auto", "auto"))
    assert "start: The base model looks weak on these texts" in caplog.text  # a random one


def test_a_weak_start_is_said_where_dev_chooses_too(tiny_method, caplog, monkeypatch):
    monkeypatch.setattr("transencoder.cycles.unlabelled.LEAST_PAIRS", 50)
    result = train(tiny_method()).result
    assert "start: The base model looks weak on these texts" in caplog.text
    assert "held_out_rows" not in result["data"]["pairs"] and set(result["criteria"]) == {"start"}
    assert any("base model looks weak" in note for note in notes_of(result))
