"""Shared parts of the losses: the base class, embedding of a batch's token features, gathering from all processes.

Both sides of a pair are encoded in one forward pass, on CPUs with little padding.
"""

import math
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize
from sentence_transformers.util import all_gather_with_grad
from torch import Tensor, nn
from torch.nn.functional import embedding, pad
from torch.nn.parallel import DistributedDataParallel

Columns = Iterable[dict[str, Any]]
"""The token features of each column of texts, as sentence-transformers' trainer hands them over."""

_PART = 32
"""Number of texts in a part of a batch."""

_WORTH = 0.85
"""Share of a batch's tokens, padding included, below which the parts must be for the batch to be split."""

_OF_TEXT = {"input_ids", "attention_mask", "token_type_ids"}
"""Features by which texts are told apart; with others, such as images, none are taken for equal."""


class Loss(nn.Module):
    """Base class of losses, for sentence-transformers' trainers of this package or plain ones.

    A bi-encoder's loss is called with the token features of each column of texts, and with the labels of the rows.

    Args:
        model: The encoder to train.
    """

    shown: ClassVar[tuple[str, ...]] = ()
    """Names of the settings that the model card shows."""
    is_of_cosines: ClassVar[bool] = False
    """Whether the loss depends only on cosines between embeddings, so that these may have any width."""
    is_mean_of_rows: ClassVar[bool] = False
    """Whether the loss is the mean of losses that depend on one row each, so that any rows may form a batch."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        return {name: getattr(self, name) for name in self.shown}


class _Scaled(nn.Module):
    """A projector whose input is multiplied by a fixed factor."""

    def __init__(self, projector: nn.Module, factor: float) -> None:
        super().__init__()
        self.projector = projector
        self.factor = factor

    def forward(self, embeddings: Tensor) -> Tensor:
        return self.projector(embeddings * self.factor)  # type: ignore[no-any-return]


def projector_of(model: SentenceTransformer, projector: nn.Module | None) -> nn.Module:
    """Return the module that a loss puts on embeddings: the projector with `head_scale` before it, or the identity."""
    if projector is None:
        return nn.Identity()
    scale = head_scale(model)
    return projector if scale == 1.0 else _Scaled(projector, scale)


def head_scale(model: SentenceTransformer) -> float:
    """Return the factor by which a head multiplies embeddings: the square root of the width for unit vectors, else 1.

    The papers' models end in pooling, whose vectors have a norm of about 6. For a unit vector, the output of a new
    linear layer is no larger than its biases, and changes little at an encoder's learning rates. After SCT's three
    MLPs, embeddings of unrelated captions by three layers of all-MiniLM-L6-v2 have a mean cosine of 0.9996 with its
    Normalize module, 0.986 without, and 0.929 with this factor.
    """
    width = model.get_embedding_dimension()
    assert width is not None, "every model here has embeddings of one size"
    return math.sqrt(width) if isinstance(model[-1], Normalize) else 1.0


def check_temperatures(*temperatures: float, usual: str = "") -> None:
    """Refuse temperatures that are not above 0; `usual` is appended to the error message."""
    if not all(each > 0 for each in temperatures):
        found = " and ".join(map(str, temperatures))
        raise ValueError(f"temperature is {found}; it must be above 0{', ' if usual else ''}{usual}")


def embed_pairs(
    model: nn.Module, columns: Columns, *, distinct: bool = False
) -> tuple[Float[Tensor, "pairs dim"], Float[Tensor, "pairs dim"]]:
    """Embed both sides of a batch in one forward pass, with half the kernel launches and the same results.

    Args:
        model: A SentenceTransformer, wrapped or not.
        columns: Both sides, whose padded widths may differ.
        distinct: Whether a text that is there several times is encoded once, where both sides have one prompt. Dropout
            then draws once for it, so losses whose views of a text differ by dropout must not ask for this.

    Raises:
        ValueError: There are not two columns.
    """
    sides = list(columns)
    if len(sides) != 2:
        raise ValueError(f"this loss takes two columns of texts, and the data has {len(sides)}; leave the others out")
    first, second = embed_sides(model, sides, distinct=distinct).chunk(2)
    return first, second


def embed_sides(model: nn.Module, columns: Columns, *, distinct: bool = False) -> Float[Tensor, "texts dim"]:
    """Embed any number of sides as `embed_pairs` does, and return their concatenated embeddings."""
    sides = list(columns)
    if any("attention_mask" not in side or _settings(side) != _settings(sides[0]) for side in sides):
        # without padding, or with prompts of different lengths
        return torch.cat([embed(model, side) for side in sides])
    joined = join(sides)
    if distinct and {name for name, values in joined.items() if isinstance(values, Tensor)} <= _OF_TEXT:
        which, firsts = _distinct(joined)
        if len(firsts) < len(which):
            # Not embeddings[which]: several threads add up its gradient in an order that varies.
            return embedding(which, embed(model, _of_rows(joined, firsts)))
    return embed(model, joined)


def join(sides: list[dict[str, Any]]) -> dict[str, Any]:
    """Join the texts of all sides, with the same tokenizer and prompt, into one batch, padded to the widest side."""
    width = max(side["input_ids"].shape[1] for side in sides)
    joined = dict(sides[0])
    for name, values in joined.items():
        if isinstance(values, Tensor):
            joined[name] = torch.cat([_widen(side[name], width) for side in sides])
    return joined


def distinct_tokens(columns: Columns) -> int:
    """Count the tokens, without padding, of the distinct texts of all columns."""
    joined = join(list(columns))
    _, firsts = _distinct(joined)
    return int(joined["attention_mask"][firsts].sum())


def embed(model: nn.Module, features: dict[str, Any]) -> Float[Tensor, "texts dim"]:
    """Embed the texts of a batch.

    On CPUs a batch of texts of different lengths is encoded in parts of similar length, each padded to its own longest
    text: the same embeddings, except for dropout's random draws, in as little as half the time. GPUs would wait for
    small parts. Processes may have different numbers of parts, so DDP must not broadcast buffers in each forward pass
    (sentence-transformers' trainers switch that off).
    """
    mask = features.get("attention_mask")  # missing if sentence-transformers' own trainer removed the padding
    parts = _parts_of_like_length(mask) if mask is not None and mask.device.type == "cpu" else ()
    if len(parts) < 2:
        embeddings: Tensor = model(unpadded(model, features))["sentence_embedding"]
        return embeddings
    embeddings = torch.cat([model(_part(features, rows))["sentence_embedding"] for rows in parts])
    return embeddings[torch.cat(parts).argsort()]


def unpadded(model: nn.Module, features: dict[str, Any]) -> dict[str, Any]:
    """Return the features of a batch without padding, as concatenated texts, if the model's attention supports that.

    This is sentence-transformers' `unpad_inputs`, which needs FlashAttention.

    Args:
        model: A SentenceTransformer, wrapped or not. For other models the features are returned as they are.
        features: Token features of padded texts. Without an attention mask they are returned as they are.
    """
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    first = inner[0] if isinstance(inner, SentenceTransformer) else None
    if not (isinstance(first, Transformer) and first.can_flatten_inputs and "attention_mask" in features):
        return dict(features)
    is_text = features["attention_mask"].bool()
    positions = (is_text.cumsum(1) - 1)[is_text]
    ends = pad(is_text.sum(1).cumsum(0), (1, 0)).int()
    return {
        **_settings(features),
        "input_ids": features["input_ids"][is_text][None],
        "position_ids": positions[None] + first._flatten_position_offset,
        "seq_idx": is_text.nonzero()[None, :, 0].int(),
        **dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k"), ends),
        **dict.fromkeys(("max_length_q", "max_length_k"), is_text.shape[1]),
    }


def gathered(embeddings: Float[Tensor, "batch dim"]) -> tuple[Float[Tensor, "all dim"], int]:
    """Return all processes' embeddings in the order of ranks, and the index of this one's first.

    Gradients flow to all processes. DDP averages these gradients, so that the mean of the processes' losses is trained.
    All processes must have the same number of embeddings.
    """
    if not torch.distributed.is_initialized():
        return embeddings, 0
    return all_gather_with_grad(embeddings), torch.distributed.get_rank() * len(embeddings)


def _parts_of_like_length(mask: Tensor) -> tuple[Tensor, ...]:
    """Return the rows of each part; none if splitting the batch would cost more than its padding."""
    lengths = mask.sum(1)
    parts = torch.split(lengths.argsort(stable=True), _PART)
    n_tokens = sum(len(part) * int(lengths[part[-1]]) for part in parts)
    return parts if n_tokens < _WORTH * mask.numel() else ()


def _part(features: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    part = _of_rows(features, rows)
    is_text = part["attention_mask"].any(0)
    for name, values in part.items():
        if isinstance(values, Tensor) and values.ndim == 2:
            part[name] = values[:, is_text]
    return part


def _distinct(features: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Return the index of each text among the distinct texts, int (texts,), and the first row with each of these."""
    is_padding = features["attention_mask"] == 0
    read = [features[name].masked_fill(is_padding, -1) for name in ("input_ids", "token_type_ids") if name in features]
    distinct, which = torch.unique(torch.cat(read, dim=1), dim=0, return_inverse=True)
    rows = torch.arange(len(which), device=which.device)
    firsts = rows.new_full((len(distinct),), len(which)).scatter_reduce(0, which, rows, "amin")
    return which, firsts


def _of_rows(features: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    return {name: values[rows] if isinstance(values, Tensor) else values for name, values in features.items()}


def _widen(values: Tensor, width: int) -> Tensor:
    # The attention mask is 0 in the padding, so the fill value does not matter.
    return pad(values, (0, width - values.shape[1])) if values.ndim == 2 and values.shape[1] < width else values


def _settings(side: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in side.items() if not isinstance(value, Tensor)}
