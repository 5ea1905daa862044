"""DvBERT's annealed loss from a slow statement of it, and what it is at its ends."""

import math

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss, SoftmaxLoss

from tests.losses.batches import FIRST, SECOND, embedded, read, tensors
from transencoder.losses import CosineLoss, DualViewLoss, annealed, class_divergence

N_CLASSES = 3


def distributions(n, n_pairs=4, seed=0):
    """Of n teachers: (n, pairs, classes)."""
    return np.random.default_rng(seed).dirichlet(np.ones(N_CLASSES), size=(n, n_pairs)).astype(np.float32)


def gold(seed=1):
    return np.eye(N_CLASSES, dtype=np.float32)[np.random.default_rng(seed).integers(N_CLASSES, size=4)]


def slow_divergence(logits, targets):
    """Mean over pairs of KL(q, p)."""
    total = 0.0
    for x, q in zip(logits.tolist(), targets.tolist(), strict=True):
        log_sum = math.log(sum(math.exp(value) for value in x))
        total += sum(q[i] * (math.log(q[i]) - (x[i] - log_sum)) for i in range(len(x)) if q[i] > 0)
    return total / len(logits)


def slow_annealed(logits, y, taught, gold_share):
    return sum(slow_divergence(logits, gold_share * y + (1 - gold_share) * q) for q in taught)


def joined(y, taught):
    """Labels as the module takes them: gold, then each teacher's."""
    return torch.from_numpy(np.concatenate([y, *taught], axis=1))


@pytest.mark.parametrize("gold_share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n_teachers", [1, 3])
def test_the_annealed_loss_is_the_papers(bi, gold_share, n_teachers):
    y, taught = gold(), distributions(n_teachers)
    loss = DualViewLoss(bi, N_CLASSES)
    loss.gold_share = gold_share
    u, v = tensors(*embedded(bi))
    logits = loss.classifier(torch.cat([u, v, (u - v).abs()], dim=1)).detach().numpy()
    expected = slow_annealed(logits, y, taught, gold_share)
    assert loss(read(bi), joined(y, taught)).item() == pytest.approx(expected, rel=1e-4)


def test_its_gradient_is_that_of_the_slow_statement(check_gradient):
    logits = np.random.default_rng(3).normal(size=(4, N_CLASSES))
    (q,) = distributions(1)
    check_gradient(
        lambda x: class_divergence(x, torch.from_numpy(q)), lambda x: slow_divergence(x, q.astype(np.float64)), logits
    )


def test_with_gold_alone_it_is_sentence_transformers_softmax_loss(bi):
    loss, theirs = DualViewLoss(bi, N_CLASSES), SoftmaxLoss(bi, bi.get_embedding_dimension(), N_CLASSES)
    theirs.classifier.load_state_dict(loss.classifier.state_dict())
    y = gold()
    classes = torch.from_numpy(y.argmax(1))
    expected = theirs(read(bi), classes)
    torch.testing.assert_close(loss(read(bi), classes), expected)
    torch.testing.assert_close(loss(read(bi), torch.from_numpy(y)), expected)
    loss.gold_share = 1.0
    torch.testing.assert_close(loss(read(bi), joined(y, distributions(1))), expected)


def test_with_gold_scores_alone_it_is_sentence_transformers_cosine_similarity_loss(bi):
    scores = torch.tensor([0.1, 0.9, 0.5, 1.0])
    torch.testing.assert_close(CosineLoss(bi)(read(bi), scores), CosineSimilarityLoss(bi)(read(bi), scores))


def test_one_teachers_fixed_weight_has_the_gradient_of_the_fixed_mix(bi):
    """Figure 3's loss weighting, alpha, and targets mixed once and for all, lambda = 1 - alpha."""
    labels = joined(gold(), distributions(1))
    for alpha in (0.0, 0.3, 1.0):
        weighted, mixed = DualViewLoss(bi, N_CLASSES, soft_share=alpha), DualViewLoss(bi, N_CLASSES)
        mixed.classifier.load_state_dict(weighted.classifier.state_dict())
        mixed.gold_share = 1.0 - alpha
        gradients = []
        for loss in (weighted, mixed):
            bi.zero_grad()
            loss(read(bi), labels).backward()
            gradients.append(
                [loss.classifier.weight.grad, *(p.grad.clone() for p in bi.parameters() if p.grad is not None)]
            )
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_three_teachers_fixed_weight_is_another_gradient(bi):
    labels = joined(gold(), distributions(3))
    weighted, mixed = DualViewLoss(bi, N_CLASSES, soft_share=0.5), DualViewLoss(bi, N_CLASSES)
    mixed.classifier.load_state_dict(weighted.classifier.state_dict())
    mixed.gold_share = 0.5
    for loss in (weighted, mixed):
        loss(read(bi), labels).backward()
    assert not torch.allclose(weighted.classifier.weight.grad, mixed.classifier.weight.grad, rtol=0.05)


@pytest.mark.parametrize("n_teachers", [0, 1, 2])
def test_graded_targets_are_annealed_too(bi, n_teachers):
    """And teachers' losses added; where there is no gold, the teacher's target stays."""
    rng = np.random.default_rng(5)
    y, taught = rng.random(4).astype(np.float32), rng.random((n_teachers, 4)).astype(np.float32)
    u, v = (bi.encode(side, normalize_embeddings=True) for side in (FIRST, SECOND))
    cosines = (u * v).sum(1)
    y[2] = np.nan if n_teachers else y[2]
    loss = CosineLoss(bi)
    loss.gold_share = 0.25
    mixed = [np.where(np.isnan(y), q, 0.25 * y + 0.75 * q) for q in taught] if n_teachers else [y]
    expected = sum(((cosines - each) ** 2).mean() for each in mixed)
    labels = torch.from_numpy(np.stack([y, *taught], axis=1))
    assert loss(read(bi), labels).item() == pytest.approx(expected, rel=1e-4)


def test_at_1_the_targets_are_gold_to_the_bit():
    y, q = torch.rand(100), torch.rand(100)
    assert torch.equal(annealed(y, q, 1.0), y)
    assert torch.equal(annealed(y, q, 0.0), q)


def test_a_target_that_is_no_number_is_refused(bi):
    with pytest.raises(ValueError, match=r"allowed is \[0, 1\]"):
        CosineLoss(bi)(read(bi), torch.tensor([0.1, float("nan"), 0.2, 0.3]))
    taught = torch.tensor([[float("nan"), 0.5]] * 3 + [[0.2, float("nan")]])
    with pytest.raises(ValueError, match=r"allowed is \[0, 1\]"):
        CosineLoss(bi)(read(bi), taught)


def test_what_does_not_fit_is_refused(bi):
    loss = DualViewLoss(bi, N_CLASSES)
    with pytest.raises(ValueError, match="labels range from 0 to 3; classes are 0 to 2"):
        loss(read(bi), torch.tensor([0, 1, 2, 3]))
    with pytest.raises(ValueError, match="labels are 4 wide, no multiple of the 3 classes"):
        loss(read(bi), torch.rand(4, 4))
    with pytest.raises(ValueError, match="n_classes is 1"):
        DualViewLoss(bi, 1)
    with pytest.raises(ValueError, match=r"soft_share is 1.5; it must be in \[0, 1\]"):
        DualViewLoss(bi, 3, soft_share=1.5)
