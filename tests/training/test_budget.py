"""`budget`: what fits into a given time, by the pace that was measured, and that a run keeps to what it chose."""

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from datasets import Dataset

from transencoder import FitConfig, Member, train
from transencoder.checkpoints import KeepBest
from transencoder.errors import InputError
from transencoder.models import OWN_PROMPTS
from transencoder.recipes import load_recipe
from transencoder.runs.files import read_checked_json
from transencoder.training import budget, plan
from transencoder.training.budget import Budget

PACE = 0.01
"""Seconds that each form takes to train on a pair."""


@pytest.fixture
def given(tiny_method):
    """600 seconds, of which 15 and 3 % are for other things, leave 567."""

    def make(**changes):
        fields = {"budget": "10m", "bi": FitConfig(), "cross": FitConfig(), "cycles": None}
        return tiny_method(**fields | changes)

    return make


def fitted(config, n_pairs, n_texts=0, n_workers=1):
    full = config.prepared(10**6)
    forms = ["bi"] if full.same_form else ["bi", "cross"]
    pace = {(number, form): PACE for number in range(len(full.members)) for form in forms}
    fits = Budget(config, n_workers, pace).fitted(full, n_pairs, n_pairs, n_texts)
    return fits.amount, fits


def seconds_of(amount, n_forms=2):
    """Say again what labelling and training take: every epoch reads all pairs, every cycle labels them."""
    passes = sum(amount.epochs.values()) + n_forms / 3
    return amount.cycles * amount.n_pairs * PACE * passes


def test_all_of_it_is_trained_where_the_time_is_enough(given):
    amount, fits = fitted(given(), 1000)
    assert (amount.n_pairs, amount.cycles, amount.epochs) == (1000, 3, {"bi": 10, "cross": 1})
    assert amount.seconds == pytest.approx(seconds_of(amount)) and not fits.less


@pytest.mark.parametrize(
    ("n_pairs", "expected"),
    [
        (2000, (1620, 3, {"bi": 10, "cross": 1})),
        (2450, (2429, 2, {"bi": 10, "cross": 1})),
        (4000, (4000, 1, {"bi": 10, "cross": 1})),
        (8000, (5865, 1, {"bi": 8, "cross": 1})),
    ],
)
def test_cycles_go_first_and_epochs_next_and_up_to_a_third_of_the_pairs_before_each(given, n_pairs, expected):
    amount, fits = fitted(given(), n_pairs)
    assert (amount.n_pairs, amount.cycles, amount.epochs) == expected
    assert seconds_of(amount) == pytest.approx(amount.seconds) and amount.seconds <= 567
    assert ("cycles" in fits.less) == (amount.cycles < 3) and fits.because.startswith(
        f"budget 10m; all {n_pairs:,} pairs in 3 cycles"
    )


def test_pairs_go_last(given):
    amount, fits = fitted(given(), 100_000)
    assert amount.epochs == {"bi": 2, "cross": 1} and 15_000 < amount.n_pairs < 16_000
    assert amount.seconds == pytest.approx(seconds_of(amount), rel=1e-3) and 566 < amount.seconds <= 567
    assert fits.less == {"n_pairs": amount.n_pairs, "cycles": 1, "bi.epochs": 2}


def test_numbers_that_the_user_gave_stay(given):
    amount, fits = fitted(given(cycles=3, bi=FitConfig(epochs=5)), 100_000)
    assert (amount.cycles, amount.epochs["bi"]) == (3, 5)
    assert list(fits.less) == ["n_pairs"]
    with pytest.raises(InputError, match=r"budget is 10m, and 100,000 pairs, the least, take longer .* at least 64m"):
        fitted(given(n_pairs=100_000), 100_000)


@pytest.mark.parametrize(("n_workers", "times"), [(1, 1 / 3), (2, 1 / 2), (3, 1)])
def test_members_take_turns_by_the_number_of_workers(n_workers, times, given, tiny_bi_encoder):
    three = given(members=(Member(start=tiny_bi_encoder),) * 3)
    alone, all_of_them = fitted(given(), 100_000)[0], fitted(three, 100_000, n_workers=n_workers)[0]
    assert all_of_them.n_pairs == pytest.approx(alone.n_pairs * times, abs=1)


def test_embedding_the_texts_takes_its_part(given):
    alone, mined = fitted(given(), 100_000)[0], fitted(given(), 100_000, n_texts=60_000)[0]
    assert mined.n_pairs == pytest.approx(alone.n_pairs * (1 - 60_000 * PACE / 6 / 567), abs=1)


def test_too_little_time_is_refused_with_a_time_that_is_enough(given):
    with pytest.raises(InputError, match=r"budget is 30s, and 500 pairs, the least, take longer .* at least 1m"):
        fitted(given(budget="30s"), 100_000)
    assert fitted(given(budget="1m"), 100_000)[0].n_pairs >= 500


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"extra_pairs": "more.tsv"}, "budget does not count what extra_pairs take"),
        ({"teachers": ("minilm",)}, "budget does not count the time of other teachers"),
        ({"budget": "auto"}, "budget is 'auto'; give a time"),
    ],
)
def test_what_is_not_counted_is_refused(changes, said, given):
    with pytest.raises(InputError, match=said):
        given(**changes)


@pytest.fixture
def slow(monkeypatch):
    """Every encoder takes a second for a pair."""
    monkeypatch.setattr(budget.Timing, "compute", lambda *_: (1.0, 0.0))
    monkeypatch.setattr(budget, "LEAST_PAIRS", 20)


def test_a_run_takes_what_fits_and_takes_the_same_again(given, slow, monkeypatch, caplog):
    config = given(budget="3m", preset="standard")
    with caplog.at_level(logging.INFO):
        trained = train(config)
    result = trained.result
    assert result["data"]["pairs"]["rows"] == int((180 * 0.97 - 15) / (2 + 1 / 3)) == 68
    assert (result["config"]["bi"]["epochs"], result["config"]["n_pairs"]) == (2, 68)
    settings = {each["setting"]: each["because"] for each in result["choices"]}
    assert {"n_pairs", "same_form"} <= set(settings) and "would take about" in settings["n_pairs"]
    recipe = load_recipe(trained.folder / "recipe.toml")
    assert (recipe.budget, recipe.bi.epochs, recipe.n_pairs, recipe.cycles) == ("3m", None, None, None)
    assert "n_pairs" in caplog.text and "about" in caplog.text
    monkeypatch.setattr(budget.Timing, "compute", lambda *_: (0.001, 0.0))  # a quicker machine later
    again = train(config)
    assert again.result["data"] == result["data"]
    assert all(stage["reused"] for stage in again.result["stages"])


def test_a_run_from_sentences_embeds_mines_and_trains_within_it(given, slow, tmp_path, tiny_pairs):
    texts = [*tiny_pairs["sentence1"], *tiny_pairs["sentence2"]]
    config = given(budget="5m", preset="standard", pairs=None, sentences=texts)
    result = train(config).result
    record = result["data"]["pairs"]
    assert record["mined"]["sentences"]["rows"] < len(texts) and record["rows"] < 100
    settings = {each["setting"]: each for each in result["choices"]}
    assert settings["n_sentences"]["value"] == record["mined"]["sentences"]["rows"] == result["config"]["n_sentences"]
    assert "all 2,000 pairs" in settings["n_pairs"]["because"]  # five for each of the 400 texts


def test_time_is_measured_by_training(given, monkeypatch):
    """A step takes some hundredths of a second; the whole measurement has 9 of them, and two trainers' starts."""
    saved = []
    monkeypatch.setattr(KeepBest, "on_save", lambda *_, **__: saved.append(True))
    trained = train(given(preset="standard", budget="1h"))
    assert not saved, "was: a checkpoint of the last step, which was timed too"
    (path,) = trained.folder.glob("stages/timing*/stage.json")
    found = read_checked_json(path)["result"]
    n_pairs = 64 * (1 + 8)
    assert 0.0 < 10 * found["seconds"] < found["spent"]
    assert found["seconds"] * n_pairs > found["spent"] / 1000
    assert not [each for each in trained.result["choices"] if "budget" in each["because"]]


@pytest.mark.parametrize(
    ("n_rows", "is_text", "n_pairs", "epochs"),
    [(40, False, 40, 8), (150, False, 150, 2), (5000, False, 8 * 64, 1), (40, True, 80, 4), (5000, True, 8 * 64, 1)],
)
def test_no_pair_is_timed_twice_in_an_epoch(n_rows, is_text, n_pairs, epochs, tiny_bi_encoder, monkeypatch):
    texts = [f"balo {i}" for i in range(n_rows)]
    columns = {"text": texts} if is_text else {"sentence1": texts, "sentence2": texts[::-1]}
    seen = []

    def fit(student, loss, data, dev, config, session):
        seen.append((data.pairs, config.epochs))
        return SimpleNamespace(seconds=1.0)

    monkeypatch.setattr(budget, "fit", fit)
    monkeypatch.setattr(budget.Timing, "_student", lambda *_: None)
    timing = budget.Timing(
        name="timing",
        rows=SimpleNamespace(data=Dataset.from_dict(columns)),
        base=SimpleNamespace(form="bi", prompts=OWN_PROMPTS),
        fit=FitConfig(batch_size=64),
        precision="fp32",
        seed=0,
    )
    work = SimpleNamespace(folder=Path("nowhere"), cache=None)
    assert timing._trained(work, 8) == (1.0, epochs * n_pairs)
    ((pairs, n_epochs),) = seen
    assert (len(pairs), n_epochs) == (n_pairs, epochs)
    used = [*pairs["sentence1"], *pairs["sentence2"]]
    assert len(set(used)) <= n_pairs // 2 if is_text else len(set(pairs["sentence1"])) == n_pairs


def test_a_plan_measures_nothing_and_estimates(given, monkeypatch):
    monkeypatch.setattr(budget.Timing, "compute", lambda *_: pytest.fail("a plan trained"))
    monkeypatch.setattr(budget, "operations_a_second", lambda _: 1e5)
    found = plan(replace(given(), budget="20h"))
    assert any("budget 20h; all 96 pairs" in line for line in found.lines)
