"""Saved models as bi-encoders and as what they were saved as, and what is one encoder in all of them."""

from pathlib import Path

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn
from transformers import PreTrainedModel

from transencoder.config import Pooling as PoolingMode
from transencoder.encoders.lengths import set_length
from transencoder.encoders.quiet import without_load_reports
from transencoder.encoders.saved import is_cross
from transencoder.errors import InputError
from transencoder.prompts import OWN_PROMPTS, Prompts


def load_bi(
    folder: Path,
    *,
    max_length: int | None = None,
    pooling: PoolingMode | None = None,
    prompts: Prompts = OWN_PROMPTS,
    device: str | None = None,
) -> SentenceTransformer:
    """A bi-encoder from a sentence-transformers model, or from a plain pretrained one with a pooling.

    Args:
        folder: The model.
        max_length: Tokens of a sentence; None: the model's own.
        pooling: Pooling to use; None: the model's own, mean for a plain one.
        prompts: Saved with it, as `encode_query` and `encode_document` use them.
        device: Where it goes; None: the best there is.

    Raises:
        InputError: A pooling for a model that has none, or more tokens than the model has positions.
    """
    with without_load_reports(), torch.random.fork_rng():
        torch.manual_seed(0)  # a plain model without a pooler gets a random one, which nothing uses and all must share
        model = SentenceTransformer(str(folder), device=device)
    model.float()  # whatever it was saved in: AdamW on half precision loses the small steps
    if pooling is not None:
        own = next((i for i, module in enumerate(model) if isinstance(module, Pooling)), None)
        if own is None:
            raise InputError(f"pooling is {pooling}, but {folder} has no pooling layer; leave pooling out")
        model[own] = Pooling(model[own].embedding_dimension, pooling_mode=pooling)
    prompts.give_to(model)
    set_length(model, max_length, folder)
    return model


def load_trained(
    folder: Path, device: str | None = None, *, max_length: int | None = None
) -> SentenceTransformer | CrossEncoder:
    """A saved model in the form that it was saved in, its weights in fp32.

    Args:
        folder: The model.
        device: Where it goes; None: the best there is.
        max_length: Tokens of a text or pair; None: the model's own.

    Raises:
        InputError: More tokens than the model has positions.
    """
    model: SentenceTransformer | CrossEncoder
    if is_cross(folder):
        model = CrossEncoder(str(folder), device=device)
    else:
        model = SentenceTransformer(str(folder), device=device)
    model.float()
    set_length(model, max_length, folder)
    return model


def transplant(source: nn.Module, target: nn.Module) -> None:
    """Copy the encoder's weights of `source` into `target`; heads and poolers that both do not have stay as they are.

    Either is a sentence-transformers model or a plain one. The paper's sequential initialisation (section 5.2,
    Table 13).

    Raises:
        InputError: The two encoders differ in a weight's name or shape; `target` is as it was.
    """
    weights, own = backbone(source).state_dict(), backbone(target).state_dict()
    shapes, own_shapes = ({name: tuple(value.shape) for name, value in part.items()} for part in (weights, own))
    for name in shapes | own_shapes:
        found, wanted = shapes.get(name), own_shapes.get(name)
        if found != wanted and not ("pooler" in name and None in (found, wanted)):
            raise InputError(
                f"sequential initialisation needs starts of one architecture; {name} is {found or 'missing'} in one "
                f"and {wanted or 'missing'} in the other. Use initialisation refreshing, or give the same model as "
                "start and cross_start"
            )
    backbone(target).load_state_dict(weights, strict=False)


def backbone(model: nn.Module) -> nn.Module:
    """The encoder without head and pooling, of a sentence-transformers model or a plain one."""
    if isinstance(model, SentenceTransformer | CrossEncoder):
        assert model.transformers_model is not None, "every model here has a transformer"
        model = model.transformers_model
    assert isinstance(model, PreTrainedModel)
    return model.base_model
