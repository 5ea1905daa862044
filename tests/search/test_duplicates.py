"""Planted near-duplicates come apart from the rest, in the clusters of sentence-transformers' community detection."""

from types import SimpleNamespace

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers.util import community_detection

from transencoder.errors import InputError
from transencoder.search import duplicates, find_duplicates
from transencoder.search.duplicates import Threshold, _stars, find_threshold


def modes(rng, *parts):
    """Scores of normal distributions: (mean, deviation, number) each."""
    return np.concatenate([rng.normal(mean, deviation, number) for mean, deviation, number in parts]).astype(np.float32)


@pytest.mark.parametrize("n_copies", [20, 100, 800])
def test_the_threshold_lies_between_the_bulk_and_a_few_copies(n_copies):
    scores = modes(np.random.default_rng(0), (0.45, 0.08, 2000), (0.96, 0.015, n_copies))
    found = find_threshold(scores)
    assert found.peaks == (pytest.approx(0.45, abs=0.05), pytest.approx(0.96, abs=0.03))
    assert 0.7 < found.score < 0.93


def test_one_mode_has_no_threshold():
    assert find_threshold(np.full(50, 0.5)) is None
    assert find_threshold(np.linspace(0, 1, 256 * 5)) is None


@pytest.fixture(scope="module")
def sentences(tiny_sentences):
    """60 sentences of 24 words; ten of them again with one word changed, three as they are."""
    texts = tiny_sentences["text"][:]
    texts = [" ".join(texts[row : row + 3]) for row in range(60)]
    changed = [text.rsplit(" ", 1)[0] + " balo" for text in texts[:30:3]]
    return Dataset.from_dict({"text": [*texts, *changed, *texts[40:42], texts[40]]})


@pytest.fixture(scope="module")
def counts(sentences):
    """Stands in for an embedder: how often each word occurs."""
    words = {word: i for i, word in enumerate(sorted({word for text in sentences["text"] for word in text.split()}))}

    def documents(texts):
        rows = np.zeros((len(texts), len(words)), np.float32)
        for row, text in enumerate(texts):
            np.add.at(rows[row], [words[word] for word in text.split()], 1)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    return SimpleNamespace(documents=documents, dimensions=len(words))


def test_copies_and_changed_copies_are_clusters(sentences, counts):
    found = find_duplicates(sentences, counts)
    clusters = {frozenset(row for row, _ in cluster) for cluster in found.clusters}
    assert {frozenset({40, 70, 72}), frozenset({41, 71})} <= clusters
    assert {frozenset({3 * row, 60 + row}) for row in range(10)} <= clusters and len(clusters) == 12
    assert found.threshold.peaks and not found.threshold.is_given
    assert all(score >= found.threshold.score for cluster in found.clusters for _, score in cluster)
    assert found.clusters[0][0] == (40, 1.0), "the largest comes first, its centre first"
    rows = list(found.repeated())
    assert len(rows) == len({*rows}) == sum(map(len, found.clusters)) - len(found.clusters)


def test_a_given_threshold_and_none_to_be_found(sentences, counts):
    found = find_duplicates(sentences, counts, threshold=1.0)
    assert {frozenset(row for row, _ in cluster) for cluster in found.clusters} == {
        frozenset({40, 70, 72}),
        frozenset({41, 71}),
    }
    assert found.threshold == Threshold(1.0, is_given=True)
    assert find_duplicates(sentences.select([0]), counts).clusters == []
    with pytest.raises(InputError, match="there are no sentences"):
        find_duplicates(sentences.select([]), counts)
    with pytest.raises(InputError, match="threshold is 0; give a number above 0 and at most 1"):
        find_duplicates(sentences, counts, threshold=0)


def test_an_upper_peak_far_from_one_is_no_peak_of_copies(sentences, counts, monkeypatch):
    monkeypatch.setattr(duplicates, "_SURE_PEAK", 1.01)
    found = find_duplicates(sentences, counts)
    assert found.threshold.peaks is None and len(found.clusters) == 2 and found.threshold.score > 0.999


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8])
def test_clusters_are_those_of_community_detection(threshold):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(12, 8))
    points = np.concatenate(
        [centres[rng.integers(12, size=90)] + 0.5 * rng.normal(size=(90, 8)), rng.normal(size=(30, 8))]
    )
    unit = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    scores = unit @ unit.T
    np.fill_diagonal(scores, -2)
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :-1]
    ours = _stars(np.take_along_axis(scores, rows, 1), rows, threshold)
    theirs = community_detection(unit, threshold=threshold, min_community_size=2)
    assert {frozenset(row for row, _ in cluster) for cluster in ours} == {frozenset(each) for each in theirs}
    assert len(ours) > 5
