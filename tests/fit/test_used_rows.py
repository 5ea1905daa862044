"""Only the embeddings of tokens in use are trained: as all would be, and the state is that of all."""

import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import nn

from transencoder.fit.used_rows import UsedRows, only_used_rows
from transencoder.losses import InfoNCELoss

TEXTS, OTHER = ["balo bama dalo", "kama", "felo fema balo"], ["gelo memo lelo"]


def features(bi, texts):
    return dict(bi.tokenizer(texts, padding=True, return_tensors="pt"))


def ids_of(bi, texts):
    found = features(bi, texts)
    return found["input_ids"][found["attention_mask"] == 1].numpy().astype(np.int32)


def trained(bi, n_steps=4):
    optimizer = torch.optim.AdamW(bi.parameters(), lr=1e-2, weight_decay=0.0)
    for _ in range(n_steps):
        optimizer.zero_grad()
        embeddings = bi(features(bi, TEXTS))["sentence_embedding"]
        (embeddings.square() * torch.arange(embeddings.shape[1])).sum().backward()
        optimizer.step()
    return sum(len(each["exp_avg"]) for each in optimizer.state.values() if each["exp_avg"].ndim == 2)


def test_training_is_that_of_all_embeddings(bi, tmp_path):
    bi.eval()
    plain, start = copy.deepcopy(bi), copy.deepcopy(bi.state_dict())
    n_whole = trained(plain)
    loss, table = InfoNCELoss(bi), bi.transformers_model.get_input_embeddings()
    ids = ids_of(bi, TEXTS)
    with only_used_rows(loss, [ids[:4], ids[4:]]):
        assert isinstance(bi.transformers_model.get_input_embeddings(), UsedRows)
        n_used = trained(bi)
        within = {name: tensor.clone() for name, tensor in bi.state_dict().items()}
        with torch.no_grad():
            other = bi(features(bi, OTHER))["sentence_embedding"]
        save_model(bi, str(tmp_path / "bi.safetensors"))
    assert bi.transformers_model.get_input_embeddings() is table
    assert n_whole - n_used == table.num_embeddings - len(set(ids.tolist()))
    after = bi.state_dict()
    assert list(after) == list(within) == list(start)
    name = next(name for name in after if name.endswith("word_embeddings.weight"))
    assert not torch.equal(after[name], start[name])
    unused = sorted(set(range(table.num_embeddings)) - set(ids.tolist()))
    torch.testing.assert_close(after[name][unused], start[name][unused], rtol=0, atol=0)
    for each, expected in plain.state_dict().items():
        torch.testing.assert_close(after[each], expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(within[each], after[each], rtol=0, atol=0)
    with torch.no_grad():
        torch.testing.assert_close(bi(features(bi, OTHER))["sentence_embedding"], other, rtol=0, atol=0)
    bi.load_state_dict(start)
    with only_used_rows(loss, [ids]):
        load_model(bi, str(tmp_path / "bi.safetensors"))
        assert all(torch.equal(tensor, within[each]) for each, tensor in bi.state_dict().items())
    assert all(torch.equal(tensor, within[each]) for each, tensor in bi.state_dict().items())


def test_padding_has_no_gradient(bi):
    table = bi.transformers_model.get_input_embeddings()
    pad = table.padding_idx
    rows = UsedRows(table, torch.tensor([pad, pad + 3, pad + 7]))
    rows(torch.tensor([[pad, pad + 7, pad + 9]])).sum().backward()
    assert rows.weight.grad.sum(1).tolist() == [0, 0, rows.weight.shape[1]]


@pytest.mark.parametrize("case", ["frozen", "shared", "followed"])
def test_where_it_would_not_be_the_same_all_are_trained(bi, case):
    loss, table = InfoNCELoss(bi), bi.transformers_model.get_input_embeddings()
    if case == "frozen":
        table.weight.requires_grad_(False)
    if case == "shared":
        loss.head = nn.Linear(table.embedding_dim, table.num_embeddings)
        loss.head.weight = table.weight
    if case == "followed":
        loss.follower = copy.deepcopy(bi)
    with only_used_rows(loss, [ids_of(bi, TEXTS)]):
        assert bi.transformers_model.get_input_embeddings() is table
