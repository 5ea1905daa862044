"""The command line in this process, with what a command printed; and stand-ins for the parts that train."""

import logging
import sys
from types import SimpleNamespace

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
    """No line is wrapped, and the current directory is empty."""
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.delenv("RANK", raising=False)
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
        "data": {"pairs": {}, "dev": None, "tests": {"stsb": {}}},
        "config": {},
        "analysis": None,
        "notes": [],
        "cycles": [{}],
        "best": {form: {"cycle": 1, "dev": None, "path": f"{form}-encoder"} for form in ("bi", "cross")},
    }
    seen, recipes = [], []

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
