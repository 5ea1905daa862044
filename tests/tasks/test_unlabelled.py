"""The paper's training pairs: which splits, duplicates removed, what is missing, no test sentences."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from datasets import Dataset

from transencoder.errors import InputError
from transencoder.tasks import SUITES, TASKS, load, unlabelled_pairs


def as_tuples(pairs: Dataset) -> list[tuple[str, str]]:
    return list(zip(pairs["sentence1"], pairs["sentence2"], strict=True))


def test_all_splits_are_taken_without_scores_and_each_pair_once(small_data: Path, tmp_path: Path) -> None:
    pairs, provenance = unlabelled_pairs(["stsb", "sickr"], data_folder=small_data, cache_folder=tmp_path / "cache")
    assert pairs.column_names == ["sentence1", "sentence2"]
    rows = as_tuples(pairs)
    assert len(rows) == len(set(rows)) == 2 * 3 * 3 + 1
    assert rows[0] == ("stsb train left 0", "stsb train right 0")
    assert ("sickr test left 2", "sickr test right 2") in rows
    assert provenance == {
        "tasks": ["stsb", "sickr"],
        "source": "mteb/stsbenchmark-sts (train, validation, test); RobZamp/sick (train, validation, test)",
        "rows": 19,
        "missing_rows": 0,
        "excluded_rows": 0,
        "transductive": True,
    }


def test_building_the_suite_from_the_hub_says_what_is_missing(
    small_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="transencoder"):
        pairs, provenance = unlabelled_pairs("sts", data_folder=small_data, cache_folder=tmp_path / "cache")
    assert len(pairs) == (5 + 3 + 3) * 3 + 1
    assert provenance["missing_rows"] == 5410 + 7948
    assert "34 unlabelled pairs" in caplog.text and "STS15 5410, STS16 7948" in caplog.text
    assert "not on the hub" in caplog.text


def test_the_local_set_is_taken_for_the_whole_suite_only(
    small_data: Path, tmp_path: Path, write_split: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    local = small_data / "pairs" / "sts-sickr"
    write_split(
        local,
        "train",
        [("A.", "B.", 0), ("A.", "B.", 0), ("C.", "D.", 0)],
        ("sentence1", "sentence2", "source"),
    )
    whole, provenance = unlabelled_pairs(
        list(reversed(SUITES["sts"])), data_folder=small_data, cache_folder=tmp_path / "cache"
    )
    assert as_tuples(whole) == [("A.", "B."), ("C.", "D.")]
    assert provenance["source"] == "pairs/sts-sickr" and provenance["missing_rows"] == 0
    assert "not on the hub" not in caplog.text
    _, provenance = unlabelled_pairs("sts13", data_folder=small_data, cache_folder=tmp_path / "cache")
    assert provenance["source"] == "mteb/sts13-sts (test)"


def test_no_test_sentence_is_left_in_the_inductive_setting(small_data: Path, tmp_path: Path) -> None:
    pairs, provenance = unlabelled_pairs(
        "stsb", exclude_test_sentences=True, data_folder=small_data, cache_folder=tmp_path / "cache"
    )
    splits = {first.split(" left")[0] for first, _ in as_tuples(pairs)}
    assert splits == {"stsb train", "stsb validation"}, "the shared pair is a test pair too and must go"
    assert provenance["excluded_rows"] == 4 and not provenance["transductive"]


def test_a_test_sentence_is_found_on_either_side_in_any_case_and_spacing(
    small_data: Path, tmp_path: Path, write_split: Callable[..., None]
) -> None:
    task = TASKS["stsb"]
    rows = [("New.", "STSB  test right 0", 1.0), ("stsb TEST left 1", "New.", 1.0), ("New.", "Newer.", 1.0)]
    write_split(small_data / task.dataset, "train", rows, task.columns)
    write_split(small_data / task.dataset, "validation", [("Own.", "Ours.", 1.0)], task.columns)
    pairs, _ = unlabelled_pairs(
        task, exclude_test_sentences=True, data_folder=small_data, cache_folder=tmp_path / "cache"
    )
    assert as_tuples(pairs) == [("New.", "Newer."), ("Own.", "Ours.")]


def test_a_task_for_evaluation_only_has_no_training_pairs(small_data: Path) -> None:
    with pytest.raises(InputError, match="askubuntu, scidocs: for evaluation only, no method trains on its pairs"):
        unlabelled_pairs(["stsb", "reranking"], data_folder=small_data)


def test_nothing_left_is_an_error(small_data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no unlabelled pair is left of sts12: all 4 hold a sentence of a test split"):
        unlabelled_pairs("sts12", exclude_test_sentences=True, data_folder=small_data, cache_folder=tmp_path / "cache")


def test_the_real_set_is_the_papers(real_data: Path, tmp_path: Path) -> None:
    if not (real_data / "pairs" / "sts-sickr").is_dir():
        pytest.skip(f"{real_data} has no pairs/sts-sickr, the paper's training pairs")
    pairs, provenance = unlabelled_pairs("sts", data_folder=real_data, cache_folder=tmp_path)
    assert len(pairs) == provenance["rows"] == 37_077
    assert provenance["transductive"] and not provenance["missing_rows"]


def test_the_real_inductive_set_shares_no_sentence_with_a_test_set(real_data: Path, tmp_path: Path) -> None:
    if not (real_data / "pairs" / "sts-sickr").is_dir():
        pytest.skip(f"{real_data} has no pairs/sts-sickr, the paper's training pairs")
    pairs, provenance = unlabelled_pairs(
        "sts", exclude_test_sentences=True, data_folder=real_data, cache_folder=tmp_path
    )
    assert len(pairs) + provenance["excluded_rows"] == 37_077
    training = {*pairs["sentence1"], *pairs["sentence2"]}
    for name in SUITES["sts"]:
        test = load(name, "test", data_folder=real_data, cache_folder=tmp_path)
        assert training.isdisjoint(test["sentence1"]) and training.isdisjoint(test["sentence2"])


def test_real_pairs_built_from_the_hubs_splits_lack_only_the_unscored(real_data: Path, tmp_path: Path) -> None:
    """The numbers in `Task.unscored_pairs` are what the local set has more than the tasks' own splits."""
    hub_only = tmp_path / "data"
    for task in (TASKS[name] for name in SUITES["sts"]):
        link = hub_only / task.dataset
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(real_data / task.dataset)
    pairs, provenance = unlabelled_pairs("sts", data_folder=hub_only, cache_folder=tmp_path / "cache")
    assert len(pairs) + provenance["missing_rows"] == 37_077
