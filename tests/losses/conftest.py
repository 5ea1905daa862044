"""What the tests of several losses share."""

from collections.abc import Callable

import numpy as np
import pytest
import torch


@pytest.fixture
def check_gradient() -> Callable[..., None]:
    """Compares a loss's gradient with the finite differences of a slow statement of it."""

    def check(loss: Callable[..., torch.Tensor], slow: Callable[..., float], *arrays: np.ndarray) -> None:
        """For each array, with the others as they are."""
        for which, array in enumerate(arrays):
            tensors = [torch.from_numpy(each).float() for each in arrays]
            tensors[which].requires_grad_()
            loss(*tensors).backward()
            for at in np.ndindex(array.shape):
                moved = [[each.copy() for each in arrays] for _ in range(2)]
                moved[0][which][at] += 1e-4
                moved[1][which][at] -= 1e-4
                difference = (slow(*moved[0]) - slow(*moved[1])) / 2e-4
                assert tensors[which].grad[at].item() == pytest.approx(difference, rel=1e-2, abs=1e-5)

    return check
