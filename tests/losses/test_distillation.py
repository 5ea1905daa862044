"""ConGen and CKD, by their terms: which texts learn, what they are compared with, what is learned beside them."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from transencoder.losses import CKDLoss, ConGenLoss, InstanceQueue, queue_info_nce, similarity_divergence

FIRST = ["balo", "bama dalo", "gelo kama", "felo"]
SECOND = ["balo lelo", "dalo", "kama memo", "felo felo"]


@pytest.fixture
def projector():
    torch.manual_seed(1)
    return torch.nn.Linear(32, 6)


@pytest.fixture
def taught():
    """A teacher's embeddings of both texts of each row."""
    return torch.randn(4, 2, 6, generator=torch.Generator().manual_seed(2))


def queue(size=9):
    torch.manual_seed(3)
    return InstanceQueue(size, 6)


def sides(model, *texts):
    return [dict(model.preprocess(side)) for side in texts]


def embeddings(model, *texts):
    return [torch.from_numpy(model.encode(side)) for side in texts]


def test_both_texts_of_congen_learn_the_teachers_view_of_the_first(bi, projector, taught):
    rows = torch.cat([normalize(taught[:, 0]), queue().rows[4:]])
    first, second = (projector(each) for each in embeddings(bi, FIRST, SECOND))
    slow = sum(similarity_divergence(each, taught[:, 0], rows, 0.5, 0.4) for each in (first, second)) / 2
    loss = ConGenLoss(bi, queue(), 0.5, 0.4, projector)
    torch.testing.assert_close(loss(sides(bi, FIRST, SECOND), taught), slow, rtol=1e-4, atol=1e-5)
    once = ConGenLoss(bi, queue(), 0.5, 0.4, projector)
    torch.testing.assert_close(once(sides(bi, FIRST, SECOND), taught[:, 0]), slow, rtol=1e-4, atol=1e-5)


def test_a_text_of_ckd_looks_for_its_teachers_embedding(bi, projector, taught):
    labels = taught[:, 0]
    rows = torch.cat([normalize(labels), queue().rows[4:]])
    (first,) = embeddings(bi, FIRST)
    for temperature, used in ((0.2, 0.2), (None, math.exp(-1))):
        slow = queue_info_nce(projector(first), rows, torch.arange(4), used)
        loss = CKDLoss(bi, queue(), projector, temperature=temperature)
        torch.testing.assert_close(loss(sides(bi, FIRST), labels), slow, rtol=1e-4, atol=1e-5)


def test_each_column_of_ckd_counts_by_itself(bi, projector, taught):
    rows = torch.cat([normalize(taught[:, 0]), normalize(taught[:, 1]), queue().rows[8:]])
    both = torch.cat(embeddings(bi, FIRST, SECOND))
    slow = queue_info_nce(projector(both), rows, torch.arange(8), 0.2)
    loss = CKDLoss(bi, queue(), projector, temperature=0.2)
    torch.testing.assert_close(loss(sides(bi, FIRST, SECOND), taught), slow, rtol=1e-4, atol=1e-5)


def test_one_label_of_ckd_may_be_of_all_columns(bi, projector, taught):
    """As sentence-transformers' own distillation losses take them."""
    rows = torch.cat([normalize(taught[:, 0]), queue().rows[4:]])
    both = torch.cat(embeddings(bi, FIRST, SECOND))
    slow = queue_info_nce(projector(both), rows, torch.arange(4).repeat(2), 0.2)
    loss = CKDLoss(bi, queue(), projector, temperature=0.2)
    torch.testing.assert_close(loss(sides(bi, FIRST, SECOND), taught[:, 0]), slow, rtol=1e-4, atol=1e-5)


def test_the_scale_of_ckd_is_learned_unless_it_is_given(bi, taught):
    learned, given = CKDLoss(bi, queue(), torch.nn.Linear(32, 6)), CKDLoss(bi, queue(), temperature=0.1)
    learned(sides(bi, FIRST), taught[:, 0]).backward()
    assert abs(learned.log_scale.grad.item()) > 1e-3
    assert learned.get_config_dict() == {"temperature": pytest.approx(math.exp(-1)), "learned": True}
    assert not given.log_scale.requires_grad
    assert given.get_config_dict() == {"temperature": pytest.approx(0.1), "learned": False}


def test_the_queue_goes_on(bi, projector, taught):
    loss = ConGenLoss(bi, queue(), 0.5, 0.4, projector)
    loss(sides(bi, FIRST, SECOND), taught)
    loss(sides(bi, FIRST, SECOND), 2 * taught.flip(0))
    assert loss.queue.oldest.item() == 8
    torch.testing.assert_close(loss.queue.rows[4:8], normalize(taught[:, 0]).flip(0))
    before = loss.queue.rows.clone()
    with torch.no_grad():
        loss(sides(bi, FIRST, SECOND), taught)
    assert torch.equal(loss.queue.rows, before), "evaluation leaves it as it is"


@pytest.mark.parametrize("temperatures", [(0.0, 0.1), (0.1, -1.0), (float("nan"), 0.1)])
def test_temperatures_are_above_0(bi, temperatures):
    with pytest.raises(ValueError, match="must be above 0"):
        ConGenLoss(bi, queue(), *temperatures)
    with pytest.raises(ValueError, match="must be above 0"):
        CKDLoss(bi, queue(), temperature=min(temperatures))


def test_a_queue_must_hold_a_batch(bi, projector, taught):
    with pytest.raises(ValueError, match="a queue of 3 vectors cannot hold 1 x 4"):
        CKDLoss(bi, queue(3), projector)(sides(bi, FIRST), taught[:, 0])
