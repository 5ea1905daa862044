"""`evaluate`, with models that look at the length of the texts: scores, gains, intervals; as table, JSON and CSV."""

import csv
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from datasets import Dataset

from transencoder.configs.run import RunConfig
from transencoder.metrics import METRICS, RANKING_METRICS, metric_draws, row_intervals


@pytest.fixture
def measured(done):
    """Run `evaluate`; returns what it prints as JSON."""
    return lambda *typed: json.loads(done("evaluate", *typed, "--json"))


@pytest.fixture
def rows(done):
    """Run `evaluate`; returns the rows that it prints as CSV."""
    return lambda *typed: list(csv.DictReader(done("evaluate", *typed, "--csv").splitlines()))


def test_scored_pairs_are_measured(done, measured, loaded, pairs):
    out = done("evaluate", "long", "--pairs", pairs)
    assert "100.00 [100.0, 100.0]" in out and "3 pairs" in out and "better" not in out
    record = measured("short", "--pairs", pairs)
    assert record["scores"] == {str(pairs): pytest.approx(-100.0)}
    assert record["models"] == ["short"]
    assert (record["n_pairs"], record["n_queries"]) == ({str(pairs): 3}, {})
    assert record["intervals"] == {str(pairs): {"scores": {"short": pytest.approx([-100, -100])}, "gains": {}}}


@pytest.fixture
def tasks(monkeypatch):
    """Every task has the three pairs, but for the gold of those in `gold`; what was asked for is kept."""
    gold, asked = {}, []

    def load(task, role, **where):
        asked.append((task.name, role, where))
        scores = gold.get(task.name, [1.0, 3.0, 5.0])
        return Dataset.from_dict({"sentence1": ["a"] * 3, "sentence2": ["b"] * 3, "score": scores})

    monkeypatch.setattr("transencoder.evaluation.load", load)
    return SimpleNamespace(gold=gold, asked=asked)


def test_where_a_classifier_is_measured_an_ensemble_has_no_score(measured, loaded, tasks, monkeypatch):
    monkeypatch.setattr("transencoder.evaluation.evaluate_classes", lambda *_: 60.0)
    record = measured("long", "short", "--ensemble", "--tasks", "sicke", "sts12")
    assert record["each"]["long"]["scores"] == {"sicke": 60.0, "sts12": pytest.approx(100.0)}
    assert record["scores"]["sicke"] is None and record["scores"]["sts12"] is not None
    assert record["intervals"].keys() == {"sts12"}


def test_tasks_are_measured_and_their_average(done, measured, loaded, tasks):
    tasks.gold["stsb"] = [2.0, 2.0, 2.0]
    record = measured("long", "short", "--ensemble", "--tasks", "sts12", "stsb", "--data-dir", "d")
    where = {"data_folder": "d", "cache_folder": None, "token": None}
    assert tasks.asked == [("sts12", "test", where), ("stsb", "test", where)], "each task is read once"
    assert record["each"]["long"]["scores"] == {"sts12": pytest.approx(100.0), "stsb": None}
    assert record["gains"]["average"] == {"short": None, "ensemble": None}
    assert record["intervals"]["stsb"] == {"scores": {}, "gains": {}} == record["intervals"]["average"]
    assert "average" in done("evaluate", "long", "--tasks", "sts12", "stsb")


def test_an_average_has_the_interval_of_its_tests_draws(done, measured, rows, loaded, tasks):
    typed = ("long", "short", "--ensemble", "--tasks", "sts12", "stsb")
    record = measured(*typed)
    assert list(record["intervals"]) == ["sts12", "stsb", "average"]
    assert record["intervals"]["average"]["gains"]["short"] == pytest.approx([-200, -200])
    assert record["gains"]["average"]["short"] == pytest.approx(-200)
    assert "-200.00 [-200.0, -200.0]" in done("evaluate", *typed)
    row = rows(*typed)[-1]
    assert (row["set"], row["metric"], row["n_pairs"]) == ("average", "", "")
    assert [float(row[name]) for name in ("long", "short", "short gain")] == pytest.approx([100, -100, -200])
    assert [float(row[f"short gain {end}"]) for end in ("low", "high")] == pytest.approx([-200, -200])


@pytest.fixture
def hundred(monkeypatch):
    """A hundred graded pairs and three models: the first two score at random, the third agrees with the grades."""
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 6, 100)
    scores = np.float32([rng.normal(size=100), rng.normal(size=100), gold + rng.normal(size=100)])
    found = dict(zip(("minilm-1", "runs/a/bi-encoder", "runs/a/cross-encoder"), scores, strict=True))

    def load_scorer(name, scoring, where, token_folder):
        return SimpleNamespace(score=lambda pairs: found[name])

    monkeypatch.setattr("transencoder.cli.scoring._load_scorer", load_scorer)
    rows = [f"a{i}\tb\t{grade}\n" for i, grade in enumerate(gold)]
    Path("dev.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    return SimpleNamespace(gold=gold, scores=scores, typed=(*found, "--ensemble", "--pairs", "dev.tsv"))


def test_gains_that_are_not_significant_are_named(done, hundred, monkeypatch):
    monkeypatch.setattr("transencoder.cli.terminal._WIDTH_OF_FILES", 80)
    out = done("evaluate", *hundred.typed)
    said = "no significant difference between runs/a/bi-encoder and minilm-1 on these 100 pairs."
    assert f"dev.tsv: {said}" in out and "both models are measured on the same samples" in out
    number = r"-?\d+\.\d\d \[-?\d+\.\d, -?\d+\.\d\]"
    row = rf"│100 pairs │ runs/a/cross-encoder │ +{number} │ +\+{number}│"
    assert re.search(row, out), f"no unbroken row in 80 columns:\n{out}"


def test_machines_get_intervals_and_gains_which_are_those_of_a_run_with_the_default_seed(measured, rows, hundred):
    record = measured(*hundred.typed)
    intervals, gains = record["intervals"]["dev.tsv"], record["gains"]["dev.tsv"]
    assert list(intervals["scores"]) == ["minilm-1", "runs/a/bi-encoder", "runs/a/cross-encoder", "ensemble"]
    assert list(intervals["gains"]) == list(gains) == list(intervals["scores"])[1:]
    assert all(intervals["gains"][name][0] < gain < intervals["gains"][name][1] for name, gain in gains.items())
    (row,) = rows(*hundred.typed)
    assert (row["n_pairs"], row["n_queries"]) == ("100", "")
    assert [float(row[f"ensemble {end}"]) for end in ("low", "high")] == intervals["scores"]["ensemble"]
    found = [float(row[f"ensemble gain{end}"]) for end in ("", " low", " high")]
    assert found == [gains["ensemble"], *intervals["gains"]["ensemble"]]
    draws = metric_draws("spearman", hundred.gold, hundred.scores, name="dev", seed=RunConfig.seed)
    of_a_run = row_intervals(draws, ["minilm-1", "bi", "cross"])["gains"]["cross"]
    assert intervals["gains"]["runs/a/cross-encoder"] == list(of_a_run)


def test_several_models_are_measured_each_and_together(done, measured, refused, loaded, pairs):
    typed = ("long", "short", "--pairs", pairs)
    record = measured(*typed, "--weights", "1", "3")
    assert {name: each["average"] for name, each in record["each"].items()} == {
        "long": pytest.approx(100.0),
        "short": pytest.approx(-100.0),
    }
    assert record["average"] == pytest.approx(-100 * 0.75**0.5)  # of 0.625, 0.5, 0.5
    assert loaded == ["long", "short"], "each model scores once"
    rows = list(csv.reader(done("evaluate", *typed, "--weights", "3", "1", "--csv").splitlines()))
    assert rows[0][:7] == ["set", "metric", "long", "short", "ensemble", "n_pairs", "n_queries"]
    assert rows[1][:2] == [str(pairs), "spearman"] and float(rows[1][4]) == pytest.approx(100.0)
    record = measured(*typed)
    assert "scores" not in record and record["each"]["short"]["average"] == pytest.approx(-100.0)
    assert "ensemble" not in done("evaluate", *typed) and "ensemble" in done("evaluate", *typed, "--ensemble")
    refused("--weights has 1 numbers for 2 models", "evaluate", *typed, "--weights", "1")


def test_both_models_of_a_run_are_measured(measured, refused, pairs, monkeypatch):
    for form in ("bi-encoder", "cross-encoder"):
        Path("run", form).mkdir(parents=True)
    Path("run/recipe.toml").touch()
    scorer = SimpleNamespace(score=lambda pairs: np.arange(len(pairs), dtype=np.float32))
    with monkeypatch.context() as patch:
        patch.setattr("transencoder.cli.scoring._load_scorer", lambda *_: scorer)
        assert measured("run", "--pairs", pairs)["models"] == ["run/bi-encoder", "run/cross-encoder"]
    refused("it has run/bi-encoder and run/cross-encoder: give one of these", "score", "run", "--pairs", pairs)
    refused(
        "an ensemble (--ensemble, --weights) needs two models or more; there is only minilm",
        "evaluate",
        "minilm",
        "--ensemble",
        "--pairs",
        pairs,
    )


@pytest.mark.parametrize("sign", "=+-@\t")
def test_no_name_is_a_formula_in_a_spreadsheet(sign, done, loaded, pairs, tmp_path):
    """Was: a folder named `=HYPERLINK(...)` was computed; numbers below 0 stay numbers."""
    (tmp_path / f"{sign}p.tsv").write_bytes(Path(pairs).read_bytes())
    typed = ("evaluate", "short", "long", f"--pairs={sign}p.tsv", "--csv")
    (head, row) = csv.reader(done(*typed).splitlines())
    assert row[0] == f"'{sign}p.tsv" and float(row[2]) == pytest.approx(-100.0), head


def test_there_is_no_average_over_different_metrics(done, measured, loaded, tasks):
    tasks.gold.update(askubuntu=[0.0, 1.0, 0.0], scidocs=[0.0, 0.0, 1.0])
    typed = ("long", "--tasks", "stsb", "reranking")
    record = measured(*typed)
    assert record["metrics"] == {"stsb": "spearman", "askubuntu": "map", "scidocs": "map"}
    assert record["average"] is None
    assert (record["n_pairs"]["scidocs"], record["n_queries"]) == (3, {"askubuntu": 1, "scidocs": 1})
    out = done("evaluate", *typed)
    assert "map" in out and "1 query" in out and "average" not in out


@pytest.mark.parametrize("metric", ["map", "mrr_at_10"])
def test_the_pairs_of_equal_first_sentences_are_ranked(metric, measured, loaded, pairs):
    """The scores are 0.25, 0.5, 1: the first of `a` is its positive, ranked second; `b` has no negative."""
    pairs.write_text("sentence1\tsentence2\tscore\na\tx\t1\na\ty\t0\nb\tz\t1\n")
    record = measured("long", "--pairs", pairs, "--metric", metric)
    assert (record["metrics"], record["scores"]) == ({str(pairs): metric}, {str(pairs): 50.0})


def test_re_ranking_tasks_are_measured_by_map_or_mrr(measured, tiny_reranking, tiny_bi_encoder):
    typed = (tiny_bi_encoder, "--tasks", "reranking", "--data-dir", tiny_reranking, "--device", "cpu")
    by_map, by_mrr = measured(*typed), measured(*typed, "--metric", "mrr_at_10")
    assert by_map["metrics"] == {"askubuntu": "map", "scidocs": "map"}
    assert by_mrr["metrics"] == {"askubuntu": "mrr_at_10", "scidocs": "mrr_at_10"}
    assert all(0 < score < 100 for record in (by_map, by_mrr) for score in record["scores"].values())
    assert by_map["average"] == pytest.approx(sum(by_map["scores"].values()) / 2)
    assert by_map["scores"] != by_mrr["scores"]


def test_every_metric_can_be_asked_for(done):
    assert "{" + ",".join([*METRICS, *RANKING_METRICS]) + "}" in done("evaluate", "--help")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("--tasks", "sts99"), "unknown task 'sts99'"),
        (("--tasks", "sts12", "--columns", "a", "b"), "are for --pairs"),
        (("--tasks", "sts12", "--pairs", "a.tsv"), "not allowed with argument"),
        ((), "one of the arguments --tasks --pairs is required"),
        (("long", "--tasks", "sts12"), "give each once"),
        (("ensemble", "--ensemble", "--tasks", "sts12"), "give it as ./ensemble"),
    ],
)
def test_what_does_not_go_together_is_refused(typed, message, refused, loaded):
    refused(message, "evaluate", "long", *typed)
