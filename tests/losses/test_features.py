"""Both sides of a pair in one forward pass, and batches in parts of like length: the same embeddings."""

import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Pooling

from tests.losses.batches import read
from tests.rounding import model_rounding
from transencoder.losses import CosineLoss, DualViewLoss
from transencoder.losses.features import distinct_tokens, embed, embed_pairs

SHORT = ["balo", "bama dalo", "gelo"]
LONG = ["balo bama dalo dama felo", "kama", "lelo memo " * 6]


class CountingModel(torch.nn.Module):
    """Passes on to a model and remembers how many rows and tokens each forward had."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.rows: list[int] = []
        self.tokens: list[int] = []

    def forward(self, features):
        self.rows.append(len(features["input_ids"]))
        self.tokens.append(features["input_ids"].numel())
        return self.model(features)


@pytest.mark.parametrize(("left", "right"), [(SHORT, LONG), (LONG, SHORT), (SHORT, SHORT)])
def test_one_forward_for_both_sides_equals_two(bi, left, right):
    sides = read(bi, left, right)
    widths = [side["input_ids"].shape[1] for side in sides]
    assert (widths[0] == widths[1]) == (left is right)
    model = CountingModel(bi)
    with torch.no_grad():
        joined = embed_pairs(model, sides)
        apart = [bi(dict(side))["sentence_embedding"] for side in sides]
    assert model.rows == [6]
    for one, two in zip(joined, apart, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=model_rounding(bi, two))


@pytest.mark.parametrize("build", [CosineLoss, lambda model: DualViewLoss(model, 2)], ids=["cosine", "classes"])
def test_losses_of_independent_rows_are_their_mean_and_read_equal_texts_once(bi, build):
    loss, labels = build(bi), torch.tensor([0.0, 1.0, 1.0])
    assert loss.is_mean_of_rows
    rows = list(zip(["balo", "balo", "bama dalo"], ["kama", "bama dalo", "balo"], labels, strict=True))
    with torch.no_grad():
        alone = [loss(read(bi, [first], [second]), label[None]) for first, second, label in rows]
        loss.model = CountingModel(bi)
        together = loss(read(bi, *([row[side] for row in rows] for side in (0, 1))), labels)
    assert loss.model.rows == [3]
    torch.testing.assert_close(together, torch.stack(alone).mean())


@pytest.mark.parametrize("side", ["right", "left"])
def test_equal_texts_of_a_batch_are_read_once(bi, side):
    bi.tokenizer.padding_side = side
    first, second = [*SHORT, *LONG, "balo"], [*LONG, *SHORT, "balo"]
    gradients = []
    for distinct, rows in ((False, 14), (True, 6)):
        counting = CountingModel(bi)
        bi.zero_grad()
        embeddings = torch.cat(embed_pairs(counting, read(bi, first, second), distinct=distinct))
        assert counting.rows == [rows]
        embeddings.square().mul(torch.arange(14.0)[:, None]).sum().backward()
        gradients.append([embeddings.detach(), *(p.grad.clone() for p in bi.parameters() if p.grad is not None)])
    scale = max(each.abs().max().item() for each in gradients[0])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=model_rounding(bi, scale))


def test_with_several_threads_the_gradient_has_the_same_bytes():
    """Was: of 300 backward passes through `embeddings[which]` 21 were different."""
    which, weights = torch.arange(1200) % 256, torch.randn(1200, 384, generator=torch.Generator().manual_seed(0))
    features = {"input_ids": which[:, None], "attention_mask": torch.ones(1200, 1, dtype=torch.long)}

    class Table(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = torch.nn.Parameter(torch.zeros(256, 384))

        def forward(self, features):
            return {"sentence_embedding": self.embeddings * features["attention_mask"]}

    def gradient(table: Table) -> bytes:
        table.zero_grad()
        sides = [{name: values[rows] for name, values in features.items()} for rows in (slice(600), slice(600, 1200))]
        (torch.cat(embed_pairs(table, sides, distinct=True)) * weights).sum().backward()
        return table.embeddings.grad.numpy().tobytes()

    n_threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        table = Table()
        assert len({gradient(table) for _ in range(100)}) == 1
    finally:
        torch.set_num_threads(n_threads)


@pytest.mark.parametrize("name", ["token_type_ids", "pixel_values"])
def test_texts_with_other_features_are_not_equal(name):
    class Sums(torch.nn.Module):
        def forward(self, features):
            return {"sentence_embedding": features["input_ids"].float() + features[name]}

    def side(*values: int) -> dict[str, torch.Tensor]:
        ids = torch.tensor([[5], [5]])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), name: torch.tensor(values)[:, None]}

    one, two = embed_pairs(Sums(), [side(1, 2), side(1, 3)], distinct=True)
    assert torch.cat([one, two]).flatten().tolist() == [6, 7, 6, 8]


def test_tokens_of_distinct_texts_are_counted_without_padding(bi):
    sides = read(bi, ["balo", "balo bama dalo"], ["balo", "dalo"])
    assert distinct_tokens(sides) == sum(
        int(bi.preprocess([text])["attention_mask"].sum()) for text in ("balo", "balo bama dalo", "dalo")
    )


def test_a_text_that_ends_in_the_padding_token_is_another(bi):
    """Its ids are those of a shorter text with padding."""
    padding = bi.tokenizer.pad_token
    sides = read(bi, ["balo", "balo bama dalo"], ["balo", "dalo"])
    sides[1] = dict(sides[1])
    short, longer = sides[0]["attention_mask"][0], sides[0]["attention_mask"][0].clone()
    longer[int(short.sum())] = 1
    sides[0]["attention_mask"] = torch.stack([longer, sides[0]["attention_mask"][1]])
    assert sides[0]["input_ids"][0, int(short.sum())] == bi.tokenizer.convert_tokens_to_ids(padding)
    counting = CountingModel(bi)
    with torch.no_grad():
        one, two = (side[0] for side in embed_pairs(counting, sides, distinct=True))
    assert counting.rows == [4]
    assert not torch.allclose(one, two, atol=1e-3)


def test_texts_that_are_all_different_are_read_in_their_order(bi):
    """So that dropout draws as without `distinct`."""
    bi.train()
    sides = read(bi, ["gelo", "balo"], ["dalo bama", "bama dalo"])
    embeddings = []
    for distinct in (False, True):
        torch.manual_seed(3)
        embeddings.append(torch.cat(embed_pairs(bi, sides, distinct=distinct)))
    assert torch.equal(*embeddings)


def test_prompts_of_two_lengths_that_pooling_leaves_out(bi):
    """Was: the first side's prompt length was used for both."""
    bi[1] = Pooling(32, pooling_mode="mean", include_prompt=False)
    sides = [bi.preprocess(SHORT, prompt="balo: "), bi.preprocess(LONG, prompt="dalo felo kama: ")]
    with torch.no_grad():
        joined = embed_pairs(bi, [dict(side) for side in sides])
        apart = [bi(dict(side))["sentence_embedding"] for side in sides]
    for one, two in zip(joined, apart, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=model_rounding(bi, two))


MIXED = [f"balo {'dama ' * (i % 12)}" for i in range(70)]


@pytest.mark.parametrize("side", ["right", "left"])
def test_in_parts_of_like_length_the_embeddings_are_the_same(bi, side):
    bi.tokenizer.padding_side = side
    if side == "left":  # there padding moves BERT's positions whatever the batch
        torch.nn.init.zeros_(bi.transformers_model.embeddings.position_embeddings.weight)
    counting, features = CountingModel(bi), read(bi, MIXED)[0]
    with torch.no_grad():
        in_parts = embed(counting, dict(features))
        alone = torch.cat([bi(read(bi, [text])[0])["sentence_embedding"] for text in MIXED])
    assert counting.rows == [32, 32, 6]
    torch.testing.assert_close(in_parts, alone, rtol=0, atol=model_rounding(bi, alone))
    assert sum(counting.tokens) < 0.85 * features["input_ids"].numel()


@pytest.mark.parametrize("texts", [SHORT, ["balo dama"] * 70])
def test_small_batches_and_texts_of_one_length_go_through_whole(bi, texts):
    counting = CountingModel(bi)
    embed(counting, read(bi, texts)[0])
    assert counting.rows == [len(texts)]


def test_where_there_is_no_mask_the_batch_goes_through_whole():
    """FlashAttention's features of texts without padding have none."""

    class Flash(torch.nn.Module):
        def forward(self, features):
            return {"sentence_embedding": features["input_ids"].float().T}

    assert embed(Flash(), {"input_ids": torch.zeros(1, 400)}).shape == (400, 1)


def test_gradients_flow_from_every_part(bi):
    gradients = []
    for embed_all in (embed, lambda model, features: model(features)["sentence_embedding"]):
        bi.zero_grad()
        embeddings = embed_all(bi, read(bi, MIXED)[0])
        embeddings.square().mul(torch.arange(70.0)[:, None]).sum().backward()
        gradients.append([p.grad.clone() for p in bi.parameters() if p.grad is not None])
    scale = max(each.abs().max().item() for each in gradients[1])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=model_rounding(bi, scale))
