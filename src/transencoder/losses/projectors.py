"""Train-only projectors: modules between the embeddings and a loss, which the saved model does not have."""

from torch import nn

_INITIAL_STD = 0.02
"""BERT's, which new layers on top of it take too."""


def tanh_projector(dimension: int) -> nn.Module:
    """SimCSE's: a linear layer and tanh (Gao et al., EMNLP 2021, section 3; dropped at test for unlabelled training).

    Args:
        dimension: Of the embeddings, before and after.
    """
    linear = nn.Linear(dimension, dimension)
    nn.init.normal_(linear.weight, std=_INITIAL_STD)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh())


def batch_norm_projector(dimension: int) -> nn.Module:
    """DiffCSE's: two linear layers with batch normalisation (Chuang et al., NAACL 2022, released code).

    Args:
        dimension: Of the embeddings, before and after; twice as many in between.
    """
    return nn.Sequential(
        nn.Linear(dimension, 2 * dimension, bias=False),
        nn.BatchNorm1d(2 * dimension),
        nn.ReLU(),
        nn.Linear(2 * dimension, dimension, bias=False),
        nn.BatchNorm1d(dimension, affine=False),
    )
