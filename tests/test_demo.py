"""The demo's data keep what their README promises, and its next steps are commands; `tests/cli` runs it."""

import os
import runpy
import shlex
import sys
from collections import Counter
from pathlib import Path

import pytest

from transencoder import cli, demo, read_pairs, read_sentences
from transencoder.demo import DATA, read_questions
from transencoder.pairs import drop_duplicates


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))


def read(name):
    return read_pairs(DATA / f"{name}.tsv")


def folded(dataset):
    return {" ".join(text.casefold().split()) for name in ("sentence1", "sentence2") for text in dataset[name]}


@pytest.fixture(scope="module")
def composed():
    tool = Path(__file__).resolve().parents[1] / "tools" / "compose_demo.py"
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


def test_pairs_are_those_that_the_tool_draws_a_third_of_one_intent_and_a_sixth_of_one_device(composed):
    shipped = read("pairs")
    assert list(zip(shipped["sentence1"], shipped["sentence2"], strict=True)) == composed
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
    questions = {" ".join(text.casefold().split()) for _, text in read_questions()}
    dev, test = folded(read("dev")), folded(read("test"))
    assert not questions & dev | questions & test | dev & test
    assert not folded(read("pairs")) - questions


@pytest.mark.parametrize("found", [None, "/somewhere/bin/transencoder"])
def test_next_commands_parse(found, monkeypatch, tmp_path):
    """As typed where the command is found, with its path where it is not, such as after `make demo`."""
    monkeypatch.setattr(demo, "which", lambda name: found)
    monkeypatch.chdir(tmp_path)
    shown = demo.next_steps(tmp_path / "run")
    typed = "transencoder" if found else os.path.relpath(Path(sys.executable).with_name("transencoder"))
    lines = [line.partition(":")[2].split(maxsplit=1) for line in shown.splitlines() if f"{typed} " in line]
    commands = [shlex.split(arguments) for command, arguments in lines if command == typed]
    assert {command[0] for command in commands} == {"train", "score", "runs", "grade"}
    for command in commands:
        _, unknown = cli._parser().parse_known_args(command)
        assert not unknown


def test_config_uses_the_shipped_files():
    config = demo.demo_config("somewhere")
    assert config.output == "somewhere"
    for path in (config.pairs, config.dev, *config.tests):
        assert (DATA / path).is_file()
