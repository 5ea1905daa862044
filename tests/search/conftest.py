"""A small corpus, an embedder of the tiny bi-encoder, and a scorer that looks at common words."""

import numpy as np
import pytest
from datasets import Dataset

from transencoder.search import build_index, load_embedder


@pytest.fixture(scope="session")
def embedder(tiny_bi_encoder):
    return load_embedder(tiny_bi_encoder, device="cpu", precision="fp32")


@pytest.fixture(scope="session")
def corpus(tiny_sentences):
    return Dataset.from_dict(
        {"id": [f"d{row}" for row in range(len(tiny_sentences))], "text": tiny_sentences["text"][:]}
    )


@pytest.fixture(scope="session")
def folder(tmp_path_factory, corpus, embedder):
    """An index, which no test may change."""
    path = tmp_path_factory.mktemp("search") / "index"
    build_index(corpus, embedder, path)
    return path


@pytest.fixture(scope="session")
def common_words():
    return _CommonWords()


class _CommonWords:
    """Scores a pair by its common words."""

    def score(self, pairs):
        both = zip(pairs["sentence1"], pairs["sentence2"], strict=True)
        return np.array([len({*first.split()} & {*second.split()}) for first, second in both], np.float32)
