"""What the demo shows, on tiny models and with training left out."""

import os
import shlex
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer

from transencoder import cli, demo

RESULT = {
    "metric": "spearman",
    "dev": None,
    "data": {"pairs": {}, "dev": None, "tests": {"test": {}}},
    "config": {},
    "analysis": None,
    "notes": [],
    "cycles": [{}],
    "best": {form: {"cycle": 1, "dev": None, "path": f"{form}-encoder"} for form in ("bi", "cross")},
    "scores": {"start": {"test": 50.0}, "bi": {"test": 47.25}, "cross": {"test": 51.5}},
}


@pytest.fixture
def shown(tiny_bi_encoder, tmp_path, monkeypatch, capsys):
    """What the demo prints after a training that made things worse."""
    trained = SimpleNamespace(
        bi_encoder=SentenceTransformer(tiny_bi_encoder, device="cpu"),
        cross_encoder=CrossEncoder(tiny_bi_encoder, num_labels=1, device="cpu"),
        result=RESULT,
        folder=tmp_path / "run",
    )
    training = ModuleType("transencoder.training")
    training.train = lambda config, recipe: trained
    monkeypatch.setitem(sys.modules, "transencoder.training", training)
    monkeypatch.setattr(demo, "resolve_model", lambda name: tiny_bi_encoder)
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cli.terminal, "_WIDTH_OF_FILES", 400)
    assert cli.main(["demo", "--output", str(tmp_path / "run")]) == 0
    return capsys.readouterr().out


def test_a_loss_is_shown_as_it_is(shown):
    assert "47.25" in shown
    assert "-2.75" in shown
    assert "The bi-encoder is worse than the base model on the tests (47.25 against 50.00)" in shown


def test_five_pairs_from_unrelated_to_same(shown):
    lines = shown.partition("Five test pairs")[2].splitlines()
    gold = [line.split("│")[3].strip() for line in lines if line.count("│") == 7]
    assert gold == ["0", "1", "2", "4", "5"]


@pytest.mark.parametrize("found", [None, "/somewhere/bin/transencoder"])
def test_next_commands_parse(found, monkeypatch, tmp_path):
    """As typed where the command is found, with its path where it is not, such as after `make demo`."""
    monkeypatch.setattr(demo, "which", lambda name: found)
    monkeypatch.chdir(tmp_path)
    shown = demo.next_steps(tmp_path / "run")
    lines = [line.partition(":")[2].split(maxsplit=1) for line in shown.splitlines() if "transencoder " in line]
    typed = "transencoder" if found else os.path.relpath(Path(sys.executable).with_name("transencoder"))
    assert {command for command, _ in lines} == {typed}
    commands = [shlex.split(arguments) for _, arguments in lines]
    assert {command[0] for command in commands} == {"train", "score", "runs"}
    for command in commands:
        _, unknown = cli._parser().parse_known_args(command)
        assert not unknown


def test_config_uses_the_shipped_files():
    config = demo.demo_config("somewhere")
    assert config.output == "somewhere"
    for path in (config.pairs, config.dev, *config.tests):
        assert (demo.DATA / path).is_file()
