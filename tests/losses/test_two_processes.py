"""Two gloo processes with half a batch each train what one process with the whole batch trains."""

import warnings

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import distributed as dist
from torch import multiprocessing

from tests.losses.batches import FIRST, SECOND, read
from transencoder import distributed, losses
from transencoder.checkpoints import own_parameters

LABELS = [1.0, 0.0, 0.0, 1.0]


def loss_of(name: str, folder: str) -> torch.nn.Module:
    model = SentenceTransformer(folder, device="cpu").eval()
    torch.manual_seed(0)
    if name == "info_nce":
        return losses.InfoNCELoss(model, 0.5, losses.tanh_projector(32))
    if name == "declutr":
        return losses.DeCLUTRLoss(model, n_positives=1, temperature=0.5)
    if name in ("weighted", "elementwise"):
        complement = SentenceTransformer(folder, device="cpu")
        settings = {"threshold": 0.9, "noise_ratio": 0.0, "form": name}
        return losses.WeightedInfoNCELoss(model, complement, 0.5, projector=losses.tanh_projector(32), **settings)
    if name == "in_batch":
        return losses.InBatchContrastiveTensionLoss(model, 0.5)
    if name in ("distribution", "contrastive"):
        compared = losses.ViewComparison(32, 16, 0.5, 0.4, objective=name)
        return losses.SCTLoss(model, compared, losses.mlp_projector(32, expansion=2, n_layers=1))
    if name == "congen":
        return losses.ConGenLoss(model, losses.InstanceQueue(16, 6), 0.5, 0.4, torch.nn.Linear(32, 6))
    if name == "ckd":
        return losses.CKDLoss(model, losses.InstanceQueue(16, 6), torch.nn.Linear(32, 6))
    return losses.NTXentLoss(model, 0.5) if name == "nt_xent" else losses.ContrastiveTensionLoss(model)


def gradients(loss: torch.nn.Module, rows: slice) -> dict[str, torch.Tensor]:
    sides = read(loss.model, FIRST[rows], SECOND[rows])
    taught = torch.randn(4, 2, 6, generator=torch.Generator().manual_seed(1))
    labels = taught if isinstance(loss, losses.CKDLoss | losses.ConGenLoss) else torch.tensor(LABELS)
    loss(sides, labels[rows]).backward()
    return {name: value.grad for name, value in loss.named_parameters() if value.grad is not None}


def work(rank: int, folder: str, meeting: str, output: str) -> None:
    torch.set_num_threads(1)  # a fork has no others
    warnings.simplefilter("ignore", FutureWarning)  # of torch, at what sentence-transformers gathers with
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    found = {}
    for name in ALL:
        loss = loss_of(name, folder)
        distributed.average_gradients(own_parameters(loss))
        found[name] = gradients(loss, slice(2 * rank, 2 * rank + 2))
        for key, gradient in found[name].items():
            if key.startswith("model."):  # DDP's part
                dist.all_reduce(gradient)
                gradient /= 2
    if rank == 1:
        torch.save(found, output)
    dist.destroy_process_group()


ALL = ["info_nce", "nt_xent", "contrastive_tension", "in_batch", "declutr", "weighted", "elementwise"]
ALL += ["distribution", "contrastive", "congen", "ckd"]


@pytest.fixture(scope="module")
def of_two(tiny_bi_encoder, tmp_path_factory):
    """The gradients of each loss, of two processes that are forks of this one: new ones would import all again."""
    folder = tmp_path_factory.mktemp("two")
    arguments = (tiny_bi_encoder, str(folder / "meeting"), str(folder / "found.pt"))
    multiprocessing.start_processes(work, arguments, nprocs=2, start_method="fork")
    return torch.load(folder / "found.pt", weights_only=True)


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_the_whole_batch(name, tiny_bi_encoder, of_two):
    two = of_two[name]
    one = gradients(loss_of(name, tiny_bi_encoder), slice(4))
    assert set(one) == set(two)
    assert any(not key.startswith("model.") for key in one) == (name not in ("nt_xent", "declutr"))
    assert any(gradient.abs().sum() > 1e-3 for gradient in one.values())
    for key in one:
        torch.testing.assert_close(two[key], one[key], rtol=1e-3, atol=1e-6)
