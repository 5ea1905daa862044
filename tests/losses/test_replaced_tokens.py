"""DiffCSE: the detection against a slow statement, which tokens are edited, and what trains and what does not."""

import math

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForMaskedLM

from transencoder.losses import DiffCSELoss, InfoNCELoss, batch_norm_projector, replaced_token_detection

TEXTS = ["balo bama dalo dama felo kama", "gelo kama", "lelo memo balo"]


@pytest.fixture
def make(tiny_bi_encoder, tiny_plm):
    """Makes the loss on the tiny model, everything in evaluation mode."""

    def make_loss(**changes) -> DiffCSELoss:
        bi = SentenceTransformer(tiny_bi_encoder, device="cpu")
        torch.manual_seed(0)
        return DiffCSELoss(
            bi,
            AutoModelForMaskedLM.from_pretrained(tiny_plm),
            AutoModel.from_pretrained(tiny_plm),
            mask_token_id=bi.tokenizer.mask_token_id,
            special_ids=bi.tokenizer.all_special_ids,
            **changes,
        ).eval()

    return make_loss


def read(loss) -> list[dict]:
    return [dict(loss.model.preprocess(TEXTS)), dict(loss.model.preprocess(TEXTS))]


@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (4, 3)])
def test_is_the_mean_over_the_tokens_that_count(shape):
    rng = np.random.default_rng(shape[0])
    logits, is_replaced, counts = rng.normal(size=(*shape, 2)), rng.random(shape) < 0.5, rng.random(shape) < 0.7
    counts[0, 0] = True
    total, n = 0.0, 0
    for row in range(shape[0]):
        for column in range(shape[1]):
            if counts[row, column]:
                kept, replaced = (math.exp(value) for value in logits[row, column])
                total -= math.log((replaced if is_replaced[row, column] else kept) / (kept + replaced))
                n += 1
    found = replaced_token_detection(
        torch.from_numpy(logits).float(), torch.from_numpy(is_replaced), torch.from_numpy(counts)
    )
    assert found.item() == pytest.approx(total / n, rel=1e-5)


def test_without_weight_it_is_info_nce(make):
    loss = make(weight=0.0)
    assert loss(read(loss)).item() == pytest.approx(InfoNCELoss(loss.model)(read(loss)).item(), rel=1e-5)


def test_only_text_is_edited_and_in_its_share(make):
    loss = make(mask_ratio=0.99)
    features = dict(loss.model.preprocess(TEXTS))
    ids, mask = features["input_ids"], features["attention_mask"]
    edited = loss._edit(ids, mask)
    special = torch.isin(ids, torch.tensor(loss.special_ids))
    assert torch.equal(edited[special], ids[special])
    assert (edited != ids)[~special].float().mean() > 0.5
    torch.manual_seed(0)
    first = loss._edit(ids, mask)
    torch.manual_seed(0)
    assert torch.equal(loss._edit(ids, mask), first)


def test_the_embedding_stands_in_the_discriminators_first_place(make):
    loss = make()
    features = dict(loss.model.preprocess(TEXTS))
    seen = []
    hook = loss.discriminator.encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    embeddings = torch.randn(3, 32)
    torch.manual_seed(0)
    with torch.no_grad():
        one = loss._detect(features, embeddings)
        torch.manual_seed(0)
        other = loss._detect(features, embeddings + 1)
    hook.remove()
    assert torch.equal(seen[0][:, 0], embeddings)
    assert torch.equal(seen[0][:, 1:], seen[1][:, 1:])
    assert one != other
    assert not loss.discriminator.embeddings._forward_hooks


def test_padding_counts_only_on_request(make):
    found = []
    for counts_padding in (False, True):
        loss = make(counts_padding=counts_padding)
        torch.manual_seed(0)
        with torch.no_grad():
            found.append(loss._detect(dict(loss.model.preprocess(TEXTS)), torch.ones(3, 32)).item())
    assert found[0] != pytest.approx(found[1], rel=1e-4)


def test_all_but_the_generator_learns_through_the_batch_norm_projector(make):
    loss = make(projector=batch_norm_projector(32), weight=1.0).train()
    loss(read(loss)).backward()
    assert not loss.generator.training
    assert not any(parameter.requires_grad for parameter in loss.generator.parameters())
    for part in (loss.model, loss.discriminator, loss.head, loss.projector):
        assert any(parameter.grad is not None and parameter.grad.any() for parameter in part.parameters())
