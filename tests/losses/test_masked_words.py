"""Losses of masked words: random masks; DeCLUTR and DiffCSE against slow statements; what trains and what does not."""

import math

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForMaskedLM

from tests.losses.batches import embedded, tensors
from tests.losses.batches import read as read_sides
from transencoder.encoders import language_model_head
from transencoder.losses import DeCLUTRLoss, DiffCSELoss, InfoNCELoss, batch_norm_projector, replaced_token_detection
from transencoder.losses.masked_words import mask_tokens

N_VOCABULARY, MASK, SPECIAL = 1000, 4, [0, 1, 2, 3, 4]


def masked(mask_ratio: float, n_rows: int = 400):
    torch.manual_seed(0)
    ids = torch.randint(5, N_VOCABULARY, (n_rows, 30))
    ids[:, 0], ids[:, 20] = 2, 3
    attention = (torch.arange(30) <= 20).long().repeat(n_rows, 1)
    vocabulary = {"mask_token_id": MASK, "special_ids": SPECIAL, "n_vocabulary": N_VOCABULARY}
    return ids, attention, *mask_tokens(ids, attention, mask_ratio, **vocabulary)


def test_of_the_chosen_four_fifths_are_masked_and_a_tenth_replaced():
    ids, _, out, is_chosen, _ = masked(0.5)
    chosen, before = out[is_chosen], ids[is_chosen]
    assert (chosen == MASK).float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (chosen == before).float().mean().item() == pytest.approx(0.1, abs=0.015)
    assert ((chosen != MASK) & (chosen != before)).float().mean().item() == pytest.approx(0.1, abs=0.015)
    assert torch.equal(out[~is_chosen], ids[~is_chosen])


@pytest.mark.parametrize("mask_ratio", [0.0, 0.15, 0.3, 1.0])
def test_so_many_words_are_chosen_and_never_special_tokens_or_padding(mask_ratio):
    ids, attention, _, is_chosen, is_text = masked(mask_ratio)
    assert torch.equal(is_text, attention.bool() & (ids > 4))
    assert not (is_chosen & ~is_text).any()
    assert is_chosen[is_text].float().mean().item() == pytest.approx(mask_ratio, abs=0.015)


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


def documents(model: SentenceTransformer, n_columns: int = 6, n_documents: int = 3) -> list[dict[str, object]]:
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
    group = 1 + n_positives
    rows = [row[i : i + group] for row in DOCUMENTS[:n_documents] for i in range(0, n_columns, group)]
    embeddings = embedded(bi, [text for row in rows for text in row])[0].reshape(len(rows), group, -1)
    loss = DeCLUTRLoss(bi, n_positives, temperature)(documents(bi, n_columns, n_documents))
    expected = slow_contrast(embeddings[:, 0], embeddings[:, 1:], temperature)
    assert loss.item() == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_the_head_is_the_pretrained_one_on_the_students_states(bi, tiny_plm):
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
    loss = masking(bi, tiny_plm, mask_ratio=mask_ratio)
    anchors = bi.preprocess([row[i] for i in (0, 3) for row in DOCUMENTS])
    ids, attention = anchors["input_ids"], anchors["attention_mask"]
    with torch.no_grad():
        torch.manual_seed(3)
        total = loss([dict(side) for side in documents(bi)])
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
    loss = masking(bi, tiny_plm, mask_ratio=0.0)(documents(bi))
    assert loss.item() == pytest.approx(DeCLUTRLoss(bi)(documents(bi)).item(), rel=1e-4)


def test_gradient_is_that_along_a_direction(bi):
    """Along one random direction of a weight matrix, in double precision."""
    bi = bi.double()
    loss, features = DeCLUTRLoss(bi, temperature=0.5), documents(bi)
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
    loss(documents(bi)).backward()
    reached = {name for name, parameter in loss.named_parameters() if parameter.grad is not None}
    assert any(name.startswith("head.cls") for name in reached)
    assert sum(name.startswith("model.") for name in reached) > 20


@pytest.mark.parametrize("changes", [{"temperature": 0.0}, {"mask_token_id": 4}])
def test_what_cannot_be_is_refused(bi, changes):
    with pytest.raises(ValueError, match="temperature is 0|belong together"):
        DeCLUTRLoss(bi, **changes)


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
    return read_sides(loss.model, TEXTS, TEXTS)


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
    found = replaced_token_detection(*tensors(logits), torch.from_numpy(is_replaced), torch.from_numpy(counts))
    assert found.item() == pytest.approx(slow_detection(logits, is_replaced, counts), rel=1e-5)


def test_the_detections_gradient_is_that_of_finite_differences(check_gradient):
    logits, *others = draw((3, 4))
    tensors = [torch.from_numpy(each) for each in others]
    check_gradient(
        lambda values: replaced_token_detection(values, *tensors),
        lambda values: slow_detection(values, *others),
        logits,
    )


def test_the_projector_begins_with_berts_weights():
    """Released code: N(0, 0.02), which torch's own start of this width exceeds."""
    weights = [parameter for parameter in batch_norm_projector(256).parameters() if parameter.ndim == 2]
    assert [weight.std().item() for weight in weights] == pytest.approx([0.02, 0.02], rel=0.02)


def test_without_weight_it_is_info_nce(make):
    loss = make(weight=0.0)
    assert loss(read(loss)).item() == pytest.approx(InfoNCELoss(loss.model)(read(loss)).item(), rel=1e-5)


def test_all_but_the_first_token_is_edited_and_text_alone_masked(make):
    loss = make(mask_ratio=0.99).eval()
    features = dict(loss.model.preprocess(TEXTS))
    mask, padding = features["attention_mask"], next(each for each in loss.special_ids if each)
    ids = features["input_ids"].masked_fill(mask == 0, padding)  # of RoBERTa it is not 0 either
    assert (ids == padding).any()
    read_by_generator = []
    hook = loss.generator.register_forward_pre_hook(
        lambda _, __, features: read_by_generator.append(features["input_ids"]), with_kwargs=True
    )
    edited = loss._edit(ids, mask)
    hook.remove()
    special = torch.isin(ids, torch.tensor(loss.special_ids))
    assert torch.equal(read_by_generator[0][special], ids[special])
    assert (edited != ids)[~special].float().mean() > 0.5
    with torch.no_grad():
        choices = loss.generator(input_ids=read_by_generator[0], attention_mask=mask).logits.argmax(-1)
    assert torch.equal(edited[:, 0], ids[:, 0])
    assert torch.equal(edited[:, 1:], torch.where(mask[:, 1:] == 1, choices[:, 1:], 0))
    torch.manual_seed(0)
    first = loss._edit(ids, mask)
    torch.manual_seed(0)
    assert torch.equal(loss._edit(ids, mask), first)


def test_the_generator_guesses_with_dropout_while_training(make):
    def guesses(loss):
        seen = []
        hook = loss.generator.register_forward_hook(lambda _, __, output: seen.append(output.logits))
        ids, mask = (dict(loss.model.preprocess(TEXTS))[name] for name in ("input_ids", "attention_mask"))
        loss.special_ids = list(range(loss.generator.config.vocab_size))  # nothing is masked
        for _ in range(2):
            loss._edit(ids, mask)
        hook.remove()
        return seen

    first, second = guesses(make().train())
    assert not torch.equal(first, second)
    first, second = guesses(make().eval())
    assert torch.equal(first, second)


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
    """The value is that of all tokens' logits, averaged over the text's tokens or over padding too, never replaced."""
    for counts_padding in (False, True):
        loss = make(counts_padding=counts_padding)
        logits = []
        loss.head.register_forward_hook(lambda _, __, output, logits=logits: logits.append(output))
        features = dict(loss.model.preprocess(TEXTS))
        features["input_ids"][features["attention_mask"] == 0] = 1  # RoBERTa's padding
        torch.manual_seed(0)
        with torch.no_grad():
            found = loss._detect(dict(features), torch.ones(3, 32)).item()
            torch.manual_seed(0)
            edited = loss._edit(features["input_ids"], features["attention_mask"])
        mask = features["attention_mask"].bool().numpy()
        assert not mask.all(), "there is padding"
        counts = np.ones_like(mask) if counts_padding else mask
        is_replaced = (edited != features["input_ids"]).numpy() & mask
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
    assert not any(parameter.requires_grad for parameter in loss.generator.parameters())
    for part in (loss.model, loss.discriminator, loss.head, loss.projector):
        assert any(parameter.grad is not None and parameter.grad.any() for parameter in part.parameters())
