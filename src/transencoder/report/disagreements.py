"""The training pairs on which start, bi-encoder and cross-encoder disagree most."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from transencoder.finished import Sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_N_SHOWN = 60


@dataclass(frozen=True)
class Disagreement:
    """One pair."""

    texts: tuple[str, str]
    scores: dict[str, float]
    """`start` and the forms -> the model's own score."""
    places: dict[str, float]
    """The same -> the score's rank among the sample's, 0 to 100."""
    spread: float
    """Highest place less lowest."""


@dataclass(frozen=True)
class Disagreements:
    """Those of a sample, the largest first."""

    models: Sequence[str]
    n_pairs: int
    said: str
    """How far the models agree over the whole sample."""
    pairs: Sequence[Disagreement]


def disagreements_of(sample: Sample) -> Disagreements:
    """Rank the sample's pairs by each model; ranks are compared, as cosines and probabilities are not."""
    import numpy as np
    from scipy.stats import rankdata

    models, n_pairs = list(sample.scores), len(sample.rows)
    places = np.array([100 * (rankdata(scores) - 0.5) / n_pairs for scores in sample.scores.values()])
    spreads = places.max(axis=0) - places.min(axis=0)
    pairs = [
        Disagreement(
            sample.texts[row],
            {model: float(scores[row]) for model, scores in sample.scores.items()},
            {model: float(places[i, row]) for i, model in enumerate(models)},
            float(spreads[row]),
        )
        for row in np.argsort(-spreads, kind="stable")[:_N_SHOWN]
    ]
    return Disagreements(models, n_pairs, _agreement(models, places), pairs)


def _agreement(models: Sequence[str], places: "NDArray[np.float64]") -> str:
    import numpy as np

    if len(models) < 2 or not (places.std(axis=1) > 0).all():
        return "The models' scores cannot be compared: one of them gives every pair the same."
    ranks = np.asarray(np.corrcoef(places))
    said = [f"{models[i]} and {models[j]} {ranks[i, j]:.2f}" for i, j in combinations(range(len(models)), 2)]
    return f"Over the whole sample their rank correlations are: {', '.join(said)}."
