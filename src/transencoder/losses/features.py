"""Token features of a batch -> embeddings: both sides of a pair together, and on CPUs without the padding."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

_PART = 32
"""Texts a part."""

_WORTH = 0.85
"""Parts are made where they leave less than this share of the tokens, padding included."""


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
    first, second = embed_sides(model, features).chunk(2)
    return first, second


def embed_sides(model: nn.Module, features: list[dict[str, Any]]) -> Float[Tensor, "texts dim"]:
    """Embed all sides of a batch in one forward pass.

    Args:
        model: A SentenceTransformer, wrapped or not.
        features: The sides as sentence-transformers' trainer hands them over; padded widths may differ.

    Returns:
        The embeddings, side after side.
    """
    if any(_settings(side) != _settings(features[0]) for side in features):  # such as prompts of two lengths
        return torch.cat([embed(model, side) for side in features])
    return embed(model, join(features))


def join(sides: list[dict[str, Any]]) -> dict[str, Any]:
    """The texts of all sides as one batch, side after side, padded to the widest.

    Args:
        sides: Token features of one tokenizer, with one prompt.
    """
    width = max(side["input_ids"].shape[1] for side in sides)
    joined = dict(sides[0])
    for name, values in joined.items():
        if isinstance(values, Tensor):
            joined[name] = torch.cat([_widen(side[name], width) for side in sides])
    return joined


def embed(model: nn.Module, features: dict[str, Any]) -> Float[Tensor, "texts dim"]:
    """Embed the texts of a batch.

    On CPUs a batch of texts of any length goes through in parts of like length, each padded to its own longest: the
    same embeddings, but for dropout's draws, and up to half the time. GPUs would wait for small parts. Processes may
    have different numbers of parts: DDP must not broadcast buffers in each forward pass (sentence-transformers'
    trainers switch that off).

    Args:
        model: A SentenceTransformer, wrapped or not.
        features: Token features, padded to one width.
    """
    mask = features.get("attention_mask")  # none where FlashAttention takes texts without padding
    parts = _parts_of_like_length(mask) if mask is not None and mask.device.type == "cpu" else ()
    if len(parts) < 2:
        embeddings: Tensor = model(features)["sentence_embedding"]
        return embeddings
    embeddings = torch.cat([model(_part(features, rows))["sentence_embedding"] for rows in parts])
    return embeddings[torch.cat(parts).argsort()]


def _parts_of_like_length(mask: Tensor) -> tuple[Tensor, ...]:
    """The rows of each part; none where padding costs less than parts would."""
    lengths = mask.sum(1)
    parts = torch.split(lengths.argsort(stable=True), _PART)
    n_tokens = sum(len(part) * int(lengths[part[-1]]) for part in parts)
    return parts if n_tokens < _WORTH * mask.numel() else ()


def _part(features: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    is_text = features["attention_mask"][rows].any(0)
    part = dict(features)
    for name, values in features.items():
        if isinstance(values, Tensor):
            part[name] = values[rows][:, is_text] if values.ndim == 2 else values[rows]
    return part


def _widen(values: Tensor, width: int) -> Tensor:
    # The attention mask is 0 there, so the fill does not matter.
    return pad(values, (0, width - values.shape[1])) if values.ndim == 2 and values.shape[1] < width else values


def _settings(side: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in side.items() if not isinstance(value, Tensor)}
