"""Losses of queues against slow statements of them, whatever the chunks; the queue; ConGen and CKD by their terms."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from tests.losses.batches import FIRST, embedded, read, tensors
from transencoder.losses import CKDLoss, ConGenLoss, InstanceQueue, queue_info_nce, queues, similarity_divergence


def cosines(vector: np.ndarray, queue: np.ndarray) -> list[float]:
    return [float(vector @ row / math.sqrt(vector @ vector) / math.sqrt(row @ row)) for row in queue]


def distribution(vector: np.ndarray, queue: np.ndarray, temperature: float) -> list[float]:
    exponentials = [math.exp(cosine / temperature) for cosine in cosines(vector, queue)]
    return [each / sum(exponentials) for each in exponentials]


def slow_divergence(queries, references, queue, temperature: float, reference_temperature: float) -> float:
    total = 0.0
    for query, reference in zip(queries, references, strict=True):
        p = distribution(reference, queue, reference_temperature)
        q = distribution(query, queue, temperature)
        total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)
    return total / len(queries)


def slow_info_nce(queries, queue, own, temperature: float) -> float:
    found = [distribution(query, queue, temperature)[i] for query, i in zip(queries, own, strict=True)]
    return -sum(map(math.log, found)) / len(found)


def draw(n: int, size: int, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n + 10 * size + 100 * dim)
    queue = rng.normal(size=(size, dim))
    return rng.normal(size=(n, dim)), rng.normal(size=(n, dim)), queue / np.linalg.norm(queue, axis=1, keepdims=True)


@pytest.fixture(params=[1, 3, 4096])
def chunk(request, monkeypatch):
    monkeypatch.setattr(queues, "_CHUNK", request.param)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize(("n", "size", "dim"), [(1, 1, 2), (1, 7, 3), (4, 5, 2), (6, 40, 16)])
@pytest.mark.parametrize(("temperature", "reference_temperature"), [(0.05, 0.04), (0.03, 0.01), (1.0, 2.0)])
def test_is_the_mean_divergence(n, size, dim, temperature, reference_temperature):
    arrays = draw(n, size, dim)
    loss = similarity_divergence(*tensors(*arrays), temperature, reference_temperature)
    assert loss.shape == ()
    slow = slow_divergence(*arrays, temperature, reference_temperature)
    assert loss.item() == pytest.approx(slow, rel=1e-4, abs=1e-5)


@pytest.mark.usefixtures("chunk")
def test_gradient_is_that_of_finite_differences(check_gradient):
    queries, references, queue = draw(3, 8, 3)
    rest = tensors(references, queue)
    check_gradient(
        lambda each: similarity_divergence(each, *rest, 0.5, 0.4),
        lambda each: slow_divergence(each, references, queue, 0.5, 0.4),
        queries,
    )


def test_only_the_queries_learn():
    queries, references, queue = (each.requires_grad_() for each in tensors(*draw(3, 8, 3)))
    similarity_divergence(queries, references, queue, 0.5, 0.4).backward()
    assert queries.grad.abs().sum() > 0
    assert references.grad is None
    assert queue.grad is None


def test_equal_distributions_diverge_by_nothing():
    queries, _, queue = tensors(*draw(5, 30, 8))
    assert similarity_divergence(queries, 3 * queries, queue, 0.05, 0.05).item() == pytest.approx(0.0, abs=1e-5)


def test_cross_entropy_would_have_the_same_gradient():
    """Why there is no switch for Table 4's `KL -> CE`."""
    queries, references, queue = tensors(*draw(5, 30, 8))
    queries.requires_grad_()
    (ours,) = torch.autograd.grad(similarity_divergence(queries, references, queue, 0.05, 0.04), queries)
    targets = (normalize(references) @ queue.T / 0.04).softmax(1)
    entropies = torch.nn.functional.cross_entropy(normalize(queries) @ queue.T / 0.05, targets)
    torch.testing.assert_close(torch.autograd.grad(entropies, queries)[0], ours, rtol=1e-3, atol=1e-5)


def test_lower_precision_around_it_changes_nothing():
    arrays = tensors(*draw(5, 30, 8))
    own = torch.arange(5)
    with torch.autocast("cpu", torch.bfloat16):
        cast = similarity_divergence(*arrays, 0.05, 0.04), queue_info_nce(arrays[0], arrays[2], own, 0.05)
    assert cast == (similarity_divergence(*arrays, 0.05, 0.04), queue_info_nce(arrays[0], arrays[2], own, 0.05))


@pytest.mark.parametrize(("n", "size", "dim"), [(1, 1, 2), (4, 5, 2), (6, 40, 16)])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_contrast_finds_ones_own_in_the_queue(n, size, dim, temperature):
    queries, _, queue = draw(n, size, dim)
    own = np.arange(n)[::-1].copy() % size
    loss = queue_info_nce(*tensors(queries, queue), torch.from_numpy(own), temperature)
    assert loss.item() == pytest.approx(slow_info_nce(queries, queue, own, temperature), rel=1e-4, abs=1e-5)


def test_contrasts_gradient_is_that_of_finite_differences(check_gradient):
    queries, _, queue = draw(3, 8, 3)
    own = [5, 0, 2]
    check_gradient(
        lambda each: queue_info_nce(each, *tensors(queue), torch.tensor(own), 0.5),
        lambda each: slow_info_nce(each, queue, own, 0.5),
        queries,
    )


def test_contrast_is_the_limit_of_sharp_references():
    queries, _, queue = tensors(*draw(5, 30, 8))
    own = torch.tensor([3, 7, 7, 0, 29])
    sharp = similarity_divergence(queries, queue[own], queue, 0.05, 1e-3)
    assert sharp.item() == pytest.approx(queue_info_nce(queries, queue, own, 0.05).item(), rel=1e-3)


def test_a_queue_holds_the_newest():
    torch.manual_seed(0)
    queue, before = InstanceQueue(5, 3), None
    first, rows = queue.rows.clone(), torch.randn(12, 3)
    torch.testing.assert_close(queue.rows.norm(dim=1), torch.ones(5))
    assert queue.push(rows[:3]).tolist() == [0, 1, 2]
    torch.testing.assert_close(queue.rows, torch.cat([normalize(rows[:3]), first[3:]]))
    before = queue.rows.data_ptr()
    assert queue.push(rows[3:7]).tolist() == [3, 4, 0, 1]
    torch.testing.assert_close(queue.rows, normalize(rows[[5, 6, 2, 3, 4]]))
    assert queue.push(rows[7:12]).tolist() == [2, 3, 4, 0, 1]
    torch.testing.assert_close(queue.rows, normalize(rows[[10, 11, 7, 8, 9]]))
    assert queue.rows.data_ptr() == before


@pytest.mark.parametrize("is_empty", [False, True])
def test_what_enters_stands_beside_the_earlier_ones(is_empty):
    """Of 5 earlier ones and the 2 that enter; of an empty queue as many as there are."""
    torch.manual_seed(0)
    queue, batches = InstanceQueue(5, 3, n_entering=2, is_empty=is_empty), torch.randn(6, 2, 3)
    seen = [] if is_empty else list(queue.rows)
    for step, batch in enumerate(batches, 1):
        candidates, own = queue.enter(batch)
        seen = [*seen, *normalize(batch)][-7:]
        assert len(candidates) == (min(2 * step, 7) if is_empty else 7)
        torch.testing.assert_close(candidates[own], normalize(batch))
        found = candidates @ torch.stack(seen).T
        torch.testing.assert_close(found.amax(0), torch.ones(len(seen)))
        torch.testing.assert_close(found.amax(1), torch.ones(len(candidates)))


def test_an_empty_queues_evaluation_and_state(tmp_path):
    queue, batch = InstanceQueue(5, 3, is_empty=True), torch.eye(3)[:2]
    with torch.no_grad():
        assert len(queue.enter(batch)[0]) == 2
    assert queue.n_filled == 0
    queue.enter(batch)
    other = InstanceQueue(5, 3, is_empty=True)
    other.load_state_dict(queue.state_dict())
    assert len(other.enter(batch)[0]) == 4


def test_a_queues_state_is_saved_with_its_module():
    queue, other = InstanceQueue(4, 2), InstanceQueue(4, 2)
    queue.push(torch.randn(3, 2))
    other.load_state_dict(queue.state_dict())
    assert other.push(torch.ones(2, 2)).tolist() == queue.push(torch.ones(2, 2)).tolist() == [3, 0]
    assert torch.equal(other.rows, queue.rows)
    assert not list(queue.parameters())


def test_a_queue_takes_no_more_than_it_holds():
    with pytest.raises(ValueError, match="at least 1"):
        InstanceQueue(0, 3)
    with pytest.raises(ValueError, match="4 vectors for a queue of 3"):
        InstanceQueue(3, 2).push(torch.ones(4, 2))


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


def test_both_texts_of_congen_learn_the_teachers_view_of_the_first(bi, projector, taught):
    rows = torch.cat([normalize(taught[:, 0]), queue().rows[4:]])
    first, second = (projector(each) for each in tensors(*embedded(bi)))
    slow = sum(similarity_divergence(each, taught[:, 0], rows, 0.5, 0.4) for each in (first, second)) / 2
    loss = ConGenLoss(bi, queue(), 0.5, 0.4, projector)
    torch.testing.assert_close(loss(read(bi), taught), slow, rtol=1e-4, atol=1e-5)
    once = ConGenLoss(bi, queue(), 0.5, 0.4, projector)
    torch.testing.assert_close(once(read(bi), taught[:, 0]), slow, rtol=1e-4, atol=1e-5)


def test_a_text_of_ckd_looks_for_its_teachers_embedding(bi, projector, taught):
    labels = taught[:, 0]
    rows = torch.cat([normalize(labels), queue().rows[4:]])
    (first,) = tensors(*embedded(bi, FIRST))
    for temperature, used in ((0.2, 0.2), (None, math.exp(-1))):
        slow = queue_info_nce(projector(first), rows, torch.arange(4), used)
        loss = CKDLoss(bi, queue(), projector, temperature=temperature)
        torch.testing.assert_close(loss(read(bi, FIRST), labels), slow, rtol=1e-4, atol=1e-5)


def test_each_column_of_ckd_counts_by_itself(bi, projector, taught):
    rows = torch.cat([normalize(taught[:, 0]), normalize(taught[:, 1]), queue().rows[8:]])
    both = torch.cat(tensors(*embedded(bi)))
    slow = queue_info_nce(projector(both), rows, torch.arange(8), 0.2)
    loss = CKDLoss(bi, queue(), projector, temperature=0.2)
    torch.testing.assert_close(loss(read(bi), taught), slow, rtol=1e-4, atol=1e-5)


def test_one_label_of_ckd_may_be_of_all_columns(bi, projector, taught):
    """As sentence-transformers' own distillation losses take them."""
    rows = torch.cat([normalize(taught[:, 0]), queue().rows[4:]])
    both = torch.cat(tensors(*embedded(bi)))
    slow = queue_info_nce(projector(both), rows, torch.arange(4).repeat(2), 0.2)
    loss = CKDLoss(bi, queue(), projector, temperature=0.2)
    torch.testing.assert_close(loss(read(bi), taught[:, 0]), slow, rtol=1e-4, atol=1e-5)


def test_the_scale_of_ckd_is_learned_unless_it_is_given(bi, taught):
    learned, given = CKDLoss(bi, queue(), torch.nn.Linear(32, 6)), CKDLoss(bi, queue(), temperature=0.1)
    learned(read(bi, FIRST), taught[:, 0]).backward()
    assert abs(learned.log_scale.grad.item()) > 1e-3
    assert learned.get_config_dict() == {"temperature": pytest.approx(math.exp(-1)), "learned": True}
    assert not given.log_scale.requires_grad
    assert given.get_config_dict() == {"temperature": pytest.approx(0.1), "learned": False}


def test_the_queue_goes_on(bi, projector, taught):
    loss = ConGenLoss(bi, queue(), 0.5, 0.4, projector)
    loss(read(bi), taught)
    loss(read(bi), 2 * taught.flip(0))
    assert loss.queue.oldest.item() == 8
    torch.testing.assert_close(loss.queue.rows[4:8], normalize(taught[:, 0]).flip(0))
    before = loss.queue.rows.clone()
    with torch.no_grad():
        loss(read(bi), taught)
    assert torch.equal(loss.queue.rows, before), "evaluation leaves it as it is"


@pytest.mark.parametrize("temperatures", [(0.0, 0.1), (0.1, -1.0), (float("nan"), 0.1)])
def test_temperatures_are_above_0(bi, temperatures):
    with pytest.raises(ValueError, match="must be above 0"):
        ConGenLoss(bi, queue(), *temperatures)
    with pytest.raises(ValueError, match="must be above 0"):
        CKDLoss(bi, queue(), temperature=min(temperatures))


def test_a_queue_must_hold_a_batch(bi, projector, taught):
    with pytest.raises(ValueError, match="a queue of 3 vectors cannot hold 1 x 4"):
        CKDLoss(bi, queue(3), projector)(read(bi, FIRST), taught[:, 0])
