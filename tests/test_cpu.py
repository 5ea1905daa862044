"""The cheaper dropout is dropout, and everything is as before once training is over."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from transencoder import cpu
from transencoder.cpu import dropped, fast_inference, fast_training
from transencoder.scorers import BiScorer, CrossScorer


@pytest.fixture
def bf16(monkeypatch):
    """Products in bf16, which tests do not take by themselves, so that they compute alike on all processors."""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this processor has no products in bf16")
    monkeypatch.setattr(cpu, "has_bf16", lambda _: True)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_share_of_zeros_and_the_mean(p, dtype):
    torch.manual_seed(1)
    found = dropped(torch.ones(501, 999, dtype=dtype), p)
    n = found.numel()
    is_zero = found == 0
    tolerance = 5 * (p * (1 - p) / n) ** 0.5
    assert is_zero.double().mean() == pytest.approx(p, abs=tolerance)
    assert found.dtype == dtype and found[~is_zero].unique().tolist() == pytest.approx([1 / (1 - p)], rel=4e-3)
    for each in (is_zero[::2], is_zero[1::2], is_zero[:, ::4]):  # no part of the random words is special
        assert each.double().mean() == pytest.approx(p, abs=2.5 * tolerance)


def test_neighbours_are_dropped_independently():
    torch.manual_seed(1)
    is_zero = (dropped(torch.ones(1 << 20), 0.5) == 0).double()
    for distance in (1, 2, 3, 4, 5, 8):
        both = (is_zero[:-distance] * is_zero[distance:]).mean()
        assert both == pytest.approx(0.25, abs=0.003)


def test_the_gradient_has_the_same_zeros():
    values = torch.randn(37, 11, requires_grad=True)
    found = dropped(values, 0.3)
    found.sum().backward()
    assert torch.equal(values.grad == 0, found == 0)
    assert torch.allclose(found, values * values.grad)


def test_the_seed_decides():
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(dropped(torch.ones(64, 3), 0.5))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize(("p", "is_training"), [(0.0, True), (0.5, False)])
def test_nothing_is_dropped(p, is_training):
    layer, values = nn.Dropout(p).train(is_training), torch.randn(5, 3)
    with fast_training(layer, values.device):
        assert layer(values) is values


@pytest.mark.usefixtures("bf16")
def test_all_is_as_before_also_after_an_error(bi):
    state, forwards = list(bi.state_dict()), {name: module.forward for name, module in bi.named_modules()}
    assert bi.transformers_model.config._attn_implementation == "sdpa"
    with pytest.raises(KeyboardInterrupt), fast_training(bi, bi.device):
        assert list(bi.state_dict()) == state
        changed = {type(each) for name, each in bi.named_modules() if each.forward != forwards[name]}
        assert changed == {nn.Dropout, nn.Linear}
        assert bi.transformers_model.config._attn_implementation == "transencoder"
        raise KeyboardInterrupt
    assert {name: module.forward for name, module in bi.named_modules()} == forwards
    assert bi.transformers_model.config._attn_implementation == "sdpa"
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in bi.modules())


def without_dropout(bi):
    for module in bi.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return bi.train()


def gradients(bi, texts, *, is_bf16=False):
    """Of a sum of squares, which differ from text to text."""
    bi.zero_grad()
    features = dict(bi.tokenizer(texts, padding=True, return_tensors="pt"))
    with torch.autocast("cpu", torch.bfloat16, enabled=is_bf16):
        embeddings = bi(features)["sentence_embedding"]
    assert embeddings.dtype == torch.float32
    (embeddings.square() * torch.arange(1.0, 1 + embeddings.shape[1])).sum().backward()
    return torch.cat([p.grad.flatten() for p in bi.parameters() if p.grad is not None])


PADDED, EVEN = ["balo bama", "balo", "dalo dama felo fema"], ["balo bama", "dalo kama"]


@pytest.mark.parametrize("texts", [PADDED, EVEN])
@pytest.mark.parametrize("short", [128, 3])
def test_training_gives_the_gradients_of_plain_layers(bi, texts, short, monkeypatch):
    monkeypatch.setattr(cpu, "_SHORT", short)  # longer texts are for torch's own attention
    plain = gradients(without_dropout(bi), texts)
    with fast_training(bi, bi.device):
        fast = gradients(bi, texts)
    assert (fast - plain).norm() < 1e-5 * plain.norm()


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("texts", [PADDED, EVEN])
def test_in_bf16_it_rounds_hardly_more_than_autocast(bi, texts):
    exact = gradients(without_dropout(bi), texts)
    autocast = gradients(bi, texts, is_bf16=True)
    with fast_training(bi, bi.device):
        fast = gradients(bi, texts, is_bf16=True)
    error, own = ((each - exact).norm() / exact.norm() for each in (autocast, fast))
    assert 0 < own < 2 * error


@pytest.mark.usefixtures("bf16")
def test_between_the_first_and_the_last_norm_everything_is_bf16(bi):
    seen = []
    layers = [each for name, each in bi.named_modules() if isinstance(each, nn.Linear) and "pooler" not in name]
    for layer in layers:
        layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    texts = dict(bi.tokenizer(PADDED, padding=True, return_tensors="pt"))
    with fast_training(bi, bi.device), torch.autocast("cpu", torch.bfloat16):
        bi.train()(dict(texts))
    assert len(seen) > 10 and set(seen) == {torch.bfloat16}


def embeddings(bi, *, is_bf16=True, is_fast=False):
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=is_bf16):
        with fast_inference(bi, bi.device) if is_fast else nullcontext():
            found = bi.eval()(dict(bi.tokenizer(PADDED, padding=True, return_tensors="pt")))["sentence_embedding"]
    assert found.dtype == torch.float32
    return found


@pytest.mark.usefixtures("bf16")
def test_inference_in_bf16_rounds_hardly_more_than_autocast(bi):
    exact = embeddings(bi, is_bf16=False)
    error, own = ((embeddings(bi, is_fast=is_fast) - exact).norm() / exact.norm() for is_fast in (False, True))
    assert 0 < own < 2 * error


@pytest.mark.usefixtures("bf16")
def test_inference_in_fp32_is_as_it_was(bi):
    assert torch.equal(embeddings(bi, is_bf16=False, is_fast=True), embeddings(bi, is_bf16=False))


@pytest.mark.usefixtures("bf16")
def test_a_model_in_bf16_runs_as_it_did(bi):
    """Was: its last layer norm, whose weights are in bf16, was given fp32."""
    own = bi.bfloat16()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        texts = bi.eval().tokenizer(PADDED, padding=True, return_tensors="pt")
        plain = own(dict(texts))["sentence_embedding"]
        with fast_inference(own, own.device):
            fast = own(dict(texts))["sentence_embedding"]
    torch.testing.assert_close(fast, plain, rtol=0, atol=0.02)


@pytest.mark.usefixtures("bf16")
def test_a_second_thread_runs_the_model_as_it_is(bi):
    forwards = {name: module.forward for name, module in bi.named_modules()}
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), fast_inference(bi, bi.device):
        changed = {name: module.forward for name, module in bi.named_modules()}
        assert changed != forwards
        with fast_inference(bi, bi.device):  # as another thread would
            assert {name: module.forward for name, module in bi.named_modules()} == changed
        assert {name: module.forward for name, module in bi.named_modules()} == changed
    assert {name: module.forward for name, module in bi.named_modules()} == forwards


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("kind", [BiScorer, CrossScorer])
def test_scorers_run_so(request, kind, tiny_pairs, monkeypatch):
    model = request.getfixturevalue("bi" if kind is BiScorer else "cross")
    n_products = []
    product = cpu._product
    monkeypatch.setattr(cpu, "_product", lambda *given: n_products.append(1) or product(*given))
    exact = kind(model, precision="fp32").score(tiny_pairs)
    assert not n_products
    found = kind(model, precision="bf16").score(tiny_pairs)
    assert n_products
    assert 0 < np.abs(found - exact).max() < 0.02


@pytest.mark.usefixtures("bf16")
def test_inference_inside_training_sees_todays_weights_and_leaves_training_as_it_was(bi):
    with fast_training(bi, bi.device):
        forwards = {name: module.forward for name, module in bi.named_modules()}
        before = embeddings(bi, is_fast=True)
        assert {name: module.forward for name, module in bi.named_modules()} == forwards
        with torch.no_grad():
            for each in bi.modules():
                if isinstance(each, nn.Linear):
                    each.weight.neg_()
        after = embeddings(bi, is_fast=True)
    torch.testing.assert_close(after, embeddings(bi, is_fast=True), rtol=0, atol=0)
    assert not torch.equal(before, after)


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("kind", ["deberta-v2", "modernbert"])
def test_where_layers_do_not_end_in_a_norm_the_stream_stays_in_fp32(bi, kind):
    """Was: the sum over all of ModernBERT's layers, and DeBERTa's output, were rounded to bf16."""
    bi.transformers_model.config.model_type = kind
    with fast_training(bi, bi.device):
        assert not any(each._forward_hooks or each._forward_pre_hooks for each in bi.modules())


def test_dropout_of_all_drops_all():
    layer, values = nn.Dropout(1.0).train(), torch.ones(200_000)
    with fast_training(layer, values.device):
        assert not layer(values).any()


@pytest.mark.parametrize("is_padded", [False, True])
def test_attention_drops_its_weights(bi, is_padded):
    module, n = bi.transformers_model.encoder.layer[0].attention.self.train(), 64
    mask = (torch.arange(n) < 48)[None, None, None] if is_padded else None
    query = torch.zeros(200, 2, n, n)  # every token is as near as any other
    value = torch.eye(n).expand(query.shape).contiguous()
    weights = cpu._attention(module, query, query, value, mask, dropout=0.25, scaling=1.0)[0].transpose(1, 2)
    seen = weights[..., :48] if is_padded else weights
    assert not is_padded or not weights[..., 48:].any()
    assert abs((seen == 0).float().mean() - 0.25) < 0.003
    torch.testing.assert_close(seen[seen > 0].max().item(), 1 / seen.shape[-1] / 0.75, rtol=1e-4, atol=0)
