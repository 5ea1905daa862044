"""What the tests of several losses share: two columns of texts, and numbers as losses take them."""

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

FIRST = ["balo", "bama dalo", "gelo kama", "felo"]
SECOND = ["balo lelo", "dalo", "kama memo", "felo felo"]


def read(model: SentenceTransformer, *sides: list[str]) -> list[dict[str, object]]:
    """The token features of columns of texts; of `FIRST` and `SECOND` where none are given."""
    return [dict(model.preprocess(side)) for side in sides or (FIRST, SECOND)]


def embedded(model: SentenceTransformer, *sides: list[str]) -> list[np.ndarray]:
    """The embeddings of the same, float64 (texts, dim) each."""
    return [model.encode(side).astype(np.float64) for side in sides or (FIRST, SECOND)]


def tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(array).float() for array in arrays]


def assert_same_features(found, expected):
    """Compare the features of two batches, number by number and type by type."""
    assert set(found) == set(expected)
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert found[name].dtype == value.dtype
            torch.testing.assert_close(found[name], value, rtol=0, atol=0)
        else:
            assert found[name] == value
