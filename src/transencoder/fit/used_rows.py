"""Training of token embeddings for only those tokens that occur in the tokenised pairs.

The other embeddings get no gradient, but an optimiser goes through them at every step, and they are half of a small
model and most of a multilingual one. Without them, gradients, moments, checkpoints and the exchange between processes
are that much smaller. The trained embeddings are the same except for rounding. The others stay unchanged, whereas
weight decay would shrink them: by half of steps x rate x decay if the rate falls linearly, which is a thousandth in
6,700 steps at 3e-5 and 0.01.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding
from transformers import PreTrainedModel

from transencoder.cpu import transformers_in

_CHUNK = 1 << 24


@contextmanager
def only_used_rows(module: nn.Module, token_ids: Iterable[np.ndarray]) -> Iterator[None]:
    """Train the embeddings of only these tokens inside the block; state dicts stay the same.

    Nothing changes if the embeddings are not trained, if another part of the module shares them, such as the head of a
    language model, or if the module has several transformers, because one may follow the weights of another.

    Args:
        module: Module to train: a loss with its student.
        token_ids: Token ids of all texts to train on, int32 arrays of any length.
    """
    transformer, *others = transformers_in(module)
    whole = _table_of(transformer)
    is_shared = (
        whole is not None and sum(part._parameters.get("weight") is whole.weight for part in module.modules()) > 1
    )
    if whole is None or others or is_shared or not whole.weight.requires_grad:
        yield
        return
    used = UsedRows(whole, _distinct(token_ids, whole.num_embeddings))
    transformer.set_input_embeddings(used)
    try:
        yield
    finally:
        whole.load_state_dict(used.state_dict())
        transformer.set_input_embeddings(whole)


class UsedRows(nn.Module):
    """Token embeddings of which only some are trained. The state dict holds all of them.

    Args:
        whole: Embeddings of all tokens.
        ids: Tokens whose embeddings are trained.
    """

    def __init__(self, whole: nn.Embedding, ids: Int[Tensor, " used"]) -> None:
        super().__init__()
        self.whole = whole.weight.detach().clone()
        self.ids = ids.to(self.whole.device)
        self.weight = nn.Parameter(self.whole[self.ids])
        self.place = torch.full_like(self.whole[:, 0], -1, dtype=torch.int64)
        """Row of each token among the trained embeddings; -1: it is not trained."""
        self.place[self.ids] = torch.arange(len(ids), device=self.ids.device)
        self.padding_place = None if whole.padding_idx is None else int(self.place[whole.padding_idx])

    def forward(self, ids: Int[Tensor, "texts tokens"]) -> Float[Tensor, "texts tokens dim"]:
        """Return the tokens' embeddings. Those that are not trained, such as an evaluation's, get no gradient."""
        place = self.place[ids]
        padding = None if self.padding_place == -1 else self.padding_place
        trained = embedding(place.clamp_min(0), self.weight, padding)
        return torch.where((place < 0)[..., None], embedding(ids, self.whole), trained)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self.whole.index_copy(0, self.ids, self.weight.detach())

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, _metadata: Any, _strict: bool, missing_keys: list[str], *_: Any
    ) -> None:
        weight = state_dict.get(f"{prefix}weight")
        if weight is None:
            missing_keys.append(f"{prefix}weight")
            return
        with torch.no_grad():
            self.whole.copy_(weight)
            self.weight.copy_(self.whole[self.ids])


def _table_of(transformer: PreTrainedModel) -> nn.Embedding | None:
    try:
        table = transformer.get_input_embeddings()
    except NotImplementedError:  # transformers does not know where a custom model has them
        return None
    return table if type(table) is nn.Embedding else None


def _distinct(token_ids: Iterable[np.ndarray], n_ids: int) -> Tensor:
    """Return the distinct ids in ascending order, in one pass."""
    is_used = np.zeros(n_ids, bool)
    for ids in token_ids:
        for start in range(0, len(ids), _CHUNK):
            is_used[ids[start : start + _CHUNK]] = True
    return torch.from_numpy(np.flatnonzero(is_used))
