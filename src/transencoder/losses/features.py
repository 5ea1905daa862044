"""Both sides of a pair through the encoder in one forward pass."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad


def embed_pairs(
    model: nn.Module, features: list[dict[str, Any]]
) -> tuple[Float[Tensor, "pairs dim"], Float[Tensor, "pairs dim"]]:
    """Embed sentence1 and sentence2 of a batch in one forward pass: half the kernel launches, the same numbers.

    Args:
        model: A SentenceTransformer, wrapped or not.
        features: The two sides as sentence-transformers' trainer hands them over; padded widths may differ.

    Returns:
        The embeddings of both sides.
    """
    left, right = features
    if _settings(left) != _settings(right):  # such as prompts of two lengths
        return model(left)["sentence_embedding"], model(right)["sentence_embedding"]
    width = max(left["input_ids"].shape[1], right["input_ids"].shape[1])
    joined = dict(left)
    for name, value in left.items():
        if isinstance(value, Tensor):
            joined[name] = torch.cat([_widen(value, width), _widen(right[name], width)])
    first, second = model(joined)["sentence_embedding"].chunk(2)
    return first, second


def _widen(values: Tensor, width: int) -> Tensor:
    # The attention mask is 0 there, so the fill does not matter.
    return pad(values, (0, width - values.shape[1])) if values.ndim == 2 and values.shape[1] < width else values


def _settings(side: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in side.items() if not isinstance(value, Tensor)}
