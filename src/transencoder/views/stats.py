"""How far views are from each other, in characters and in meaning (SCT, Table 5)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cpdist

from transencoder import progress

if TYPE_CHECKING:
    from datasets import Dataset

    from transencoder.scorers import Scorer

_BLOCK_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The two columns of some pairs compared."""

    n_pairs: int
    edit_distance: float
    """Mean of the Levenshtein distance in characters: insertions, deletions and replacements, each 1."""
    edit_distance_std: float
    """Its standard deviation over the pairs (divided by n)."""
    similarity: dict[str, float]
    """Mean score of the pairs by each scorer: of a bi-encoder the cosine, -1 to 1."""


def compare(pairs: "Dataset", scorers: "Mapping[str, Scorer]") -> Comparison:
    """Compare both texts of each pair.

    SCT wants views that are far apart in characters and close in meaning. Memory does not grow with the texts.

    Args:
        pairs: `sentence1` and `sentence2`, at least one row.
        scorers: By name, those that tell how close the meaning is.
    """
    mean, std = _edit_distance(pairs)
    similarity = {name: float(scorer.score(pairs).mean(dtype=float)) for name, scorer in scorers.items()}
    return Comparison(n_pairs=len(pairs), edit_distance=mean, edit_distance_std=std, similarity=similarity)


def _edit_distance(pairs: "Dataset") -> tuple[float, float]:
    """Mean and standard deviation, from sums of whole numbers, which are exact."""
    total = total_of_squares = 0
    with progress.task("compare views", len(pairs)) as advance:
        for start in range(0, len(pairs), _BLOCK_ROWS):
            rows = pairs[start : start + _BLOCK_ROWS]
            distances = cpdist(rows["sentence1"], rows["sentence2"], scorer=Levenshtein.distance).tolist()
            total += sum(distances)
            total_of_squares += sum(distance**2 for distance in distances)
            advance(len(distances))
    mean = total / len(pairs)
    return mean, math.sqrt(max(0.0, (total_of_squares * len(pairs) - total**2) / len(pairs) ** 2))
