"""Fits of tiny models (`fitting.py`): what is learned, kept, evaluated and gone on with."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from transformers import ModernBertConfig, ModernBertModel, T5Config, T5EncoderModel

from tests.fit.fitting import CONFIG, LOAD, LOSS, SCORER, Stopped, same, scripted
from transencoder.checkpoints import KeepBest
from transencoder.configs import FitConfig
from transencoder.evaluation import evaluate
from transencoder.fit import has_dropout, steps_in_all
from transencoder.fit.trainers import set_dropout
from transencoder.losses import CosineLoss, InfoNCELoss
from transencoder.runs.files import read_checked_json, write_checked_json


def test_it_learns_planted_similarity(form, fit_tiny, tiny_pairs, tiny_bi_encoder, cache):
    def dev(model):
        return {"dev": evaluate(SCORER[form](model, precision="fp32", cache=cache), tiny_pairs)}

    start = LOAD[form](Path(tiny_bi_encoder), max_length=24, device="cpu")
    before = dev(start)["dev"]
    model, fitted = fit_tiny(form, dev=dev, pairs=tiny_pairs, epochs=2, eval_steps=50)
    assert fitted.best > before + 8
    assert dev(model)["dev"] == fitted.best == max(value for _, value in fitted.curve)
    assert not model.training


def test_the_best_weights_are_kept_not_the_last(form, fit_tiny):
    shown = []
    model, fitted = fit_tiny(form, dev=scripted([1, 2, 9, 3, 9, 4], shown))
    assert (fitted.best, fitted.best_step) == (9, 6)  # the first of equals
    assert same(model.state_dict(), shown[2])
    assert not same(model.state_dict(), shown[-1])


def test_negative_metrics_choose_too(fit_tiny):
    assert fit_tiny("bi", dev=scripted([-3, -1, -2, -5, -9, -4]))[1].best_step == 4


def test_without_a_dev_set_the_last_weights_are_kept(form, fit_tiny, saved, tmp_path):
    model, fitted = fit_tiny(form)
    assert (fitted.best, fitted.best_step, fitted.curve, fitted.n_steps) == (None, 12, [], 12)
    (last,) = (tmp_path / "checkpoints").rglob("student.safetensors")
    assert last.parent.name == "checkpoint-12"
    assert same(load_file(last), model.state_dict())


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({}, [3, 4, 6, 8, 9, 12]),
        ({"eval_steps": 4}, [4, 8, 12]),
        ({"eval_steps": 100}, [4, 8, 12]),
        ({"eval_steps": 5, "batch_size": 8, "gradient_accumulation_steps": 3}, [3, 5, 6, 9]),
        ({"eval_steps": 1, "epochs": 1}, [1, 2, 3, 4]),
    ],
)
def test_it_evaluates_every_n_steps_and_at_each_epochs_end_never_twice(fit_tiny, changes, steps):
    _, fitted = fit_tiny("bi", dev=scripted(range(20)), **changes)
    assert [step for step, _ in fitted.curve] == steps
    assert [value for _, value in fitted.curve] == list(range(len(steps)))


def test_other_metrics_are_recorded_and_do_not_choose(fit_tiny):
    values = iter([(3, 40.0), (2, 50.0), (1, 60.0)])

    def dev(model):
        return dict(zip(("dev", "test_sick"), next(values), strict=True))

    _, fitted = fit_tiny("bi", dev=dev, eval_steps=4)
    assert fitted.best_step == 4
    assert fitted.others == [(4, {"test_sick": 40.0}), (8, {"test_sick": 50.0}), (12, {"test_sick": 60.0})]


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(form, fit_tiny, saved):
    first, second, other = (
        saved(fit_tiny(form, epochs=1, seed=seed, folder=str(i))[0]) for i, seed in enumerate((1, 1, 2))
    )
    assert first == second
    assert first != other


# Where a fit of 12 steps in 3 epochs is stopped: in the n-th evaluation, before and after the n-th checkpoint is complete.
# Steps 4, 8 and 12 end an epoch.
STOPS = [
    ("evaluation", 2),
    ("evaluation", 6),
    ("incomplete", 1),
    ("incomplete", 4),
    ("complete", 2),
    ("complete", 3),
    ("complete", 6),
]
DEVS = [1, 5, 2, 3, 4, 0]
UNINTERRUPTED = {}


@pytest.mark.parametrize(
    ("form", "precision", "stop"),
    [("bi", "fp32", stop) for stop in STOPS]
    + [("cross", "fp32", ("complete", nth)) for nth in (2, 3)]
    + [("bi", "bf16", ("complete", 2)), ("cross", "bf16", ("complete", 3))],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value)),
)
def test_stopped_and_resumed_it_ends_with_the_same_bytes(form, precision, stop, fit_tiny, saved, monkeypatch, tmp_path):
    if (form, precision) not in UNINTERRUPTED:
        model, fitted = fit_tiny(form, dev=scripted(DEVS), folder="whole", precision=precision)
        UNINTERRUPTED[form, precision] = saved(model), fitted.curve, fitted.best_step
    where, nth = stop
    done = []

    def count(name):
        done.append(name)
        if done.count(where) == nth and name == where:
            raise Stopped

    by_step = dict(zip((3, 4, 6, 8, 9, 12), DEVS, strict=True))
    progress = {"step": 0}

    def dev(model):
        count("evaluation")
        return {"dev": by_step[progress["step"]]}

    class Watched(KeepBest):
        def on_step_end(self, args, state, control, **more):
            progress["step"] = state.global_step
            count("step")
            super().on_step_end(args, state, control, **more)

        def on_save(self, args, state, control, **more):
            count("incomplete")
            super().on_save(args, state, control, **more)
            count("complete")

    monkeypatch.setattr("transencoder.fit.student.KeepBest", Watched)
    with pytest.raises(Stopped):
        fit_tiny(form, dev=dev, precision=precision)
    left = sorted(path.name for path in (tmp_path / "checkpoints").glob("checkpoint-*/complete.json"))
    assert len(left) <= 1
    where = ""
    model, fitted = fit_tiny(form, dev=dev, precision=precision)
    whole, curve, best_step = UNINTERRUPTED[form, precision]
    assert fitted.curve == curve
    assert fitted.best_step == best_step
    assert saved(model) == whole


def test_a_checkpoint_of_an_earlier_version_is_not_used(form, fit_tiny, saved, tmp_path, caplog):
    """Its optimiser may have moments of all token embeddings."""
    whole, _ = fit_tiny(form, folder="whole")

    def stop(model):
        raise Stopped

    with pytest.raises(Stopped):
        fit_tiny(form, dev=stop)
    (checkpoint,) = (tmp_path / "checkpoints").glob("checkpoint-*")
    record = read_checked_json(checkpoint / "complete.json")
    write_checked_json(checkpoint / "complete.json", {**record, "format": 2})
    model, _ = fit_tiny(form)
    assert saved(model) == saved(whole)
    assert "checkpoint-2 is of another version and goes, training begins anew" in caplog.text


def test_the_checkpoint_holds_the_best_weights_so_far(form, fit_tiny, tmp_path):
    shown = []
    answers = [1, 9, 3, 2]

    def dev(model):
        if len(shown) == 4:
            raise Stopped
        return scripted([answers[len(shown)]], shown)(model)

    with pytest.raises(Stopped):
        fit_tiny(form, dev=dev)
    (checkpoint,) = (tmp_path / "checkpoints").glob("checkpoint-*")
    assert checkpoint.name == "checkpoint-8"
    assert same(load_file(checkpoint / "best.safetensors"), shown[1])
    model, fitted = fit_tiny(form, dev=scripted([1, 0]))  # from 8 on nothing is better
    assert (fitted.best, fitted.best_step, [step for step, _ in fitted.curve]) == (9, 4, [3, 4, 6, 8, 9, 12])
    assert same(model.state_dict(), shown[1])


def test_an_incomplete_checkpoint_is_ignored(fit_tiny, saved, tmp_path):
    whole, _ = fit_tiny("bi", folder="whole")
    torn = tmp_path / "checkpoints" / "checkpoint-10"
    torn.mkdir(parents=True)
    (torn / "trainer_state.json").write_text('{"global_step": 10')
    (torn / "model.safetensors").write_bytes(b"half")
    model, _ = fit_tiny("bi")
    assert saved(model) == saved(whole)
    assert not torn.exists()


def test_checkpoints_by_the_clock_give_the_same_bytes_and_a_short_training_has_none(
    fit_tiny, saved, monkeypatch, tmp_path
):
    whole, _ = fit_tiny("bi", folder="whole", checkpoint_steps=None)
    assert not list((tmp_path / "whole").glob("checkpoint-*"))

    class Killed(KeepBest):
        def on_step_end(self, args, state, control, **more):
            if state.global_step == 6:
                raise Stopped
            super().on_step_end(args, state, control, **more)

    with monkeypatch.context() as patch:
        patch.setattr("transencoder.fit.student.KeepBest", Killed)
        patch.setattr("transencoder.checkpoints._LEAST_SECONDS", 0.0)
        patch.setattr("transencoder.checkpoints._TIMES_ITS_SECONDS", 0.0)
        with pytest.raises(Stopped):
            fit_tiny("bi", checkpoint_steps=None)
    assert [path.name for path in (tmp_path / "checkpoints").glob("checkpoint-*")] == ["checkpoint-5"]
    model, _ = fit_tiny("bi", checkpoint_steps=None)
    assert saved(model) == saved(whole)


def test_a_finished_fit_run_again_trains_no_step(fit_tiny, saved):
    model, first = fit_tiny("bi", dev=scripted(DEVS))

    def no_step(model):
        raise AssertionError("a step or an evaluation was done again")

    again, second = fit_tiny("bi", dev=no_step)
    assert saved(again) == saved(model)
    assert (second.curve, second.best_step, second.n_steps) == (first.curve, first.best_step, 12)


PLAIN = {"bucket_batches": 1, "epochs": 1, "dropout": 0.0, "learning_rate": 1e-4}
"""Without bucketing two fits see the same rows in the same order; dropout would draw differently."""


def check_alike(start, one, other):
    """Check that two trainings from one model have moved it alike."""
    start, one, other = (model.state_dict() for model in (start, one, other))
    moved = torch.cat([(one[name] - start[name]).flatten() for name in one])
    apart = torch.cat([(one[name] - other[name]).flatten() for name in one])
    assert moved.abs().max() > 1e-4
    assert apart.norm() < 0.02 * moved.norm()


def test_accumulated_batches_are_one_large_batch(form, fit_tiny):
    start, _ = fit_tiny(form, **PLAIN | {"learning_rate": 0.0}, folder="start")
    large, one = fit_tiny(form, **PLAIN, folder="large")
    parts, several = fit_tiny(form, **PLAIN, batch_size=4, gradient_accumulation_steps=4, folder="parts")
    assert one.n_steps == several.n_steps == 4
    check_alike(start, large, parts)


def test_a_large_batch_is_learned_in_parts(form, fit_tiny, monkeypatch):
    """Parts may have different sizes; contrastive losses compare all rows of a batch."""
    seen = []

    def counted(loss):
        def build(model):
            built = loss(model)
            built.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[1])))
            return built

        return build

    sizes = PLAIN | {"batch_size": 15}
    start, _ = fit_tiny(form, **sizes | {"learning_rate": 0.0}, folder="start")
    whole, _ = fit_tiny(form, **sizes, loss=counted(LOSS[form]), folder="whole")
    assert seen == [15, 15, 15, 15, 4]
    monkeypatch.setattr("transencoder.fit.trainers._TOKENS_AT_ONCE", 150)
    seen.clear()
    parts, _ = fit_tiny(form, **sizes, loss=counted(LOSS[form]), folder="parts")
    assert sum(seen) == 64 and len(seen) > 5 and {7, 8} <= set(seen)
    check_alike(start, whole, parts)
    if form == "bi":
        seen.clear()
        fit_tiny(form, **sizes, loss=counted(InfoNCELoss), folder="contrastive")
        assert seen == [15, 15, 15, 15, 4]


def test_pairs_that_share_a_sentence_come_together_and_it_is_read_once(fit_tiny):
    """A contrastive loss, to which they would be false negatives, gets random ones, and reads every text."""
    words = ("balo", "bama", "dalo", "dama")
    rows = [(f"{one} {two} kama", text) for one in words for two in words for text in words]
    random.Random(0).shuffle(rows)
    pairs = Dataset.from_dict({"sentence1": [row[0] for row in rows], "sentence2": [row[1] for row in rows]})
    sizes = PLAIN | {"batch_size": 16, "bucket_batches": 4}

    def read(loss):
        def watched(model):
            model[0].register_forward_hook(lambda _, inputs, output: seen.append(inputs[0]["input_ids"]))
            return loss(model)

        seen = []
        fit_tiny("bi", loss=watched, pairs=pairs, targets=np.full(64, 0.5, np.float32), folder=str(loss), **sizes)
        return [len(texts) for texts in seen], [len(texts.unique(dim=0)) for texts in seen]

    assert read(LOSS["bi"]) == ([4 + 4] * 4, [4 + 4] * 4), "four longer texts, and the four others"
    all_texts, distinct = read(InfoNCELoss)
    assert all_texts == [2 * 16] * 4
    assert min(distinct) > 4 + 4


def test_dropout_that_attention_holds_as_a_number_is_set_too():
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    modern = ModernBertModel(ModernBertConfig(**size, vocab_size=9, pad_token_id=0, attention_dropout=0.1))
    t5 = T5EncoderModel(T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=9))
    for model in (modern, t5):
        assert has_dropout(model)
        set_dropout(model, 0.0)
        assert not has_dropout(model)
        model.train()
        ids = torch.tensor([[3, 4, 5, 6]])
        assert torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)


def test_without_dropout_the_loss_is_that_of_the_model_in_use(form, fit_tiny, tiny_pairs):
    """One batch of everything: the gradient is then the whole set's, and the trained and the evaluated model agree."""
    losses = []

    def watched(model):
        loss = LOSS[form](model)
        loss.register_forward_hook(lambda module, inputs, output: losses.append(output.item()))
        return loss

    whole = {"batch_size": 64, "epochs": 1, "learning_rate": 0.0, "bucket_batches": 1, "loss": watched}
    for folder, dropout in (("a", 0.0), ("b", 0.5), ("c", None)):
        fit_tiny(form, **whole, dropout=dropout, folder=folder)
    assert len(losses) == 3
    assert len(set(losses)) == 3
    again, _ = fit_tiny(form, **whole, dropout=0.0, folder="d", seed=5)
    assert losses[3] == pytest.approx(losses[0], rel=1e-5)
    assert {module.p for module in again.modules() if isinstance(module, torch.nn.Dropout)} == {0.0}


# sentence-transformers 6 still calls the old name of transformers' activation_checkpointing_enable.
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated:FutureWarning")
def test_gradient_checkpointing_changes_memory_not_the_result(form, fit_tiny):
    plain, _ = fit_tiny(form, epochs=1, folder="plain")
    recomputed, _ = fit_tiny(form, epochs=1, gradient_checkpointing=True)
    for name, tensor in plain.state_dict().items():
        assert torch.allclose(tensor, recomputed.state_dict()[name], atol=1e-5), name


@pytest.mark.parametrize(("precision", "products"), [("fp32", "highest"), ("bf16", "medium")])
def test_a_losss_own_products_have_the_trainings_precision(precision, products, fit_tiny):
    seen = []

    class Watched(CosineLoss):
        def forward(self, *arguments):
            seen.append(torch.get_float32_matmul_precision())
            return super().forward(*arguments)

    fit_tiny("bi", loss=Watched, precision=precision, epochs=1)
    assert set(seen) == {products}
    assert torch.get_float32_matmul_precision() == "highest"


def test_both_orders_are_trained(fit_tiny, tiny_pairs, saved):
    one, once = fit_tiny("cross", epochs=1, folder="one")
    both, twice = fit_tiny("cross", epochs=1, both_orders=True)
    assert (once.n_steps, twice.n_steps) == (4, 8)
    assert saved(one) != saved(both)


@pytest.mark.parametrize("changes", [{}, {"batch_size": 7}, {"batch_size": 7, "gradient_accumulation_steps": 2}])
def test_the_plan_knows_the_number_of_steps(fit_tiny, changes):
    _, fitted = fit_tiny("cross", both_orders=True, epochs=2, **changes)
    config = FitConfig(**(CONFIG | {"epochs": 2} | changes))
    assert fitted.n_steps == steps_in_all(128, config)


def test_the_student_reads_as_many_tokens_as_the_config_says(form, fit_tiny):
    model, _ = fit_tiny(form, epochs=1, max_length=5)
    assert model.max_seq_length == 5
