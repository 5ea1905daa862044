"""How many tokens a model reads."""

import math
from pathlib import Path

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch import nn
from transformers import AutoConfig, AutoModel

from transencoder.errors import InputError


def set_length(model: SentenceTransformer | CrossEncoder, max_length: int | None, folder: Path) -> None:
    """Make a model cut texts at a length; None: it stays as it is.

    Raises:
        InputError: The model has fewer positions.
    """
    if max_length is None:
        return
    if max_length > (limit := n_positions(model)):
        raise InputError(f"max_length is {max_length}, but {folder} reads at most {limit} tokens; give at most that")
    model.max_seq_length = max_length


def check_length(folder: Path, length: int | None, setting: str, typed: str) -> None:
    """Refuse a length that a model has no positions for, before anything is trained.

    Args:
        folder: The model.
        length: Tokens of a text or pair; None: the model's own.
        setting: Where the length is from.
        typed: The model as the user named it.

    Raises:
        InputError: The model reads fewer tokens, or is of a kind that transformers does not have.
    """
    if length is None:
        return
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except ValueError as error:
        raise InputError(f"{typed} is no model that transformers can make by itself ({error}); give another") from error
    with torch.device("meta"):
        model: nn.Module = AutoModel.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    if length > (limit := n_positions(model)):
        raise InputError(f"{setting} is {length}, but {typed} reads at most {limit} tokens; give at most that")


def n_positions(model: nn.Module) -> float:
    """Tokens that a model has positions for; no bound where positions are relative or there is no transformer."""
    tables = (module for name, module in model.named_modules() if name.endswith("position_embeddings"))
    table = next((table for table in tables if isinstance(table, nn.Embedding)), None)
    if table is None:
        return math.inf
    return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)  # RoBERTa's begin there
