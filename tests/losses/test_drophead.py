"""DropHead against a slow statement of it, its guard, where it stands in each architecture, and what it leaves alone."""

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense
from transformers import AutoModel, BertConfig, T5Config, T5EncoderModel

from tests.losses.batches import read
from transencoder.losses import DropHead, NTXentLoss, add_drop_head
from transencoder.losses import drophead as module

TEXTS = ["balo bama dalo dama felo kama", "gelo kama", "lelo memo balo"]
SIZES = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 8}
NAMES = ["Albert", "Bert", "Camembert", "Deberta", "DebertaV2", "Electra", "NomicBert", "Roberta", "XLMRoberta"]
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CONFIGS = [getattr(transformers, f"{name}Config")(**SIZES, pad_token_id=0) for name in NAMES] + [
    transformers.MPNetConfig(**SIZES, **ENDS),
    transformers.DistilBertConfig(vocab_size=40, dim=16, n_layers=2, n_heads=4, hidden_dim=8),
    transformers.EuroBertConfig(**SIZES, **ENDS, num_key_value_heads=2),
    transformers.ModernBertConfig(**SIZES, **ENDS, cls_token_id=1, sep_token_id=2),
    T5Config(vocab_size=40, d_model=16, d_kv=4, d_ff=8, num_layers=2, num_heads=4),
]


def slow_drop_head(heads: np.ndarray, is_kept: np.ndarray) -> np.ndarray:
    texts, tokens, width = heads.shape
    n_heads = is_kept.shape[1]
    output = np.zeros_like(heads)
    for text in range(texts):
        for column in range(width):
            if is_kept[text, column // (width // n_heads)]:
                output[text, :, column] = heads[text, :, column] * n_heads / is_kept[text].sum()
    return output


def draw(n_heads: int, share: float, texts: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """An input of ones to 2, and what came of it."""
    torch.manual_seed(seed)
    heads = 1 + torch.rand(texts, 3, 5 * n_heads)
    return heads, DropHead(n_heads, share).train()(heads)


def kept(output: torch.Tensor, n_heads: int) -> np.ndarray:
    """Bool (texts, heads): which heads are there, for every token and number of theirs alike."""
    is_there = output.unflatten(2, (n_heads, -1)) != 0
    assert torch.equal(is_there.all(3).all(1), is_there.any(3).any(1))
    return is_there[:, 0, :, 0].numpy()


@pytest.mark.parametrize("n_heads", [2, 3, 12])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.9])
def test_is_the_equation(n_heads, share):
    heads, output = draw(n_heads, share, texts=40)
    is_kept = kept(output, n_heads)
    np.testing.assert_allclose(output.numpy(), slow_drop_head(heads.numpy(), is_kept), rtol=1e-6)


def test_each_head_of_each_text_goes_by_itself_with_its_probability():
    _, output = draw(12, 0.2, texts=4000)
    gone = ~kept(output, 12)
    assert gone.mean() == pytest.approx(0.2, abs=0.008)  # 4 standard deviations
    np.testing.assert_allclose(gone.mean(0), 0.2, atol=0.026)
    together = (gone.T @ gone.astype(float) / len(gone))[~np.eye(12, dtype=bool)]
    np.testing.assert_allclose(together, 0.04, atol=0.016)
    np.testing.assert_allclose((gone[1:] & gone[:-1]).mean(0), 0.04, atol=0.016)  # neighbouring texts


def test_one_head_always_stays_and_it_is_any_of_them():
    heads, output = draw(2, 0.99, texts=4000)
    is_kept = kept(output, 2)
    alone = is_kept[is_kept.sum(1) == 1]
    assert torch.isfinite(output).all()
    assert is_kept.any(1).all() and len(alone) > 3800
    assert alone[:, 0].mean() == pytest.approx(0.5, abs=0.032)


@pytest.mark.parametrize(("share", "is_training"), [(0.0, True), (0.5, False)])
def test_nothing_is_dropped(share, is_training):
    heads = torch.randn(5, 2, 6)
    assert DropHead(3, share).train(is_training)(heads) is heads


def test_the_gradient_has_the_same_scales_and_the_type_stays():
    heads = torch.ones(20, 3, 8, requires_grad=True)
    output = DropHead(4, 0.5).train()(heads)
    output.sum().backward()
    assert torch.equal(heads.grad, output)
    assert DropHead(4, 0.5).train()(heads.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match="0 to below 1"):
        DropHead(2, share)


class Encoder(SentenceTransformer):
    """A SentenceTransformer around a transformer without its tokenizer."""

    def __init__(self, config):
        torch.manual_seed(0)
        encoder = T5EncoderModel(config) if isinstance(config, T5Config) else AutoModel.from_config(config)
        super().__init__(modules=[Dense(2, 2)], device="cpu")
        self.encoder = encoder


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_each_layer_drops_heads_of_its_own_in_training_only(config):
    model = Encoder(config)
    ids, mask = torch.arange(3, 15).view(2, 6), torch.ones(2, 6, dtype=torch.long)
    plain = model.encoder.eval()(input_ids=ids, attention_mask=mask).last_hidden_state
    before = {name: value.clone() for name, value in model.state_dict().items()}
    add_drop_head(model, 0.5)
    seen = []
    for part in model.modules():
        if isinstance(part, DropHead):
            part.register_forward_hook(lambda part, inputs, output: seen.append((inputs[0], output)))
    assert torch.equal(model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state, plain)
    assert all(heads is output for heads, output in seen)
    seen.clear()
    with torch.no_grad():
        dropped = model.encoder.train()(input_ids=ids, attention_mask=mask).last_hidden_state
    assert len(seen) == 2
    assert torch.isfinite(dropped).all() and not torch.allclose(dropped, plain)
    for heads, output in seen:
        np.testing.assert_allclose(output.numpy(), slow_drop_head(heads.numpy(), kept(output, 4)), rtol=1e-5)
    after = model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(value, after[name]) for name, value in before.items())


def test_every_architecture_of_the_table_is_tested():
    tested = {type(part).__name__ for config in CONFIGS for part in Encoder(config).modules()}
    assert set(module._PROJECTIONS) <= tested


def test_the_model_saves_the_same_files(tiny_bi_encoder, tmp_path):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    model.save_pretrained(str(tmp_path / "plain"), create_model_card=False)
    add_drop_head(model, 0.5)
    model.train().save_pretrained(str(tmp_path / "dropping"), create_model_card=False)
    plain, dropping = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "plain", tmp_path / "dropping")
    )
    assert plain == dropping and len(plain) > 4
    loaded = SentenceTransformer(str(tmp_path / "dropping"), device="cpu")
    assert not any(isinstance(part, DropHead) for part in loaded.modules())
    np.testing.assert_array_equal(loaded.encode(TEXTS), model.eval().encode(TEXTS))


def gradients(folder: str, *, checkpointing: bool) -> dict[str, torch.Tensor]:
    model = SentenceTransformer(folder, device="cpu")
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    add_drop_head(model, 0.5)
    if checkpointing:
        model.transformers_model.activation_checkpointing_enable()
    loss = NTXentLoss(model.train())
    torch.manual_seed(0)
    loss(read(model, TEXTS, TEXTS)).backward()
    return {name: value.grad for name, value in model.named_parameters() if value.grad is not None}


def test_recomputed_activations_have_the_same_heads(tiny_bi_encoder):
    whole, recomputed = (gradients(tiny_bi_encoder, checkpointing=each) for each in (False, True))
    assert any(gradient.any() for gradient in whole.values())
    assert whole.keys() == recomputed.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(recomputed[name], gradient, msg=name)


def test_a_model_that_cannot_drop_heads_is_refused(tiny_bi_encoder):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    add_drop_head(model, 0.5)
    with pytest.raises(ValueError, match="drops heads already"):
        add_drop_head(model, 0.5)
    with pytest.raises(ValueError, match="one attention head, which always stays"):
        add_drop_head(Encoder(BertConfig(**(SIZES | {"num_attention_heads": 1}))), 0.5)
    with pytest.raises(ValueError, match="heads of NoneType are not known, only those of Albert, Bert, "):
        add_drop_head(SentenceTransformer(modules=[Dense(2, 2)], device="cpu"), 0.5)
