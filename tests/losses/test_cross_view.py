"""SCT's equations 2 to 4 and its ablations, by their terms; what learns, what follows, what is saved."""

import pytest
import torch
from torch.nn.functional import normalize

from tests.losses.batches import embedded, read, tensors
from transencoder.fit.trainers import set_dropout
from transencoder.losses import (
    CKDLoss,
    ConGenLoss,
    FirstViewDivergence,
    InstanceQueue,
    ReferenceSearch,
    SCTLoss,
    ViewComparison,
    ViewError,
    mlp_projector,
    queue_info_nce,
    similarity_divergence,
)

TEMPERATURES = (0.5, 0.4)


def draw(n=3, dim=4):
    torch.manual_seed(1)
    return [(torch.randn(n, dim), torch.randn(n, dim)) for _ in range(2)]


def comparison(size=8, dim=4, **settings):
    torch.manual_seed(2)
    return ViewComparison(dim, size, *TEMPERATURES, **settings)


def slow(settings, online, references):
    """The loss by its two terms: each view, its target, and the vectors that both are compared with."""
    if settings.get("size") == 0:
        queues, own = [normalize(each) for each in references], [torch.arange(3)] * 2
    else:
        queues, own = [queue.rows for queue in comparison(**settings).queues], [torch.arange(3)] * 2
        if settings.get("n_queues") == 1:
            queues = [torch.cat([normalize(torch.cat(references)), queues[0][6:]])] * 2
            own = [torch.arange(3), torch.arange(3, 6)]
        elif settings.get("renew", True):
            queues = [torch.cat([normalize(r), queue[3:]]) for r, queue in zip(references, queues, strict=True)]
    targets = list(zip(references, queues, own, strict=True))
    if settings.get("comparison") != "identical":
        targets.reverse()
    total = 0.0
    for z, (reference, queue, places) in zip(online, targets, strict=True):
        if settings.get("objective") == "contrastive":
            total += queue_info_nce(z, queue, places, 0.5)
        else:
            total += similarity_divergence(z, reference, queue, *TEMPERATURES)
    return total / 2


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"comparison": "identical"},
        {"objective": "contrastive"},
        {"n_queues": 1},
        {"n_queues": 1, "objective": "contrastive"},
        {"renew": False},
        {"size": 0},
        {"size": 0, "objective": "contrastive"},
    ],
)
def test_each_view_learns_what_the_settings_say_by_its_terms(settings):
    online, references = draw()
    compared = comparison(**settings)
    before = [queue.rows.clone() for queue in compared.queues]
    torch.testing.assert_close(compared(online, references), slow(settings, online, references))
    for queue, rows in zip(compared.queues, before, strict=True):
        assert torch.equal(queue.rows, rows) == (not settings.get("renew", True))


@pytest.mark.parametrize("temperatures", [(0.0, 0.1), (0.1, -1.0), (float("nan"), 0.1)])
def test_temperatures_are_above_0(temperatures):
    with pytest.raises(ValueError, match="must be above 0"):
        ViewComparison(4, 8, *temperatures)


def test_what_contradicts_itself_is_refused(bi):
    with pytest.raises(ValueError, match="must enter it"):
        comparison(objective="contrastive", renew=False)
    with pytest.raises(ValueError, match="give reference_temperature, or objective contrastive"):
        ViewComparison(4, 8, 0.1, None)
    with pytest.raises(ValueError, match="nothing to compare with"):
        SCTLoss(bi)
    with pytest.raises(ValueError, match="a share, 0 to below 1"):
        SCTLoss(bi, comparison(dim=32), momentum=1.0)


def test_the_module_compares_projected_views_with_plain_ones(bi):
    projector = mlp_projector(32, expansion=2)
    loss = SCTLoss(bi, comparison(dim=32), projector)
    first, second = tensors(*embedded(bi))
    slow = comparison(dim=32)((projector(first), projector(second)), (first, second))
    torch.testing.assert_close(loss(read(bi)), slow, rtol=1e-4, atol=1e-5)
    assert loss.get_config_dict() == {"own": {"temperature": 0.5, "reference_temperature": 0.4}}
    assert not [name for name in bi.state_dict() if "projector" in name or "queue" in name]


def test_references_are_of_the_pass_that_learns(bi):
    """With dropout a second pass would give others, so that a view's divergence from its own reference is not 0."""
    set_dropout(bi, 0.5)
    bi.train()
    loss = SCTLoss(bi, ViewComparison(32, 8, 0.4, 0.4, comparison="identical"))
    assert loss(read(bi)).abs().item() < 1e-6
    assert (bi(dict(read(bi)[0]))["sentence_embedding"] - bi(dict(read(bi)[0]))["sentence_embedding"]).abs().max() > 0.1


def test_with_a_teacher_both_losses_are_added(bi):
    """Equation 3: a pair of queues for each reference network, which may be of another width."""
    taught = mlp_projector(32, 6, expansion=2, n_layers=1)
    torch.manual_seed(3)
    teacher = torch.randn(4, 2, 6)
    first, second = tensors(*embedded(bi))
    own = comparison(dim=32)((first, second), (first, second))
    distilled = comparison(dim=6)((taught(first), taught(second)), (teacher[:, 0], teacher[:, 1]))
    both = SCTLoss(bi, comparison(dim=32), teacher=comparison(dim=6), teacher_projector=taught)
    torch.testing.assert_close(both(read(bi), teacher), own + distilled, rtol=1e-4, atol=1e-5)
    alone = SCTLoss(bi, teacher=comparison(dim=6), teacher_projector=taught)
    torch.testing.assert_close(alone(read(bi), teacher), distilled, rtol=1e-4, atol=1e-5)


def test_table_7s_teachers_are_the_other_methods_losses(bi):
    """Added to the views' own; of queues by their definition, of mean squared error by sentence-transformers' own."""
    projector = torch.nn.Linear(32, 6)
    taught = torch.randn(4, 2, 6, generator=torch.Generator().manual_seed(3))

    def queue():
        torch.manual_seed(4)
        return InstanceQueue(9, 6)

    first, second = tensors(*embedded(bi))
    own = comparison(dim=32)((first, second), (first, second))
    z, both = torch.cat([projector(first), projector(second)]), torch.cat([taught[:, 0], taught[:, 1]])
    congen = ConGenLoss(bi, queue(), 0.5, 0.4, projector)(read(bi), taught)
    ckd = CKDLoss(bi, queue(), projector)(read(bi), taught)
    for teacher, expected in (
        (ViewError(), ((z - both) ** 2).mean()),
        (FirstViewDivergence(queue(), 0.5, 0.4), congen),
        (ReferenceSearch(queue()), ckd),
    ):
        loss = SCTLoss(bi, comparison(dim=32), teacher=teacher, teacher_projector=projector)
        torch.testing.assert_close(loss(read(bi), taught), own + expected, rtol=1e-4, atol=1e-5)
        assert loss.get_config_dict()["own"] == {"temperature": 0.5, "reference_temperature": 0.4}


@pytest.mark.parametrize("size", [0, 8])
@pytest.mark.parametrize("objective", ["distribution", "contrastive"])
def test_references_have_no_gradient(size, objective):
    online, references = (tuple(each.requires_grad_() for each in views) for views in draw())
    comparison(size=size, objective=objective)(online, references).backward()
    assert all(each.grad is None for each in references)
    assert all(each.grad.abs().sum() > 1e-3 for each in online)


def test_evaluation_leaves_queues_and_follower_as_they_are(bi):
    loss = SCTLoss(bi, comparison(dim=32), momentum=0.75)
    with torch.no_grad():
        bi.get_parameter("0.model.embeddings.word_embeddings.weight").add_(1.0)
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    with torch.no_grad():
        without = loss(read(bi))
    assert all(torch.equal(value, before[name]) for name, value in loss.state_dict().items())
    assert without.isfinite()
    loss(read(bi))
    assert not torch.equal(loss.state_dict()["own.queues.0.rows"], before["own.queues.0.rows"])


def test_a_queue_must_hold_what_a_batch_brings():
    online, references = draw(n=4)
    with pytest.raises(ValueError, match="a queue of 3 vectors cannot hold 1 x 4"):
        comparison(size=3)(online, references)
    with pytest.raises(ValueError, match="a queue of 7 vectors cannot hold 2 x 4"):
        comparison(size=7, n_queues=1)(online, references)
    comparison(size=8, n_queues=1)(online, references)


@pytest.mark.parametrize("labels", [None, torch.ones(4), torch.ones(4, 12)])
def test_a_teachers_labels_have_its_width(bi, labels):
    taught = mlp_projector(32, 6, expansion=2, n_layers=1)
    with pytest.raises(ValueError, match=r"its embeddings, \(4, 2, 6\)"):
        SCTLoss(bi, teacher=comparison(dim=6), teacher_projector=taught)(read(bi), labels)


def test_a_follower_lags_behind(bi):
    loss = SCTLoss(bi, comparison(dim=32), momentum=0.75)
    name = "0.model.embeddings.word_embeddings.weight"
    before = bi.state_dict()[name].clone()
    with torch.no_grad():
        bi.get_parameter(name).add_(1.0)
    loss(read(bi)).backward()
    torch.testing.assert_close(loss.follower.state_dict()[name], before + 0.25)
    assert all(value.grad is None for value in loss.follower.parameters())
    assert any("follower" in each for each in loss.state_dict())


def test_the_projector_is_as_wide_and_deep_as_the_papers():
    sizes = [(each.in_features, each.out_features) for each in mlp_projector(8) if hasattr(each, "in_features")]
    assert sizes == [(8, 80), (80, 8)] * 3
    assert mlp_projector(8, 5)[-1].out_features == 5
