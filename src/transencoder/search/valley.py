"""The valley between two modes of a histogram, where what is below and what is above it come apart."""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import uniform_filter1d
from scipy.signal import find_peaks

_BINS = 256
_MOST_SMOOTHINGS = 10_000


@dataclass(frozen=True)
class Valley:
    """Two modes and the lowest point between them."""

    low_mode: float
    """The lower peak's score."""
    bottom: float
    """The score of the lowest point between the peaks."""
    high_mode: float
    """The upper peak's score."""


def find_valley(scores: np.ndarray) -> Valley | None:
    """Smooth the histogram of scores until it has two peaks, and take the lowest point between them.

    Prewitt and Mendelsohn (1966), "The analysis of cell images"; as scikit-image's `threshold_minimum`: 256 bins, a
    running mean of three.

    Args:
        scores: Any numbers, shape (n,).

    Returns:
        The valley, or None where smoothing leaves one peak.
    """
    heights, edges = np.histogram(scores, _BINS)
    centres, smooth = (edges[:-1] + edges[1:]) / 2, heights.astype(np.float64)
    for _ in range(_MOST_SMOOTHINGS):
        peaks = find_peaks(np.pad(smooth, 1))[0] - 1
        if len(peaks) <= 2:
            break
        smooth = uniform_filter1d(smooth, 3)
    if len(peaks) != 2:
        return None
    low, high = peaks
    bottom = low + int(np.argmin(smooth[low : high + 1]))
    return Valley(float(centres[low]), float(centres[bottom]), float(centres[high]))
