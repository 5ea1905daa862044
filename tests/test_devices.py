"""The cheaper dropout is dropout, and everything is as before once training is over."""

import pytest
import torch
from torch import nn

from transencoder.devices import CheapDropout, checked_device, fast_training
from transencoder.errors import InputError


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_share_of_zeros_and_the_mean(p, dtype):
    torch.manual_seed(1)
    dropped = CheapDropout(p).train()(torch.ones(501, 999, dtype=dtype))
    n = dropped.numel()
    is_zero = dropped == 0
    tolerance = 5 * (p * (1 - p) / n) ** 0.5
    assert is_zero.double().mean() == pytest.approx(p, abs=tolerance)
    assert dropped.dtype == dtype and dropped[~is_zero].unique().tolist() == pytest.approx([1 / (1 - p)], rel=4e-3)
    for each in (is_zero[::2], is_zero[1::2], is_zero[:, ::4]):  # no part of the random words is special
        assert each.double().mean() == pytest.approx(p, abs=2.5 * tolerance)


def test_neighbours_are_dropped_independently():
    torch.manual_seed(1)
    is_zero = (CheapDropout(0.5).train()(torch.ones(1 << 20)) == 0).double()
    for distance in (1, 2, 3, 4, 5, 8):
        both = (is_zero[:-distance] * is_zero[distance:]).mean()
        assert both == pytest.approx(0.25, abs=0.003)


def test_the_gradient_has_the_same_zeros():
    values = torch.randn(37, 11, requires_grad=True)
    dropped = CheapDropout(0.3).train()(values)
    dropped.sum().backward()
    assert torch.equal(values.grad == 0, dropped == 0)
    assert torch.allclose(dropped, values * values.grad)


def test_the_seed_decides():
    layer = CheapDropout(0.5).train()
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(layer(torch.ones(64, 3)))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize(("p", "is_training"), [(0.0, True), (0.5, False)])
def test_nothing_is_dropped(p, is_training):
    values = torch.randn(5, 3)
    assert CheapDropout(p).train(is_training)(values) is values


def test_the_layers_come_back_also_after_an_error(bi):
    before = {name: module for name, module in bi.named_modules() if isinstance(module, nn.Dropout)}
    assert before
    was_allowed = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    with pytest.raises(KeyboardInterrupt), fast_training(bi, bi.device, 24):
        within = dict(bi.named_modules())
        assert all(isinstance(within[name], CheapDropout) for name in before)
        assert torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
        raise KeyboardInterrupt
    after = dict(bi.named_modules())
    assert all(after[name] is layer for name, layer in before.items())
    assert torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed() == was_allowed


def test_training_gives_the_gradients_of_plain_layers(bi):
    student = bi.train()
    for module in student.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    texts = student.tokenizer(["balo bama", "balo"], padding=True, return_tensors="pt")

    def gradients():
        student.zero_grad()
        student(dict(texts))["sentence_embedding"].square().sum().backward()
        return [parameter.grad.clone() for parameter in student.parameters() if parameter.grad is not None]

    plain = gradients()
    with fast_training(student, student.device, 24):
        fast = gradients()
    assert len(plain) > 20
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(plain, fast, strict=True))


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "cpu:x"])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(InputError, match="cannot be used here"):
        checked_device(name)
