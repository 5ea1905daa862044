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


def slow_detection(logits: np.ndarray, is_replaced: np.ndarray, counts: np.ndarray) -> float:
    total, n = 0.0, 0
    for at in zip(*np.nonzero(counts), strict=True):
        kept, replaced = (math.exp(value) for value in logits[at])
        total -= math.log((replaced if is_replaced[at] else kept) / (kept + replaced))
        n += 1
    return total / n


def draw(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(shape[0])
    logits, is_replaced, counts = rng.normal(size=(*shape, 2)), rng.random(shape) < 0.5, rng.random(shape) < 0.7
    counts[0, 0] = True
    return logits, is_replaced, counts


@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (4, 3)])
def test_is_the_mean_over_the_tokens_that_count(shape):
    logits, is_replaced, counts = draw(shape)
    found = replaced_token_detection(
        torch.from_numpy(logits).float(), torch.from_numpy(is_replaced), torch.from_numpy(counts)
    )
    assert found.item() == pytest.approx(slow_detection(logits, is_replaced, counts), rel=1e-5)


def test_gradient_is_that_of_finite_differences(check_gradient):
    logits, *others = draw((3, 4))
    tensors = [torch.from_numpy(each) for each in others]
    check_gradient(
        lambda values: replaced_token_detection(values, *tensors),
        lambda values: slow_detection(values, *others),
        logits,
    )


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
    read_by_generator = []
    hook = loss.generator.register_forward_pre_hook(
        lambda _, __, features: read_by_generator.append(features["input_ids"]), with_kwargs=True
    )
    edited = loss._edit(ids, mask)
    hook.remove()
    with torch.no_grad():
        choices = loss.generator(input_ids=read_by_generator[0], attention_mask=mask).logits.argmax(-1)
    assert torch.equal(edited, torch.where(special, ids, choices)), (
        "the generator's first choice, at each token of text"
    )
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
    """The value is that of all tokens' logits, averaged over the text's tokens or over padding too."""
    for counts_padding in (False, True):
        loss = make(counts_padding=counts_padding)
        logits = []
        loss.head.register_forward_hook(lambda _, __, output, logits=logits: logits.append(output))
        features = dict(loss.model.preprocess(TEXTS))
        torch.manual_seed(0)
        with torch.no_grad():
            found = loss._detect(dict(features), torch.ones(3, 32)).item()
            torch.manual_seed(0)
            edited = loss._edit(features["input_ids"], features["attention_mask"])
        mask = features["attention_mask"].bool().numpy()
        assert not mask.all(), "there is padding"
        counts = np.ones_like(mask) if counts_padding else mask
        is_replaced = (edited != features["input_ids"]).numpy()
        assert found == pytest.approx(slow_detection(logits[0].double().numpy(), is_replaced, counts), rel=1e-4)


def test_the_detection_alone_teaches_the_encoder(make):
    """DiffCSE's point: the gradient of the detection reaches the encoder through the injected embedding."""
    loss = make()
    features = dict(loss.model.preprocess(TEXTS))
    embeddings = loss.model(dict(features))["sentence_embedding"]
    loss._detect(features, embeddings).backward()
    grads = [parameter.grad for parameter in loss.model.parameters()]
    assert sum(float(grad.abs().sum()) for grad in grads if grad is not None) > 0
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in loss.discriminator.parameters())


def test_all_but_the_generator_learns_through_the_batch_norm_projector(make):
    loss = make(projector=batch_norm_projector(32), weight=1.0).train()
    loss(read(loss)).backward()
    assert not loss.generator.training
    assert not any(parameter.requires_grad for parameter in loss.generator.parameters())
    for part in (loss.model, loss.discriminator, loss.head, loss.projector):
        assert any(parameter.grad is not None and parameter.grad.any() for parameter in part.parameters())
