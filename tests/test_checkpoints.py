import json

import pytest
import torch
from transformers import TrainerControl, TrainerState, TrainingArguments

from transencoder.checkpoints import KeepBest, newest_checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    def make(step, is_complete=True):
        folder = tmp_path / f"checkpoint-{step}"
        (folder / "inner").mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"weights")
        if is_complete:
            (folder / "complete.json").write_text("{}")
        return folder

    return make


def test_without_a_folder_or_a_checkpoint_there_is_none(tmp_path):
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "absent") is None


def test_the_newest_is_the_one_of_the_largest_step_and_older_ones_go(tmp_path, checkpoint):
    for step in (20, 3, 100):
        checkpoint(step)
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-100"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-100"]


def test_an_incomplete_one_is_ignored_and_deleted(tmp_path, checkpoint):
    checkpoint(20)
    checkpoint(40, is_complete=False)
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-20"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-20"]


def test_only_incomplete_ones_are_no_checkpoint(tmp_path, checkpoint):
    checkpoint(20, is_complete=False)
    assert newest_checkpoint(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


class Keeper:
    """A one-number model whose number is the step, and its KeepBest, told of evaluations and saves."""

    def __init__(self, folder):
        self.model = torch.nn.Linear(1, 1, bias=False)
        self.keep = KeepBest(self.model, folder)
        self.arguments = TrainingArguments(output_dir=str(folder), report_to="none", use_cpu=True)

    def evaluate(self, step, dev, **others):
        with torch.no_grad():
            self.model.weight.fill_(step)
        metrics = {"eval_dev": dev} | {f"eval_test_{name}": value for name, value in others.items()}
        self.keep.on_evaluate(self.arguments, TrainerState(global_step=step), TrainerControl(), metrics=metrics)

    def save(self, step):
        (self.keep.folder / f"checkpoint-{step}").mkdir()
        self.keep.on_save(self.arguments, TrainerState(global_step=step), TrainerControl())


def test_strictly_better_weights_win(tmp_path):
    keeper = Keeper(tmp_path)
    for step, dev in ((1, -5.0), (2, 30.0), (3, 30.0), (4, 29.0)):
        keeper.evaluate(step, dev)
    keeper.keep.load_best()
    assert keeper.model.weight.item() == keeper.keep.best_step == 2
    assert keeper.keep.best == 30.0
    assert keeper.keep.curve == [(1, -5.0), (2, 30.0), (3, 30.0), (4, 29.0)]
    assert keeper.keep.others == []


def test_a_checkpoint_gives_back_the_best_weights_and_the_curves(tmp_path):
    keeper = Keeper(tmp_path)
    keeper.evaluate(1, 10.0, stsb=1.0)
    keeper.evaluate(2, 5.0, stsb=2.0)
    keeper.save(2)
    again = Keeper(tmp_path)
    again.keep.restore(newest_checkpoint(tmp_path))
    again.evaluate(3, 9.0, stsb=3.0)
    again.keep.load_best()
    assert again.model.weight.item() == 1
    assert (again.keep.best, again.keep.best_step) == (10.0, 1)
    assert again.keep.curve == [(1, 10.0), (2, 5.0), (3, 9.0)]
    assert again.keep.others == [(1, {"test_stsb": 1.0}), (2, {"test_stsb": 2.0}), (3, {"test_stsb": 3.0})]


def test_saving_completes_the_checkpoint_and_drops_the_one_before(tmp_path):
    keeper = Keeper(tmp_path)
    keeper.save(1)  # before any evaluation
    assert json.loads((tmp_path / "checkpoint-1" / "complete.json").read_text())["best"] is None
    keeper.evaluate(2, 1.0)
    keeper.save(2)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]
    assert {path.name for path in (tmp_path / "checkpoint-2").iterdir()} == {
        "best.safetensors",
        "complete.json",
    }


def test_without_a_checkpoint_nothing_changes(tmp_path):
    keeper = Keeper(tmp_path)
    weight = keeper.model.weight.item()
    keeper.keep.restore(None)
    keeper.keep.load_best()
    assert keeper.model.weight.item() == weight


def test_an_undefined_metric_is_recorded_as_none_and_never_best(tmp_path):
    keeper = Keeper(tmp_path)
    keeper.evaluate(1, float("nan"), stsb=float("nan"))
    assert (keeper.keep.best, keeper.keep.curve, keeper.keep.others) == (None, [(1, None)], [(1, {"test_stsb": None})])
    keeper.evaluate(2, -3.0)
    keeper.evaluate(3, float("nan"))
    assert (keeper.keep.best, keeper.keep.best_step) == (-3.0, 2)
