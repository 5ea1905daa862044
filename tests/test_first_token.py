"""A last layer for the first token alone gives the scores and the gradients of the whole layer."""

from contextlib import nullcontext

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, DistilBertConfig, ElectraConfig, RobertaConfig

from transencoder.first_token import first_token_alone

SIZE = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
CONFIGS = [BertConfig(**SIZE), RobertaConfig(**SIZE, pad_token_id=1), ElectraConfig(**SIZE, embedding_size=16)]
OTHER = DistilBertConfig(vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=32)


def computed(model, is_short):
    """Return logits, gradients, and how many tokens enter the last layer norm."""
    torch.manual_seed(1)
    ids = torch.randint(5, 50, (3, 7))
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] * 2 + [0] * 5])
    seen = []
    last = [each for each in model.base_model.modules() if isinstance(each, torch.nn.LayerNorm)][-1]
    hook = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
    with first_token_alone(model) if is_short else nullcontext():
        logits = model(input_ids=ids, attention_mask=mask).logits
        logits.square().sum().backward()
    hook.remove()
    gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    model.zero_grad(set_to_none=True)
    return logits.detach(), gradients, seen


@pytest.mark.parametrize("config", [*CONFIGS, OTHER], ids=lambda config: config.model_type)
def test_scores_and_gradients_are_those_of_all_tokens(config):
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    whole, short = computed(model, is_short=False), computed(model, is_short=True)
    assert (whole[2], short[2]) == ([7], [7 if config is OTHER else 1])
    torch.testing.assert_close(short[0], whole[0])
    assert short[1].keys() == whole[1].keys()
    for name, gradient in whole[1].items():
        torch.testing.assert_close(short[1][name], gradient, rtol=1e-4, atol=1e-7, msg=name)
    assert computed(model, is_short=False)[2] == [7], "afterwards all is as before"


def test_bi_encoders_keep_all_tokens(bi):
    texts = ["balo bama dalo", "gelo"]
    with first_token_alone(bi):
        found = bi.encode(texts, output_value="token_embeddings")
    assert [len(each) for each in found] == [len(each) for each in bi.encode(texts, output_value="token_embeddings")]
