"""The range of pseudo-labels, checked where a loss would silently go wrong."""

from torch import Tensor


def check_targets(targets: Tensor) -> None:
    """Refuse targets outside [0, 1]: the cross-entropy has no lower bound there.

    Raises:
        ValueError: A target is outside [0, 1] or not a number.
    """
    low, high = targets.aminmax()
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"targets range from {low.item():g} to {high.item():g}; allowed is [0, 1]. Choose a label policy "
            "that maps scores there (clip, affine, quantile), or allow_outside=True "
            "for what the released Trans-Encoder code does"
        )
