"""Checkpoints count when they are complete, and give back the best weights and the curves."""

import json

import pytest
import torch
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import SaveStrategy

from transencoder.checkpoints import KeepBest, newest_checkpoint
from transencoder.runs.files import write_checked_json


@pytest.mark.parametrize(
    ("complete", "incomplete", "kept"),
    [((), (), None), ((20, 3, 100), (), 100), ((20,), (40,), 20), ((), (20,), None)],
)
def test_the_newest_complete_one_stays_and_all_others_go(complete, incomplete, kept, tmp_path):
    assert newest_checkpoint(tmp_path / "absent") is None
    for step in (*complete, *incomplete):
        folder = tmp_path / f"checkpoint-{step}"
        (folder / "inner").mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"weights")
        if step in complete:
            record = {"format": 3, "best": None, "best_step": 0, "curve": [], "others": [], "files": {}}
            write_checked_json(folder / "complete.json", record)
    expected = None if kept is None else tmp_path / f"checkpoint-{kept}"
    assert newest_checkpoint(tmp_path) == expected
    assert list(tmp_path.iterdir()) == ([expected] if expected else [])


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


@pytest.fixture
def keeper(tmp_path):
    return Keeper(tmp_path)


def test_strictly_better_weights_win(keeper):
    keeper.model.weight.data.fill_(7)
    keeper.keep.restore(None)
    keeper.keep.load_best()
    assert keeper.model.weight.item() == 7, "without a checkpoint nothing changes"
    for step, dev in ((1, -5.0), (2, 30.0), (3, 30.0), (4, 29.0)):
        keeper.evaluate(step, dev)
    keeper.keep.load_best()
    assert keeper.model.weight.item() == keeper.keep.best_step == 2
    assert keeper.keep.best == 30.0
    assert keeper.keep.curve == [(1, -5.0), (2, 30.0), (3, 30.0), (4, 29.0)]
    assert keeper.keep.others == []


def test_a_checkpoint_gives_back_the_best_weights_and_the_curves(keeper, tmp_path):
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


def test_saving_completes_the_checkpoint_and_drops_the_one_before(keeper, tmp_path):
    keeper.save(1)  # before any evaluation
    assert json.loads((tmp_path / "checkpoint-1" / "complete.json").read_text())["best"] is None
    keeper.evaluate(2, 1.0)
    keeper.save(2)
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {"checkpoint-2/best.safetensors", "checkpoint-2/complete.json"}


def test_one_is_due_after_a_minute_and_after_fifty_times_what_the_last_one_took(keeper, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("transencoder.checkpoints.time.monotonic", lambda: now[0])
    keeper = Keeper(keeper.keep.folder)
    keeper.arguments.save_strategy = SaveStrategy.NO

    def is_due(seconds):
        now[0] = seconds
        state, control = TrainerState(global_step=1, max_steps=9, num_train_epochs=1), TrainerControl()
        keeper.keep.on_step_end(keeper.arguments, state, control)
        return control.should_save

    assert [is_due(seconds) for seconds in (1, 59, 61)] == [False, False, True]
    now[0] = 64  # it took three seconds
    keeper.save(1)
    assert [is_due(64 + seconds) for seconds in (61, 149, 151)] == [False, False, True]


def test_an_undefined_metric_is_recorded_as_none_and_never_best(keeper):
    keeper.evaluate(1, float("nan"), stsb=float("nan"))
    assert (keeper.keep.best, keeper.keep.curve, keeper.keep.others) == (None, [(1, None)], [(1, {"test_stsb": None})])
    keeper.evaluate(2, -3.0)
    keeper.evaluate(3, float("nan"))
    assert (keeper.keep.best, keeper.keep.best_step) == (-3.0, 2)


@pytest.mark.parametrize(
    ("name", "content"),
    [("best.safetensors", b""), ("best.safetensors", b"other"), ("best.safetensors", None), ("complete.json", b"{}")],
)
def test_a_damaged_checkpoint_is_left_with_a_line_and_never_taken(keeper, tmp_path, name, content, caplog):
    keeper.evaluate(1, 10.0)
    keeper.save(1)
    weights = tmp_path / "checkpoint-1" / name
    if content is None:
        weights.unlink()
    else:
        weights.write_bytes(content)
    assert newest_checkpoint(tmp_path) is None and not list(tmp_path.iterdir())
    assert caplog.messages[0].startswith("a checkpoint is damaged and not used") and str(weights) in caplog.text
