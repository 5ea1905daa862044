"""What `recipes run` does around the trainings."""

import pytest

from transencoder.cli import train
from transencoder.errors import RunInUseError

RECIPE = """method = "simcse"
sentences = "s.txt"
start = "x"
output = "runs/{0}"
after = {1}
"""


@pytest.fixture
def in_use(monkeypatch, training, tmp_path):
    """The run `runs/first` is another process's until it has been waited for; returns what was waited for."""
    waited = []

    def train_and_show(config, recipe=None):
        if config.output == "runs/first" and len(waited) < 2:
            raise RunInUseError("runs/first is in use by process 7; one process at a time may work on a run")
        waited.append(config.output)

    monkeypatch.setattr(train, "train_and_show", train_and_show)
    monkeypatch.setattr(train, "wait_until_free", lambda folder: waited.append(f"waited for {folder}"))
    for name, after in {"first": "[]", "second": '["first.toml"]'}.items():
        (tmp_path / f"{name}.toml").write_text(RECIPE.format(name, after))
    return waited


def test_what_a_recipe_comes_after_is_waited_for_while_another_process_trains_it(run, in_use):
    """Was: of two recipes after the same one, started side by side, one failed."""
    code, _, err = run("recipes", "run", "second.toml")
    assert (code, in_use) == (0, ["waited for runs/first"] * 2 + ["runs/first", "runs/second"])
    assert err.count("waiting: runs/first is in use by process 7\n") == 2


def test_a_recipe_that_was_asked_for_is_not_waited_for(run, in_use):
    code, _, err = run("recipes", "run", "first.toml")
    assert (code, in_use) == (3, [])
    assert "runs/first is in use by process 7; one process at a time" in err
