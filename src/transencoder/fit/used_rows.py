"""Training of the embeddings of those tokens alone that the tokenised pairs have.

The others get no gradient, but an optimiser goes through them at every step, and they are half of a small model and
most of a multilingual one: gradients, moments, checkpoints and what processes exchange are as much smaller. The trained
embeddings are the same but for rounding. The others stay as they are, where weight decay would shrink them: by half of
steps x rate x decay where the rate falls in a line, a thousandth in 6,700 steps at 3e-5 and 0.01.
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
    """Train the token embeddings of these tokens alone within it; state dicts are as before.

    Nothing changes where they are not trained, where another part of the module shares them, such as the head of a
    language model, and where the module has several transformers: one may follow the weights of another.

    Args:
        module: What is trained: a loss with its student.
        token_ids: Of all texts that were tokenised for it, int32 arrays of any length.
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
    """Token embeddings of which some are trained. Its state is that of all.

    Args:
        whole: All embeddings.
        ids: Tokens whose embeddings are trained.
    """

    def __init__(self, whole: nn.Embedding, ids: Int[Tensor, " used"]) -> None:
        super().__init__()
        self.whole = whole.weight.detach().clone()
        self.ids = ids.to(self.whole.device)
        self.weight = nn.Parameter(self.whole[self.ids])
        self.place = torch.full_like(self.whole[:, 0], -1, dtype=torch.int64)
        """Which of the trained embeddings each token has; -1: none."""
        self.place[self.ids] = torch.arange(len(ids), device=self.ids.device)
        self.padding_place = None if whole.padding_idx is None else int(self.place[whole.padding_idx])

    def forward(self, ids: Int[Tensor, "texts tokens"]) -> Float[Tensor, "texts tokens dim"]:
        """Return the tokens' embeddings, those of other tokens, such as an evaluation's, without a gradient."""
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
    except NotImplementedError:  # transformers does not know where a model of somebody's own has them
        return None
    return table if type(table) is nn.Embedding else None


def _distinct(token_ids: Iterable[np.ndarray], n_ids: int) -> Tensor:
    """Return the distinct ids, ascending, by one pass."""
    is_used = np.zeros(n_ids, bool)
    for ids in token_ids:
        for start in range(0, len(ids), _CHUNK):
            is_used[ids[start : start + _CHUNK]] = True
    return torch.from_numpy(np.flatnonzero(is_used))
