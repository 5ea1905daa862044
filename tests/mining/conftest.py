"""Made-up sentences with embeddings that are drawn, not computed."""

import numpy as np
import pytest
from datasets import Dataset

from transencoder.mining.corpus import Corpus, distinct


def unit_rows(n_rows, width=8, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n_rows, width)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="session")
def make_corpus():
    """A corpus of texts; their embeddings are given or random."""

    def make(texts, embeddings=None, seed=0):
        found = distinct(Dataset.from_dict({"text": list(texts)}))
        drawn = unit_rows(len(found), seed=seed) if embeddings is None else np.asarray(embeddings, np.float32)
        return Corpus(**vars(found), embeddings=drawn)

    return make
