"""What can be said of an encoder without labels: numbers of which a higher one is taken to be better."""

import numpy as np
from jaxtyping import Float

_EPSILON = 1e-7
"""Added to each singular value's share (Garrido et al., equation 1)."""


def self_retrieval(views: Float[np.ndarray, "n dim"], sentences: Float[np.ndarray, "n dim"]) -> float:
    """Mean reciprocal rank at which a view of a sentence finds it among all, by cosine.

    Among equals the rank is their mean, so that an encoder to which all texts are the same finds nothing.

    Args:
        views: Embeddings of one view of each sentence.
        sentences: Embeddings of the sentences, all of them different texts.

    Returns:
        The mean times 100, above 0 and up to 100.
    """
    cosines = _unit(views) @ _unit(sentences).T
    own = np.diag(cosines)[:, None]
    ranks = 1.0 + (cosines > own).sum(1) + ((cosines == own).sum(1) - 1) / 2
    return 100.0 * float(np.mean(1.0 / ranks))


def view_preference(view_scores: Float[np.ndarray, " n"], pair_scores: Float[np.ndarray, " n"]) -> float:
    """How often a sentence is more like a view of itself than like the sentence that it is paired with.

    Args:
        view_scores: Scores of each sentence and its view.
        pair_scores: Scores of the same sentence and its pair's other one.

    Returns:
        The share times 100, in [0, 100]; equals count half.
    """
    return 100.0 * float(np.mean((view_scores > pair_scores) + 0.5 * (view_scores == pair_scores)))


def alignment(sentences: Float[np.ndarray, "n dim"], views: Float[np.ndarray, "n dim"]) -> float:
    """Mean squared distance of a sentence and its view on the unit sphere, in [0, 4]; lower is closer.

    Wang and Isola (ICML 2020), section 4.1.1, with their exponent 2.
    """
    return float(((_unit(sentences) - _unit(views)) ** 2).sum(1).mean())


def uniformity(sentences: Float[np.ndarray, "n dim"]) -> float:
    """Logarithm of the mean Gaussian potential of all pairs of sentences, in [-8, 0]; lower is more evenly spread.

    Wang and Isola (ICML 2020), section 4.1.2, with their t of 2.

    Args:
        sentences: Embeddings of at least two.
    """
    unit = _unit(sentences)
    above = np.triu_indices(len(unit), 1)
    squared = 2.0 - 2.0 * (unit @ unit.T)[above]
    return float(np.log(np.mean(np.exp(-2.0 * squared))))


def effective_rank(sentences: Float[np.ndarray, "n dim"]) -> float:
    """How many directions the embeddings use: the exponential of the entropy of their singular values (RankMe).

    Garrido et al. (ICML 2023), equation 1.

    Returns:
        At least 1, at most the lower of n and dim.
    """
    values = np.linalg.svd(sentences.astype(np.float64), compute_uv=False)
    shares = values / max(values.sum(), _EPSILON) + _EPSILON
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _unit(embeddings: np.ndarray) -> np.ndarray:
    norms: np.ndarray = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit: np.ndarray = embeddings / np.maximum(norms, 1e-12)
    return unit
