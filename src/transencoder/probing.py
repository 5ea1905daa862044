"""What a linear classifier reads off the embeddings of two sentences: accuracy, times 100 (SentEval's NLI transfer)."""

import logging
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from datasets import Dataset
from jaxtyping import Float32
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from transencoder import progress
from transencoder.errors import InputError
from transencoder.tasks import Role

logger = logging.getLogger(__name__)

_STRENGTHS = (1e-2, 1e-3, 1e-4, 1e-5)
"""Of regularisation, those of SentEval for SICK-E: twice the weight of the squared norm beside the mean loss."""

_MAX_ITERATIONS = 1000


class Embedder(Protocol):
    """Gives sentences vectors."""

    def embed_sides(self, texts: Dataset) -> tuple[NDArray[np.float32], ...]:
        """Embeddings of `sentence1`, `sentence2` and so on, float32 (n, dim) each, in the order of the rows."""
        ...


def probe(embedder: Embedder, sets: Mapping[Role, Dataset]) -> float:
    """Train a logistic regression on [u, v, |u - v|, u * v] and measure it (Conneau and Kiela, SentEval, 2018).

    The strength of regularisation is the one that does best on dev; the encoder is not trained. SentEval leaves u and v
    out for SICK-E, has one strength, 1e-9, for SNLI, trains by Adam, and ends early. Memory: 32 bytes for each row and
    dimension, 16 while the classifier is trained.

    Args:
        embedder: The bi-encoder.
        sets: `train`, `dev` and `test`: columns `sentence1`, `sentence2` and the class `score`.

    Returns:
        Accuracy on test times 100, in [0, 100].

    Raises:
        InputError: Training rows of one class only.
    """
    gold = {role: np.asarray(rows["score"][:]).astype(np.int64) for role, rows in sets.items()}
    if len(np.unique(gold["train"])) < 2:
        raise InputError(
            f"the training rows are all of class {gold['train'][0]}; a classifier needs two classes or more"
        )
    features = {
        role: _features(*embedder.embed_sides(rows.select_columns(["sentence1", "sentence2"])))
        for role, rows in sets.items()
    }
    model: Any = LogisticRegression(max_iter=_MAX_ITERATIONS, warm_start=True)
    best, test = -1.0, 0.0
    with progress.task("train classifiers", len(_STRENGTHS)) as advance:
        for strength in _STRENGTHS:
            model.set_params(C=1 / (strength * len(gold["train"])))
            model.fit(features["train"], gold["train"])
            dev = model.score(features["dev"], gold["dev"])
            if dev > best:
                best, test, chosen = dev, model.score(features["test"], gold["test"]), strength
            advance(1)
    logger.info("classifier: strength %g, accuracy on dev %.2f", chosen, 100 * best)
    return 100.0 * float(test)


def _features(first: NDArray[np.float32], second: NDArray[np.float32]) -> Float32[np.ndarray, "pairs features"]:
    return np.concatenate([first, second, np.abs(first - second), first * second], axis=1)
