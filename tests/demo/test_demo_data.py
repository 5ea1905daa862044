"""The shipped data keeps what its README promises."""

import runpy
from collections import Counter
from pathlib import Path

import pytest

from transencoder.demo import DATA, read_questions
from transencoder.pairs import drop_duplicates, read_pairs, read_sentences


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path))


def read(name):
    return read_pairs(DATA / f"{name}.tsv")


def folded(dataset):
    return {" ".join(text.casefold().split()) for name in ("sentence1", "sentence2") for text in dataset[name]}


@pytest.fixture(scope="module")
def composed():
    tool = Path(__file__).resolve().parents[2] / "tools" / "compose_demo.py"
    return runpy.run_path(str(tool))["compose_pairs"](read_questions())


def test_questions_are_many_and_distinct():
    questions = read_questions()
    assert len({text.casefold() for _, text in questions}) == len(questions) >= 1000
    asked = Counter(intent for intent, _ in questions)
    assert len(asked) >= 150
    assert min(asked.values()) >= 5


def test_readers_take_the_files_as_they_are():
    assert read_sentences(DATA / "questions.tsv", column="text", header=True)["text"][0] == read_questions()[0][1]
    assert read("pairs").column_names == ["sentence1", "sentence2"]
    assert read("dev").column_names == ["sentence1", "sentence2", "score"]


def test_pairs_are_those_that_compose_draws(composed):
    pairs = read("pairs")
    assert list(zip(pairs["sentence1"], pairs["sentence2"], strict=True)) == composed


def test_a_third_of_the_pairs_share_an_intent_and_a_sixth_a_device(composed):
    intents = {text: intent for intent, text in read_questions()}
    pairs = [(intents[one], intents[other]) for one, other in composed]
    devices = [(one.split("-")[0], other.split("-")[0]) for one, other in pairs]
    assert len(pairs) == len(set(composed)) == 1500
    assert sum(one == other for one, other in pairs) == 500
    assert 750 <= sum(one == other for one, other in devices) < 900


@pytest.mark.parametrize("name", ["dev", "test"])
def test_graded_pairs(name):
    pairs = read(name)
    assert len(pairs) == len(drop_duplicates(pairs)) == 300
    assert set(pairs["score"]) == {0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5}


def test_no_sentence_in_two_parts():
    parts = [
        {" ".join(text.casefold().split()) for _, text in read_questions()},
        folded(read("dev")),
        folded(read("test")),
    ]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]
    assert not folded(read("pairs")) - parts[0]
