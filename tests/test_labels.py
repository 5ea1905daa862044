"""Scores become targets by a policy, and everything they were made from is kept."""

import json
import logging

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

from tests.rounding import rounding
from transencoder import distributed, labels
from transencoder.errors import InputError
from transencoder.labels import POLICIES, Teacher, label
from transencoder.losses import CosineLoss

RAW = [-0.5, 0.0, 0.25, 1.5, 0.25, 0.75]


class FixedScorer:
    """Scores of rows by their own number, and how often it was asked."""

    def __init__(self, scores: list[float]) -> None:
        self.scores = np.array(scores, dtype=np.float32)
        self.n_calls = 0

    def score(self, pairs: Dataset) -> np.ndarray:
        self.n_calls += 1
        return self.scores[[int(text) for text in pairs["sentence1"]]]


def numbered_pairs(n: int) -> Dataset:
    return Dataset.from_dict({"sentence1": [str(i) for i in range(n)], "sentence2": [f"balo {i}" for i in range(n)]})


def teacher(name: str, scores: list[float], **options: object) -> Teacher:
    return Teacher(name=name, scorer=FixedScorer(scores), **options)


def label_raw(policy: str, scores: list[float] = RAW) -> np.ndarray:
    return label([teacher("one", scores)], numbered_pairs(len(scores)), policy).targets


def slow_quantile(scores: list[float]) -> list[float]:
    """Share of scores below, ties half: (rank - 1/2) / n with mean ranks."""
    return [sum((other < x) + 0.5 * (other == x) for other in scores) / len(scores) for x in scores]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("clip", [0.0, 0.0, 0.25, 1.0, 0.25, 0.75]),
        ("raw", RAW),
        ("affine", [0.0, 0.25, 0.375, 1.0, 0.375, 0.625]),
        ("quantile", slow_quantile(RAW)),
    ],
)
def test_each_policys_values(policy, expected):
    targets = label_raw(policy)
    assert targets.dtype == np.float32
    np.testing.assert_allclose(targets, expected, rtol=0, atol=rounding(3, 1.5))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_range_order_and_ties(policy, seed):
    raw = np.random.default_rng(seed).normal(0.5, 0.6, 200).astype(np.float32).round(2)
    before = raw.copy()
    targets = label_raw(policy, raw.tolist())
    assert np.array_equal(raw, before)
    order = np.argsort(raw, kind="stable")
    assert (np.diff(targets[order]) >= 0).all(), "a higher score never gets a lower target"
    assert (np.diff(targets[order])[np.diff(raw[order]) == 0] == 0).all(), "equal scores, equal targets"
    if policy != "raw":
        assert 0 <= targets.min() <= targets.max() <= 1
    if policy == "quantile":
        np.testing.assert_allclose(targets, slow_quantile(raw.tolist()), rtol=0, atol=rounding(3))
        assert targets.mean() == pytest.approx(0.5, abs=rounding(len(raw), 0.5))


@pytest.mark.parametrize(("policy", "expected"), [("clip", 0.3), ("raw", 0.3), ("affine", 0.5), ("quantile", 0.5)])
def test_scores_that_are_all_the_same(policy, expected):
    np.testing.assert_allclose(label_raw(policy, [0.3] * 4), [expected] * 4, rtol=0, atol=rounding(3))


@pytest.mark.parametrize("policy", POLICIES)
def test_scores_are_mapped_before_they_are_averaged(policy):
    first, second = RAW, [0.9, -1.0, 0.4, 0.1, 2.0, 0.4]
    teachers = [teacher("first", first, weight=3.0), teacher("second", second, weight=1.0)]
    targets = label(teachers, numbered_pairs(6), policy).targets
    expected = 0.75 * label_raw(policy, first) + 0.25 * label_raw(policy, second)
    np.testing.assert_allclose(targets, expected, rtol=0, atol=rounding(4, 1.5))
    if policy == "clip":
        late = np.clip(0.75 * np.array(first) + 0.25 * np.array(second), 0, 1)
        assert np.abs(targets - late).max() > 0.1


def test_raw_scores_are_kept_and_asked_for_once():
    one = teacher("one", RAW)
    found = label([one, teacher("two", [0.5] * 6)], numbered_pairs(6), "affine")
    assert set(found.raw) == {"one", "two"}
    assert np.array_equal(found.raw["one"], np.array(RAW, np.float32))
    assert found.raw["one"].dtype == np.float32
    assert one.scorer.n_calls == 1


def test_provenance():
    teachers = [teacher("start", RAW, fingerprint="abc", weight=3.0), teacher("cross-encoder", [0.5] * 6)]
    record, other = label(teachers, numbered_pairs(6), "clip").provenance
    assert record == {
        "teacher": "start",
        "fingerprint": "abc",
        "weight": 0.75,
        "policy": "clip",
    }
    assert (other["teacher"], other["weight"]) == ("cross-encoder", 0.25)
    assert json.loads(json.dumps(record)) == record


def test_only_raw_targets_leave_the_range_and_that_is_logged(caplog):
    with caplog.at_level(logging.WARNING, "transencoder"):
        for policy in POLICIES:
            label_raw(policy)
    assert caplog.messages == ["2 of 6 targets lie outside [0, 1] (label policy raw)"]


@pytest.mark.parametrize(
    ("names", "weight", "n_pairs", "message"),
    [
        ([], 1.0, 6, "each with a name of its own"),
        (["one", "one"], 1.0, 6, "each with a name of its own"),
        *((["one", "two"], weight, 6, "a finite number above 0") for weight in (0.0, -1.0, np.nan, np.inf)),
        (["one"], 1.0, 0, "no pairs to label"),
    ],
)
def test_what_cannot_label_is_refused(names, weight, n_pairs, message):
    with pytest.raises(InputError, match=message):
        label([teacher(name, RAW, weight=weight) for name in names], numbered_pairs(n_pairs))


def test_parquet_holds_texts_labels_and_provenance_and_another_the_raw_scores(tmp_path, monkeypatch):
    monkeypatch.setattr(labels, "_CHUNK", 4)
    pairs = numbered_pairs(6).add_column("extra", list(range(6)))
    found = label([teacher("one", RAW), teacher("two", [0.5] * 6)], pairs, "clip")
    path = tmp_path / "labels.parquet"
    found.write(path, pairs)
    found.write_raw(tmp_path / "raw.parquet")
    rows = Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
    assert rows.column_names == ["sentence1", "sentence2", "label"]
    assert list(rows["sentence1"]) == list(pairs["sentence1"])
    assert list(rows["sentence2"]) == list(pairs["sentence2"])
    np.testing.assert_array_equal(np.array(rows["label"], np.float32), found.targets)
    raw = pq.read_table(tmp_path / "raw.parquet")
    assert raw.column_names == ["one", "two"]
    np.testing.assert_array_equal(raw["one"].to_numpy(), np.array(RAW, np.float32))
    metadata = pq.read_schema(path).metadata
    assert json.loads(metadata[b"transencoder"]) == found.provenance


def test_a_plain_trainer_trains_on_the_parquet(tmp_path, bi, tiny_pairs):
    pairs = Dataset.from_dict({"sentence1": [str(i) for i in range(6)], "sentence2": tiny_pairs["sentence2"][:6]})
    label([teacher("planted", RAW)], pairs).write(tmp_path / "labels.parquet", pairs)
    rows = Dataset.from_parquet(str(tmp_path / "labels.parquet"), cache_dir=str(tmp_path / "cache"))
    before = bi[0].model.encoder.layer[0].output.dense.weight.clone()
    options = {"max_steps": 1, "learning_rate": 1e-2, "save_strategy": "no", "report_to": "none", "use_cpu": True}
    args = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "out"), dataloader_pin_memory=False, disable_tqdm=True, **options
    )
    SentenceTransformerTrainer(bi, args, rows, loss=CosineLoss(bi)).train()
    assert not torch.equal(before, bi[0].model.encoder.layer[0].output.dense.weight)


def test_ranks_score_shares_that_join_in_order(monkeypatch):
    """Three ranks in one process: each scores its share; joined, they are the scores of one process."""
    pairs, scorer = numbered_pairs(len(RAW) - 1), FixedScorer(RAW)
    shares = []
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    monkeypatch.setattr(distributed, "concatenate", lambda part: shares.append(part) or part)
    for rank in range(3):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        labels.score_on_ranks(scorer, pairs)
    assert [len(share) for share in shares] == [1, 2, 2]
    assert np.array_equal(np.concatenate(shares), np.array(RAW[:-1], np.float32))


def test_more_ranks_than_pairs_are_no_harm(monkeypatch):
    """Was: a rank without pairs asked for one, in `evaluate` too."""
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    monkeypatch.setattr(distributed, "concatenate", lambda part: part)
    shares = []
    for rank in range(3):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        shares.append(labels.score_on_ranks(FixedScorer(RAW), numbered_pairs(2)))
    assert [share.tolist() for share in shares] == [[], [np.float32(RAW[0])], [np.float32(RAW[1])]]
    assert {share.dtype for share in shares} == {np.dtype(np.float32)}


def test_shares_that_round_to_more_than_1_stay_in_range():
    raw = {str(i): np.ones(3, np.float32) for i in range(10)}
    found = labels.combine(raw, dict.fromkeys(raw, "clip"), dict.fromkeys(raw, 1.0), dict.fromkeys(raw, ""))
    assert found.targets.max() == 1.0
