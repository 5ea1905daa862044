"""How far apart two correct computations of one number may lie: from its format, so that it holds on every processor."""

import math

import numpy as np
import torch
from numpy.typing import ArrayLike


def rounding(n: int, scale: ArrayLike = 1.0, dtype: torch.dtype = torch.float32) -> float:
    """Return the most by which two correct computations of a value of size `scale` differ, each in `n` roundings.

    Processors, thread counts and shapes of batches decide in which order numbers are summed. One rounding moves a value
    by at most half an eps of its format, up or down; `n` of them add up to more than 4 sqrt(n) halves in less than one
    case in a thousand (Higham and Mary, 2019, "A new approach to probabilistic rounding error analysis", with lambda =
    4), and two computations may err in opposite directions. A sum of n terms, or a dot product, is `n` roundings, and
    its scale the sum of the terms' sizes: that of the result, where they do not cancel. Of several values the largest
    is the scale.

    For a float32 cosine from one of the tests' tiny models this is 1e-5. A wrong prompt, mask, length or precision
    moves it by 1e-4 and more.
    """
    return 4 * math.sqrt(n) * torch.finfo(dtype).eps * float(np.abs(np.asarray(scale)).max())


def model_rounding(model: torch.nn.Module, scale: ArrayLike = 1.0) -> float:
    """Return `rounding` for what a model computes: each of its linear layers sums as many products as it has inputs."""
    return rounding(sum(each.in_features for each in model.modules() if isinstance(each, torch.nn.Linear)), scale)
