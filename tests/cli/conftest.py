"""The command line in this process, with what a command printed; and stand-ins for the parts that train."""

import logging
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from transencoder.cli import main

RECIPE = """method = "trans-encoder"
pairs = "a.tsv"
output = "run"

[[members]]
start = "x"
cross_start = "y"
"""


@pytest.fixture(autouse=True)
def _wide(monkeypatch, tmp_path):
    """No line is wrapped, the current directory is empty, data are looked for and kept below it."""
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))
    for name in ("RANK", "TRANSENCODER_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    assert logging.getLogger("transencoder").level == logging.NOTSET


@pytest.fixture
def run(capsys):
    """Run a command; returns (exit code, stdout, stderr)."""

    def run_command(*argv):
        code = main([str(part) for part in argv])
        output = capsys.readouterr()
        return code, output.out, output.err

    return run_command


@pytest.fixture
def done(run):
    """Run a command that must succeed; returns its stdout."""

    def run_command(*argv):
        code, out, err = run(*argv)
        assert code == 0, err
        return out

    return run_command


@pytest.fixture
def refused(run):
    """Check that a command is refused as bad input, with a message on stderr alone."""

    def check(message, *argv):
        code, out, err = run(*argv)
        assert (code, out) == (2, ""), err
        assert message in err and "Traceback" not in err

    return check


@pytest.fixture
def sentences(tmp_path, tiny_sentences):
    """A file of the tiny sentences, one a line."""
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(tiny_sentences["text"]) + "\n")
    return path


@pytest.fixture
def cross(tiny_plm, tmp_path):
    """Folder of a random cross-encoder."""
    import torch
    from sentence_transformers import CrossEncoder

    torch.manual_seed(0)
    CrossEncoder(tiny_plm, num_labels=1, device="cpu").save_pretrained(str(tmp_path / "cross"))
    return tmp_path / "cross"


SCORES = {"long": [0.25, 0.5, 1.0], "short": [0.75, 0.5, 1.0 / 3.0]}


@pytest.fixture
def loaded(monkeypatch):
    """Models `long` and `short`, which give three pairs their scores; returns the names of those that were loaded."""
    names = []

    def load_scorer(name, scoring, where, token_folder):
        names.append(name)
        return SimpleNamespace(score=lambda pairs: np.float32(SCORES[name]))

    monkeypatch.setattr("transencoder.cli.scoring._load_scorer", load_scorer)
    monkeypatch.setattr(
        "transencoder.cli.scoring.fingerprints_of", lambda scoring, where: [f"of {name}" for name in scoring.models]
    )
    return names


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("sentence1\tsentence2\tscore\na\tbb\t1\nccc\td\t3\nee\tffff\t5\n")
    return path


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def training(monkeypatch, tmp_path):
    """Stands in for the engine: keeps the configs it was given."""
    result = {
        "metric": "spearman",
        "scores": {"start": {"stsb": 80.0}, "bi": {"stsb": 81.5}, "cross": {"stsb": 82.0}},
        "dev": None,
        "data": {"pairs": {}, "dev": None, "tests": {"stsb": {"metric": "spearman"}}},
        "config": {},
        "analysis": None,
        "stages": [],
        "notes": [],
        "cycles": [{}],
        "best": {form: {"cycle": 1, "dev": None, "path": f"{form}-encoder"} for form in ("bi", "cross")},
    }
    seen, recipes = [], []
    for name in ("a.tsv", "mine.tsv"):
        (tmp_path / name).touch()

    def train(config, recipe=None):
        seen.append(config)
        recipes.append(recipe)
        return SimpleNamespace(result=result, folder=tmp_path / config.output)

    class Plan(SimpleNamespace):
        stages = {}

        def __str__(self):
            return f"the plan of {self.output}"

    def plan(config, known=()):
        seen.append(config)
        return Plan(output=config.output)

    module = SimpleNamespace(train=train, plan=plan, seen=seen, recipes=recipes)
    monkeypatch.setitem(sys.modules, "transencoder.training", module)
    return module
