"""Metrics against slow statements of their definitions, and what is refused."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import RerankingEvaluator
from sklearn.linear_model import LogisticRegression

from transencoder import evaluation, tokens
from transencoder.errors import InputError
from transencoder.evaluation import (
    LabelledSet,
    evaluate,
    evaluate_classes,
    evaluate_tasks,
    measure,
    measure_with_scores,
)
from transencoder.scorers import BiScorer, MeanScorer
from transencoder.tasks import TASKS, load
from transencoder.tokens import TokenCache


class FixedScorer:
    """Gives the scores it was made with, and remembers the columns it was shown."""

    def __init__(self, scores: list[float]) -> None:
        self.scores = np.array(scores, dtype=np.float32)
        self.columns: list[str] = []

    def score(self, pairs: Dataset) -> np.ndarray:
        self.columns = pairs.column_names
        return self.scores


def pairs_with(gold: list[float]) -> Dataset:
    sides = {f"sentence{side}": [f"{name} {i}" for i in range(len(gold))] for side, name in ((1, "left"), (2, "right"))}
    return Dataset.from_dict(sides | {"score": gold})


def test_evaluate_shows_the_scorer_no_gold() -> None:
    scorer = FixedScorer([0.1, 0.2, 0.9])
    assert evaluate(scorer, pairs_with([0, 2.5, 5])) == pytest.approx(100.0)
    assert scorer.columns == ["sentence1", "sentence2"]
    assert evaluate(scorer, pairs_with([0, 1, 0]), "roc_auc") == pytest.approx(50.0)


def test_evaluations_of_one_set_hash_its_rows_once(bi, tiny_pairs, tmp_path, monkeypatch):
    """Was: each evaluation selected the columns anew, and the token cache knew rows by their Dataset."""
    hashed = []
    fingerprint = tokens.fingerprint
    monkeypatch.setattr(tokens, "fingerprint", lambda rows: hashed.append(len(rows)) or fingerprint(rows))
    dev, cache = LabelledSet(tiny_pairs, "spearman"), TokenCache(tmp_path)
    first, again = (measure(BiScorer(bi, precision="fp32", cache=cache), dev) for _ in range(2))
    assert first == again and hashed == [len(tiny_pairs)]


def test_evaluate_names_the_pairs_without_a_finite_score() -> None:
    with pytest.raises(InputError, match=r"1 of 3 scores are .* row 1: 'left 1' / 'right 1'\. The model"):
        evaluate(FixedScorer([0.1, float("nan"), 0.9]), pairs_with([0, 1, 2]))


def test_evaluate_refuses_another_number_of_scores() -> None:
    with pytest.raises(InputError, match=r"shape \(2,\); 3 pairs"):
        evaluate(FixedScorer([0.1, 0.9]), pairs_with([0, 1, 2]))


def test_evaluate_refuses_data_without_gold_and_unknown_metrics() -> None:
    with pytest.raises(InputError, match="this data has sentence1, sentence2"):
        evaluate(FixedScorer([0.1]), pairs_with([1]).remove_columns("score"))
    with pytest.raises(InputError, match="unknown metric 'pearson'; choose one of: spearman, roc_auc"):
        evaluate(FixedScorer([0.1]), pairs_with([1]), "pearson")


def test_evaluate_tasks_gives_each_task_its_own_test_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def load_task(task: object, role: str, *, data_folder: Path, cache_folder: None, token: None) -> Dataset:
        asked.append((task, role, data_folder))
        return pairs_with([0, 1, 5] if task is TASKS["sts13"] else [5, 1, 0])

    monkeypatch.setattr(evaluation, "load", load_task)
    scores = evaluate_tasks(FixedScorer([0.1, 0.2, 0.3]), ["sts13", "stsb"], data_folder=tmp_path)
    assert asked == [(TASKS["sts13"], "test", tmp_path), (TASKS["stsb"], "test", tmp_path)]
    assert scores == {"sts13": pytest.approx(100.0), "stsb": pytest.approx(-100.0)}


def test_evaluate_tasks_measures_by_another_metric_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "load", lambda *_, **__: pairs_with([1, 0, 1]))
    scorer = FixedScorer([0.1, 0.2, 0.3])
    assert evaluate_tasks(scorer, "stsb", metric="roc_auc") == {"stsb": pytest.approx(50.0)}


def test_evaluate_ranks_the_pairs_of_a_query() -> None:
    """By its number where the data has one, else by its text: two queries of one text are then one."""
    pairs = Dataset.from_dict(
        {"sentence1": ["a", "a", "a", "a"], "sentence2": ["b", "c", "d", "e"], "score": [1.0, 0, 1, 0]}
    )
    scorer = FixedScorer([0.9, 0.8, 0.3, 0.2])
    assert evaluate(scorer, pairs, "map") == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert evaluate(scorer, pairs.add_column("query", [0, 0, 1, 1]), "map") == pytest.approx(100)
    assert scorer.columns == ["sentence1", "sentence2"]
    with pytest.raises(InputError, match="1 of 4 scores"):
        evaluate(FixedScorer([0.1, float("nan"), 0.2, 0.3]), pairs, "map")


@pytest.mark.parametrize("task", ["askubuntu", "scidocs"])
def test_rankings_are_sentence_transformers(task, tiny_reranking, bi, tmp_path):
    with gzip.open(tiny_reranking / TASKS[task].dataset / "test.jsonl.gz", "rt", encoding="utf-8") as file:
        theirs = RerankingEvaluator([json.loads(line) for line in file])(bi)
    pairs = load(task, "test", data_folder=tiny_reranking, cache_folder=tmp_path)
    scorer = BiScorer(bi, precision="fp32")
    for metric, their_name in (("map", "map"), ("mrr_at_10", "mrr@10")):
        found = evaluate(scorer, pairs, metric)
        assert found == pytest.approx(100 * float(theirs[their_name]), abs=1e-9)
        assert 20 < found < 100


class Planted(BiScorer):
    """The first sentence's number is the angle of a vector; the second one is turned on by its own."""

    def __init__(self):
        pass

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
    accuracy = evaluate_classes(Planted(), sets())
    assert 85 < accuracy <= 100
    shuffled = sets()["train"]
    gold = np.random.default_rng(0).permutation(shuffled["score"][:])
    assert (
        evaluate_classes(Planted(), sets(train=shuffled.remove_columns("score").add_column("score", gold.tolist())))
        < 50
    )


def test_the_strength_is_chosen_on_dev_and_the_classifier_is_the_slow_ones(monkeypatch):
    """Mean loss + strength / 2 x squared norm, of scikit-learn's C = 1 / (n x strength)."""
    monkeypatch.setattr(evaluation, "_STRENGTHS", (1e2, 1e-4))
    data = sets()
    features = {}
    for role, each in data.items():
        u, v = Planted().embed_sides(each)
        features[role] = np.concatenate([u, v, abs(u - v), u * v], axis=1)
    slow = LogisticRegression(C=1 / (300 * 1e-4), max_iter=1000).fit(features["train"], data["train"]["score"][:])
    assert evaluate_classes(Planted(), data) == pytest.approx(
        100 * slow.score(features["test"], data["test"]["score"][:]), abs=0.5
    )
    monkeypatch.setattr(evaluation, "_STRENGTHS", (1e2,))
    assert evaluate_classes(Planted(), data) < 60


def test_one_class_cannot_be_told_from_itself():
    with pytest.raises(InputError, match="the training rows are all of class 0"):
        evaluate_classes(Planted(), sets(train=rows(10, 1, classes=1)))


def test_only_a_bi_encoder_has_embeddings(bi, caplog):
    data = {
        role: Dataset.from_dict({"sentence1": ["balo", "dalo"] * 9, "sentence2": ["kama"] * 18, "score": [0, 1] * 9})
        for role in ("train", "dev", "test")
    }
    scorer = BiScorer(bi, precision="fp32")
    assert evaluate_classes(scorer, data) == 100
    assert np.isnan(evaluate_classes(MeanScorer([scorer, scorer]), data))
    assert "a classifier is trained on embeddings" in caplog.text


def test_a_metric_comes_with_the_scores_that_it_is_of(bi, tiny_pairs):
    scorer, labelled = BiScorer(bi, precision="fp32"), LabelledSet(tiny_pairs, "spearman")
    metric, scores = measure_with_scores(scorer, labelled)
    assert metric == measure(scorer, labelled)
    assert np.array_equal(scores, scorer.score(tiny_pairs.remove_columns("score")))
    data = {
        role: tiny_pairs.remove_columns("score").add_column("score", [0, 1] * (len(tiny_pairs) // 2))
        for role in ("train", "dev", "test")
    }
    accuracy, scores = measure_with_scores(scorer, LabelledSet(data["test"], "accuracy", data))
    assert 0 <= accuracy <= 100 and scores is None


def test_minilm_reads_entailment(minilm, data_folder, monkeypatch):
    """SICK-E, 300 rows a split: 3 classes, the most frequent one 57 % of the test rows."""
    load = evaluation.load
    monkeypatch.setattr(evaluation, "load", lambda *args, **where: load(*args, **where).select(range(300)))
    scorer = BiScorer(SentenceTransformer(minilm, device="cpu"))
    assert 65 < evaluate_tasks(scorer, "sicke", data_folder=data_folder)["sicke"] < 90
