"""Several runs at once: what they share is waited for, and taken over. How runs compute."""

from dataclasses import replace
from pathlib import Path

import pytest

from transencoder import InputError, SimCSE, on_ray, train
from transencoder.runs import read_log
from transencoder.training import several
from transencoder.training.several import train_on_ray


def test_a_run_waits_for_what_an_earlier_one_computes(tiny_method, tmp_path, monkeypatch):
    config = tiny_method(output=str(tmp_path / "run-1"), cycles=1)
    configs = [config]
    for number, fit in ((2, {"bi": replace(config.bi, epochs=2)}), (3, {"cross": replace(config.cross, epochs=2)})):
        before = tuple(each.output for each in configs)
        configs.append(replace(config, output=str(tmp_path / f"run-{number}"), reuse_from=before, **fit))
    asked = []

    def call_all(call, arguments, may_start):
        if call is several._stages_of:
            return [call(*each) for each in arguments]
        results = []
        for each in arguments:
            asked.append([may_start(number) for number in range(len(arguments))])
            results.append(call(*each))
        return results

    monkeypatch.setattr(on_ray, "call_all", call_all)
    results = train_on_ray([(each, None) for each in configs])
    assert asked == [[True, False, False], [True, True, True], [True, True, True]]
    assert [result["config"]["output"] for result in results] == [each.output for each in configs]
    started = [
        {event["name"] for event in read_log(Path(each.output)) if event["event"] == "stage_started"}
        for each in configs
    ]
    assert "cycle-1/cross-encoder" in started[0] and "cycle-1/bi-encoder" in started[1]
    assert "cycle-1/cross-encoder" not in started[1] and "cycle-1/cross-encoder" in started[2]
    assert not any("start/scores" in each for each in started[1:])


def test_nothing_is_waited_for_that_only_a_run_can_name(tiny_method, tiny_bi_encoder, tmp_path):
    sentences = [f"balo bama {i}" for i in range(40)]
    config = tiny_method(pairs=None, sentences=sentences, n_pairs=20, dev=None, is_symmetric=True)
    assert [name for name, _ in several._stages_of(config)][-1] == "mining"
    cut = SimCSE(sentences=sentences, start=tiny_bi_encoder, student_layers=(0,), output=str(tmp_path / "run"))
    assert [name for name, _ in several._stages_of(cut)] == ["student"]


def test_a_run_computes_attention_as_is_asked(tiny_method):
    with pytest.raises(InputError, match="attn_implementation is 'flash', which cannot be used here"):
        train(tiny_method(attn_implementation="flash"))
