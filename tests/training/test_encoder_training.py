"""Starting encoders: what the loss trains beside the encoder, and what is kept of it."""

from dataclasses import replace

import pytest
import torch

from transencoder import context, train
from transencoder.checkpoints import KeepBest
from transencoder.errors import InputError
from transencoder.fit import student
from transencoder.losses import DropHead, drophead
from transencoder.training import encoder_stages


@pytest.fixture
def before_training(tiny_start, monkeypatch):
    """Return a method's loss as it is before the first step; the run then ends."""
    losses = []

    def stop(model, folder, loss, **options):
        losses.append(loss)
        raise KeyboardInterrupt

    def loss_of(method, **settings):
        with pytest.raises(KeyboardInterrupt):
            train(tiny_start(method, dev=None, tests=(), **settings))
        return losses[-1]

    monkeypatch.setattr(student, "KeepBest", stop)
    return loss_of


def test_the_projector_is_in_the_loss(before_training):
    losses = before_training("simcse"), before_training("simcse", projector=False)
    own = [{name for name, _ in loss.named_parameters() if not name.startswith("model.")} for loss in losses]
    assert own == [{"projector.0.weight", "projector.0.bias"}, set()]


@pytest.mark.parametrize("method", ["simcse", "diffcse", "dclr", "sct"])
def test_another_seed_draws_another_projector(before_training, method):
    first, second = (before_training(method, seed=seed).projector[0].weight for seed in (1, 2))
    assert not (first == second).any()


def test_clipping_counts_what_the_loss_trains(tiny_start, monkeypatch):
    from accelerate import Accelerator

    clipped, clip = [], Accelerator.clip_grad_norm_

    def watch(self, parameters, max_norm, norm_type=2):
        parameters = list(parameters)
        clipped.append(len(parameters))
        return clip(self, parameters, max_norm, norm_type)

    monkeypatch.setattr(Accelerator, "clip_grad_norm_", watch)
    for has_projector in (False, True):
        train(tiny_start("simcse", projector=has_projector, dev=None, tests=()))
    assert clipped[-1] == clipped[0] + 2


def test_helpers_have_the_trainers_precision(tiny_start, monkeypatch):
    seen = set()
    run = student.run_trainer

    def watch(trainer, *args):
        embeddings = trainer.loss.twin[0].model.embeddings.register_forward_hook(
            lambda module, inputs, output: seen.add(torch.is_autocast_enabled("cpu"))
        )
        run(trainer, *args)
        embeddings.remove()

    monkeypatch.setattr(student, "run_trainer", watch)
    train(tiny_start("contrastive-tension", precision="bf16", dev=None, tests=()))
    assert seen == {True}


@pytest.mark.parametrize("winner", [0, 1])
def test_of_the_two_copies_the_better_on_dev_is_kept(tiny_start, monkeypatch, winner):
    measured, kept = [], []

    def measure(scored, scorer):
        measured.append(len(measured) + (100.0 if len(measured) % 2 == winner else 0.0))
        return measured[-1]

    class Watch(KeepBest):
        def on_evaluate(self, *args, **kwargs):
            super().on_evaluate(*args, **kwargs)
            copies = [copy.state_dict() for copy in self.candidates]
            kept.append([all(torch.equal(self._weights[name], copy[name]) for name in copy) for copy in copies])

    monkeypatch.setattr(context, "measure", measure)
    monkeypatch.setattr(student, "KeepBest", Watch)
    trained = train(tiny_start("contrastive-tension", tests=()))
    assert [value for _, value in trained.result["cycles"][0]["bi"]["curve"]] == measured[winner::2]
    assert kept == [[winner == 0, winner == 1]] * len(kept) and kept


def test_drophead_changes_the_weights_and_nothing_else_of_what_is_saved(tiny_start, monkeypatch):
    drawn = []
    draw = DropHead.forward

    def watch(self, heads):
        drawn.append(self.training)
        return draw(self, heads)

    monkeypatch.setattr(DropHead, "forward", watch)
    plain, dropping = (train(tiny_start("mirror-bert-drophead", drophead=share)) for share in (0.0, 0.5))
    saved = [
        {path.relative_to(run.folder): path.read_bytes() for path in (run.folder / "bi-encoder").rglob("*.*")}
        for run in (plain, dropping)
    ]
    differ = {path.name for path in saved[0] if saved[0][path] != saved[1][path]}
    assert saved[0].keys() == saved[1].keys()
    assert differ == {"model.safetensors", "README.md"}
    assert {True, False} == set(drawn)  # while training, and on dev
    assert not any(isinstance(part, DropHead) for part in dropping.bi_encoder.modules())


def test_drophead_alone_makes_two_views_and_a_start_of_unknown_heads_is_refused(tiny_start, monkeypatch):
    config = tiny_start("mirror-bert-drophead", span_characters=0, dev=None, tests=())
    assert train(config).result["best"]["bi"]
    monkeypatch.setattr(drophead, "_PROJECTIONS", {})
    with pytest.raises(InputError, match=r"drophead is 0\.5, but the attention heads of BertModel .* give drophead 0"):
        train(replace(config, seed=1, output=config.output + "-other"))


def test_a_collapse_is_recorded_and_said(tiny_start, monkeypatch):
    """Learned weights of zero: every text has the same embedding, the biases of the last layer."""
    fit = encoder_stages.fit

    def flatten(student, *args, **options):
        found = fit(student, *args, **options)
        with torch.no_grad():
            for name, weights in student.named_parameters():
                weights.mul_(0.0 if name.endswith("weight") and weights.ndim == 2 else 1.0)
                weights.fill_(1.0) if name.endswith("output.LayerNorm.bias") else None
        return found

    sound = train(tiny_start("simcse", dev=None, tests=())).result
    assert set(sound["uniformity"]) == {"start", "bi"}
    assert all(-8 <= value < 0 for value in sound["uniformity"].values())
    monkeypatch.setattr(encoder_stages, "fit", flatten)
    flat = train(tiny_start("simcse", dev=None, tests=(), seed=2))
    assert flat.result["uniformity"]["bi"] > -0.01
    assert "seems to have collapsed" in (flat.folder / "report.md").read_text()
