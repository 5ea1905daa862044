"""Accuracy of a linear classifier on embeddings: what it can read, what chooses it, where there are none."""

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sklearn.linear_model import LogisticRegression

from transencoder import evaluation, probing
from transencoder.errors import InputError
from transencoder.evaluation import evaluate_classes, evaluate_tasks
from transencoder.probing import probe
from transencoder.scorers import BiScorer, KeptScores, MeanScorer


class Planted:
    """The first sentence's number is the angle of a vector; the second one is turned on by its own."""

    def embed_sides(self, pairs: Dataset) -> tuple[np.ndarray, np.ndarray]:
        angles = [np.array(pairs[name][:], dtype=float) for name in ("sentence1", "sentence2")]
        return tuple(np.stack([np.cos(each), np.sin(each)], axis=1).astype(np.float32) for each in angles)


def rows(n: int, seed: int, classes: int = 3) -> Dataset:
    """The class is how far both vectors are apart: near, at a right angle, opposite."""
    rng = np.random.default_rng(seed)
    first, gold = rng.uniform(0, 2 * np.pi, n), rng.integers(classes, size=n)
    second = first + gold * np.pi / 2 + rng.normal(0, 0.3, n)
    return Dataset.from_dict({"sentence1": first.astype(str), "sentence2": second.astype(str), "score": gold})


def sets(n: int = 300, **changes: Dataset) -> dict[str, Dataset]:
    return {"train": rows(n, 1), "dev": rows(n, 2), "test": rows(n, 3)} | changes


def test_differences_and_products_are_read():
    accuracy = probe(Planted(), sets())
    assert 85 < accuracy <= 100
    shuffled = sets()["train"]
    gold = np.random.default_rng(0).permutation(shuffled["score"][:])
    assert probe(Planted(), sets(train=shuffled.remove_columns("score").add_column("score", gold.tolist()))) < 50


def test_the_strength_is_chosen_on_dev_and_the_classifier_is_the_slow_ones(monkeypatch):
    """Mean loss + strength / 2 x squared norm, of scikit-learn's C = 1 / (n x strength)."""
    monkeypatch.setattr(probing, "_STRENGTHS", (1e2, 1e-4))
    data = sets()
    features = {}
    for role, each in data.items():
        u, v = Planted().embed_sides(each)
        features[role] = np.concatenate([u, v, abs(u - v), u * v], axis=1)
    slow = LogisticRegression(C=1 / (300 * 1e-4), max_iter=1000).fit(features["train"], data["train"]["score"][:])
    assert probe(Planted(), data) == pytest.approx(
        100 * slow.score(features["test"], data["test"]["score"][:]), abs=0.5
    )
    monkeypatch.setattr(probing, "_STRENGTHS", (1e2,))
    assert probe(Planted(), data) < 60


def test_one_class_cannot_be_told_from_itself():
    with pytest.raises(InputError, match="the training rows are all of class 0"):
        probe(Planted(), sets(train=rows(10, 1, classes=1)))


def test_only_a_bi_encoder_has_embeddings(tiny_bi_encoder, caplog):
    data = {
        role: Dataset.from_dict({"sentence1": ["balo", "dalo"] * 9, "sentence2": ["kama"] * 18, "score": [0, 1] * 9})
        for role in ("train", "dev", "test")
    }
    scorer = BiScorer(SentenceTransformer(tiny_bi_encoder, device="cpu"), precision="fp32")
    assert evaluate_classes(scorer, data) == evaluate_classes(KeptScores(scorer), data) == 100
    assert np.isnan(evaluate_classes(MeanScorer([scorer, scorer]), data))
    assert "a classifier is trained on embeddings" in caplog.text


def test_embeddings_of_pairs_are_sentence_transformers(tiny_bi_encoder, tiny_pairs):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    found = BiScorer(model, precision="fp32").embed_sides(tiny_pairs)
    for side, embeddings in zip(("sentence1", "sentence2"), found, strict=True):
        np.testing.assert_allclose(embeddings, model.encode(tiny_pairs[side][:]), atol=1e-5)


def test_minilm_reads_entailment(minilm, data_folder, monkeypatch):
    """SICK-E, 300 rows a split: 3 classes, the most frequent one 57 % of the test rows."""
    load = evaluation.load_classes

    def few(*args, **where):
        return {role: rows.select(range(300)) for role, rows in load(*args, **where).items()}

    monkeypatch.setattr(evaluation, "load_classes", few)
    scorer = BiScorer(SentenceTransformer(minilm, device="cpu"))
    assert 65 < evaluate_tasks(scorer, "sicke", data_folder=data_folder)["sicke"] < 90
