"""The released codes' optimisers, against their formulas, and in a training."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tests.fit.fitting import LOAD, Stopped, same, scripted, stopping
from transencoder import FitConfig
from transencoder.errors import InputError
from transencoder.fit.optimizers import FormerAdamW


def moved(start, gradients, *, kind, rates, beta1=0.8, beta2=0.95, epsilon, weight_decay=0.0):
    """The formula, in float64, from sums over all gradients instead of running means; a rate for each step."""
    position = start.astype(np.float64)
    for last in range(1, len(gradients) + 1):
        ages = np.arange(last)[::-1].reshape(-1, *[1] * start.ndim)
        past = gradients[:last].astype(np.float64)
        mean = ((1 - beta1) * beta1**ages * past).sum(0)
        square = ((1 - beta2) * beta2**ages * past**2).sum(0)
        if kind != "bert_adam":
            mean, square = mean / (1 - beta1**last), square / (1 - beta2**last)
        epsilon_now = epsilon / np.sqrt(1 - beta2**last) if kind == "adamw_hf" else epsilon
        position = position - rates[last - 1] * mean / (np.sqrt(square) + epsilon_now)
        position = position - rates[last - 1] * weight_decay * position
    return position


@pytest.fixture
def steps():
    """What an optimiser had before each of a training's steps: rate, value and gradient of one weight."""
    records = []

    def record(optimizer, *_):
        group = max(optimizer.param_groups, key=lambda each: each["weight_decay"])
        weight = next(each for each in group["params"] if each.grad is not None and each.grad.abs().min() > 0)
        records.append([group["lr"], *(each.detach().double().numpy().copy() for each in (weight, weight.grad))])

    hook = register_optimizer_step_pre_hook(record)
    yield records
    hook.remove()


@pytest.mark.parametrize("kind", ["adamw_hf", "bert_adam"])
@pytest.mark.parametrize(("epsilon", "size"), [(1e-6, 1.0), (1e-6, 1e-5), (1e-2, 1e-2)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_are_the_formulas(kind, epsilon, size, weight_decay):
    random = np.random.default_rng(0)
    start, gradients = random.normal(size=(5, 3)), size * random.normal(size=(7, 5, 3))
    parameter = torch.nn.Parameter(torch.tensor(start, dtype=torch.float32))
    optimizer = FormerAdamW(
        [parameter], 1e-2, (0.8, 0.95), epsilon, weight_decay=weight_decay, is_bias_corrected=kind == "adamw_hf"
    )
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient, dtype=torch.float32)
        optimizer.step()
    expected = moved(start, gradients, kind=kind, rates=[1e-2] * 7, epsilon=epsilon, weight_decay=weight_decay)
    np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-4, atol=2e-6)


def test_without_epsilon_and_decay_it_is_pytorchs():
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Parameter(torch.ones(4, 4)) for _ in range(2))
    optimizers = FormerAdamW([ours], 1e-2, eps=1e-30), torch.optim.AdamW([theirs], 1e-2, eps=1e-30, weight_decay=0.0)
    for _ in range(20):
        ours.grad = theirs.grad = torch.randn(4, 4)
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_bias_correction_is_what_shortens_first_steps():
    steps = []
    for is_corrected in (True, False):
        parameter = torch.nn.Parameter(torch.zeros(1))
        parameter.grad = torch.ones(1)
        FormerAdamW([parameter], 1.0, is_bias_corrected=is_corrected).step()
        steps.append(-parameter.item())
    assert steps == pytest.approx([1.0, 0.1 / 0.001**0.5], rel=1e-3)


def test_a_first_step_of_rmsprop_is_ten_learning_rates(fit_tiny, tiny_bi_encoder):
    """Its decay is torch's 0.99: the mean square begins at a hundredth, its root at a tenth, of the gradient's."""
    one_step = {"epochs": 1, "batch_size": 64, "schedule": "constant", "warmup_ratio": 0.0, "max_grad_norm": 0.0}
    trained, _ = fit_tiny("bi", optimizer="rmsprop", learning_rate=1e-4, weight_decay=0.0, **one_step)
    start = LOAD["bi"](Path(tiny_bi_encoder), device="cpu").state_dict()
    longest = max((value - start[name]).abs().max().item() for name, value in trained.state_dict().items())
    assert longest == pytest.approx(1e-3, rel=1e-2)


def test_weight_decay_leaves_biases_and_layer_norm_alone(fit_tiny, tiny_bi_encoder):
    one_step = {"epochs": 1, "batch_size": 64, "schedule": "constant", "warmup_ratio": 0.0, "learning_rate": 1e-3}
    plain, decayed = (fit_tiny("bi", folder=str(x), weight_decay=x, **one_step)[0].state_dict() for x in (0.0, 0.5))
    start = LOAD["bi"](Path(tiny_bi_encoder), device="cpu").state_dict()
    stays = {name for name in start if name.endswith("bias") or "LayerNorm" in name}
    assert 0 < len(stays) < len(start)
    untrained = ("word_embeddings.weight", "pooler.dense.weight")  # in part, and whole
    for name in (each for each in plain if not each.endswith(untrained)):
        shrunk = plain[name] - (0.0 if name in stays else 1e-3 * 0.5) * start[name]
        torch.testing.assert_close(decayed[name], shrunk, rtol=1e-5, atol=1e-7)
    words = next(name for name in start if name.endswith("word_embeddings.weight"))
    is_as_it_was = (decayed[words] == start[words]).all(1) & start[words].any(1)
    assert is_as_it_was.any() and not is_as_it_was.all(), "tokens that no text has are not even decayed"


@pytest.mark.parametrize("form", ["bi", "cross"])
@pytest.mark.parametrize("kind", ["adamw", "adamw_hf", "bert_adam"])
def test_a_training_takes_its_formula_and_all_of_its_settings(kind, form, fit_tiny, steps):
    settings = {"adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-3, "weight_decay": 0.0}
    fit_tiny(form, optimizer=kind, schedule="constant", warmup_ratio=0.25, **settings)
    rates, values, gradients = map(np.array, zip(*steps, strict=True))
    np.testing.assert_allclose(rates, 3e-3 * np.array([0, 1 / 3, 2 / 3, *[1] * 9]))
    expected = [moved(values[0], gradients[:n], kind=kind, rates=rates, epsilon=1e-3) for n in range(12)]
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("schedule", "last"), [("linear", 1 / 9), ("cosine", (1 + np.cos(np.pi * 8 / 9)) / 2)])
def test_after_its_warm_up_a_rate_falls(schedule, last, fit_tiny, steps):
    fit_tiny("bi", schedule=schedule, warmup_ratio=0.25)
    rates = [step[0] for step in steps]
    assert rates[3] == max(rates) == 3e-3
    assert rates[-1] == pytest.approx(3e-3 * last)


def test_stopped_and_resumed_it_ends_with_the_same_weights(fit_tiny):
    options = {"optimizer": "adamw_hf", "adam_epsilon": 1e-6, "adam_beta2": 0.98}
    undisturbed = fit_tiny("bi", folder="whole", dev=scripted([1, 2, 3, 4, 5, 6]), **options)[0].state_dict()
    with pytest.raises(Stopped):
        fit_tiny("bi", dev=stopping([1, 2, 3]), **options)
    resumed = fit_tiny("bi", dev=scripted([4, 5, 6]), **options)[0].state_dict()
    assert same(resumed, undisturbed)


def test_its_settings_decide_what_comes_out():
    with pytest.raises(InputError, match="adam_beta2"):
        FitConfig(adam_beta2=1.0)
    assert FitConfig(optimizer="adamw_hf").key_settings.keys() == FitConfig().key_settings.keys() | {"optimizer"}
    assert FitConfig(adam_epsilon=1e-6).key_settings["adam_epsilon"] == 1e-6
