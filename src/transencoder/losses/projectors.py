"""Train-only projectors: modules between the embeddings and a loss, which the saved model does not have."""

from torch import nn

_INITIAL_STD = 0.02
"""BERT's, which new layers on top of it take too."""


def tanh_projector(dimension: int) -> nn.Module:
    """Make SimCSE's, of the embeddings' dimension: a linear layer and tanh (Gao et al., EMNLP 2021, section 3)."""
    linear = nn.Linear(dimension, dimension)
    nn.init.normal_(linear.weight, std=_INITIAL_STD)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh())


def batch_norm_projector(dimension: int) -> nn.Module:
    """Make DiffCSE's: two linear layers with batch normalisation (Chuang et al., NAACL 2022, released code)."""
    return nn.Sequential(
        nn.Linear(dimension, 2 * dimension, bias=False),
        nn.BatchNorm1d(2 * dimension),
        nn.ReLU(),
        nn.Linear(2 * dimension, dimension, bias=False),
        nn.BatchNorm1d(dimension, affine=False),
    )


def mlp_projector(dimension: int, output: int | None = None, *, expansion: int = 10, n_layers: int = 3) -> nn.Module:
    """Make SCT's: MLPs one after the other, each linear, ReLU, linear (Limkonchotiwat et al., TACL 2023, section 4.1).

    Args:
        dimension: Of the embeddings, before and between.
        output: After the last; None: `dimension`. A teacher's, where its embeddings are what is compared with.
        expansion: Width of each inner layer, in dimensions.
        n_layers: MLPs.
    """
    layers: list[nn.Module] = []
    for i in range(n_layers):
        after = dimension if output is None or i < n_layers - 1 else output
        layers += [nn.Linear(dimension, expansion * dimension), nn.ReLU(), nn.Linear(expansion * dimension, after)]
    return nn.Sequential(*layers)
