"""A bi-encoder of another width: a linear layer after its embeddings, saved with it."""

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import nn


def add_projection(model: SentenceTransformer, dimension: int, *, tanh: bool = False) -> SentenceTransformer:
    """Add a new linear layer, before the layer that makes embeddings unit vectors where there is one.

    Args:
        model: The bi-encoder, changed in place.
        dimension: Of its new embeddings.
        tanh: Whether tanh follows.

    Returns:
        The model.
    """
    width = model.get_embedding_dimension()
    assert width is not None, "every model here has embeddings of one size"
    activation = nn.Tanh() if tanh else nn.Identity()
    layer = Dense(width, dimension, activation_function=activation).to(model.device)
    model.insert(len(model) - isinstance(model[-1], Normalize), layer)
    return model
