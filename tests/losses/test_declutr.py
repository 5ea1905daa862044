"""DeCLUTR's loss: the contrast from a slow statement of it, and the masked words."""

import math

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from transencoder.encoders import language_model_head
from transencoder.losses import DeCLUTRLoss
from transencoder.losses.masked_words import mask_tokens

DOCUMENTS = [
    ["balo bama dalo", "gelo kama", "felo", "memo lelo", "balo", "kama dama felo"],
    ["felo felo gelo", "lelo", "bama dalo kama", "dama", "memo memo", "balo lelo kama"],
    ["kama", "dama bama", "gelo memo", "balo felo", "dalo lelo", "bama"],
]


def slow_contrast(anchors: np.ndarray, positives: np.ndarray, temperature: float) -> float:
    """Equations 2 and 3: anchors (n, dim), positives (n, per anchor, dim)."""
    views = np.concatenate([anchors, positives.mean(1)])
    views /= np.linalg.norm(views, axis=1, keepdims=True)
    n = len(anchors)
    total = 0.0
    for i, view in enumerate(views):
        other = (i + n) % (2 * n)
        terms = [math.exp(view @ views[j] / temperature) for j in range(2 * n) if j != i]
        total -= math.log(math.exp(view @ views[other] / temperature) / sum(terms))
    return total / (2 * n)


def read(model: SentenceTransformer, n_columns: int = 6, n_documents: int = 3) -> list[dict[str, object]]:
    columns = zip(*(document[:n_columns] for document in DOCUMENTS[:n_documents]), strict=True)
    return [dict(model.preprocess(list(column))) for column in columns]


def masking(model: SentenceTransformer, folder: str, **changes) -> DeCLUTRLoss:
    head, tokenizer = language_model_head(folder, model)
    options = {"mask_token_id": tokenizer.mask_token_id, "special_ids": tokenizer.all_special_ids}
    return DeCLUTRLoss(model, head=head.eval(), **options | changes)


@pytest.mark.parametrize("n_documents", [1, 2, 3])
@pytest.mark.parametrize(("n_columns", "n_positives"), [(6, 2), (3, 2), (2, 1), (6, 5), (4, 1)])
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_without_masks_it_is_the_contrast(bi, n_documents, n_columns, n_positives, temperature):
    def embed(documents):
        return bi.encode([text for row in documents for text in row]).astype(np.float64)

    group = 1 + n_positives
    rows = [row[i : i + group] for row in DOCUMENTS[:n_documents] for i in range(0, n_columns, group)]
    embeddings = embed(rows).reshape(len(rows), group, -1)
    loss = DeCLUTRLoss(bi, n_positives, temperature)(read(bi, n_columns, n_documents))
    expected = slow_contrast(embeddings[:, 0], embeddings[:, 1:], temperature)
    assert loss.item() == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_the_head_is_the_pretrained_one_on_the_students_states(bi, tiny_plm):
    from transformers import AutoModelForMaskedLM

    head, _ = language_model_head(tiny_plm, bi)
    features = bi.preprocess(DOCUMENTS[0])
    with torch.no_grad():
        states = bi(dict(features))["token_embeddings"]
        whole = AutoModelForMaskedLM.from_pretrained(tiny_plm).eval()
        expected = whole(input_ids=features["input_ids"], attention_mask=features["attention_mask"]).logits
    torch.testing.assert_close(head.eval()(inputs_embeds=states).logits, expected)
    assert head.get_output_embeddings().weight is bi.transformers_model.get_input_embeddings().weight


@pytest.mark.parametrize("mask_ratio", [0.3, 1.0])
def test_with_masks_it_is_the_contrast_of_masked_anchors_and_the_cross_entropy_of_what_they_hide(
    bi, tiny_plm, mask_ratio
):
    from transformers import AutoModelForMaskedLM

    loss = masking(bi, tiny_plm, mask_ratio=mask_ratio)
    anchors = bi.preprocess([row[i] for i in (0, 3) for row in DOCUMENTS])
    ids, attention = anchors["input_ids"], anchors["attention_mask"]
    with torch.no_grad():
        torch.manual_seed(3)
        total = loss([dict(side) for side in read(bi)])
        torch.manual_seed(3)
        masked, is_chosen, _ = mask_tokens(
            ids,
            attention,
            mask_ratio,
            mask_token_id=loss.mask_token_id,
            special_ids=loss.special_ids,
            n_vocabulary=loss.head.config.vocab_size,
        )
        whole = AutoModelForMaskedLM.from_pretrained(tiny_plm).eval()
        logits = whole(input_ids=masked, attention_mask=attention).logits.double().numpy()
        embeddings = bi(dict(anchors) | {"input_ids": masked})["sentence_embedding"].double().numpy()
    guesses = [math.log(np.exp(logits[i, j]).sum()) - logits[i, j, ids[i, j]] for i, j in is_chosen.nonzero().tolist()]
    positives = bi.encode([text for i in (0, 3) for row in DOCUMENTS for text in row[i + 1 : i + 3]])
    contrast = slow_contrast(embeddings, positives.reshape(6, 2, -1).astype(np.float64), 0.05)
    assert total.item() == pytest.approx(contrast + np.mean(guesses), rel=1e-3)


def test_where_nothing_is_masked_the_guess_is_nothing(bi, tiny_plm):
    loss = masking(bi, tiny_plm, mask_ratio=0.0)(read(bi))
    assert loss.item() == pytest.approx(DeCLUTRLoss(bi)(read(bi)).item(), rel=1e-4)


def test_gradient_is_that_of_finite_differences(bi):
    """Along one random direction of a weight matrix, in double precision."""
    bi = bi.double()
    loss, features = DeCLUTRLoss(bi, temperature=0.5), read(bi)
    weight = bi.transformers_model.encoder.layer[0].output.dense.weight
    direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)).double()
    loss([dict(side) for side in features]).backward()
    values = []
    for step in (1e-3, -1e-3):
        with torch.no_grad():
            weight += step * direction
            values.append(loss([dict(side) for side in features]).item())
            weight -= step * direction
    assert (weight.grad * direction).sum().item() == pytest.approx((values[0] - values[1]) / 2e-3, rel=2e-2)


def test_gradients_reach_the_encoder_and_the_head(bi, tiny_plm):
    loss = masking(bi, tiny_plm, mask_ratio=0.5)
    loss(read(bi)).backward()
    reached = {name for name, parameter in loss.named_parameters() if parameter.grad is not None}
    assert any(name.startswith("head.cls") for name in reached)
    assert sum(name.startswith("model.") for name in reached) > 20


@pytest.mark.parametrize("changes", [{"temperature": 0.0}, {"mask_token_id": 4}])
def test_what_cannot_be_is_refused(bi, changes):
    with pytest.raises(ValueError, match="temperature is 0|belong together"):
        DeCLUTRLoss(bi, **changes)
