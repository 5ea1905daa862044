"""Reading a task's splits from a folder in the hub's layout."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from transencoder.errors import InputError
from transencoder.tasks import SUITES, TASKS, StandIn, load, load_classes, load_named


def test_scores_keep_the_tasks_range_and_columns_get_our_names(small_data: Path, tmp_path: Path) -> None:
    pairs = load("sickr", "test", data_folder=small_data, cache_folder=tmp_path / "cache")
    assert set(pairs.column_names) == {"sentence1", "sentence2", "score"}
    assert pairs["sentence1"][0] == "sickr test left 0"
    assert list(pairs["score"]) == [1.0, 2.0, 3.0, 2.0]


def test_each_role_is_its_own_split(small_data: Path, tmp_path: Path) -> None:
    for role, split in (("train", "train"), ("dev", "validation"), ("test", "test")):
        pairs = load(TASKS["stsb"], role, data_folder=small_data, cache_folder=tmp_path / "cache")  # type: ignore[arg-type]
        assert pairs["sentence1"][0] == f"stsb {split} left 0"


@pytest.mark.parametrize(("name", "owner"), [("sts", "stsb"), ("sts14", "stsb"), ("sickr", "sickr")])
def test_dev_is_the_papers(name: str, owner: str, small_data: Path, tmp_path: Path) -> None:
    pairs = load(name, "dev", data_folder=small_data, cache_folder=tmp_path / "cache")
    assert pairs["sentence1"][0] == f"{owner} validation left 0"


def test_a_sliced_split_gives_those_rows(small_data: Path, tmp_path: Path) -> None:
    sliced = replace(TASKS["stsb"], splits={"dev": "validation[:1]", "test": "validation[1:]"})
    dev = load(sliced, "dev", data_folder=small_data, cache_folder=tmp_path / "cache")
    test = load(sliced, "test", data_folder=small_data, cache_folder=tmp_path / "cache")
    assert [row["score"] for row in dev] == [1.0]
    assert [row["score"] for row in test] == [2.0, 3.0, 2.0]


@pytest.mark.parametrize(("name", "dev"), [("askubuntu", "dev"), ("scidocs", "validation")])
def test_a_re_ranking_task_gives_pairs_of_query_and_candidate(
    name: str, dev: str, small_data: Path, tmp_path: Path
) -> None:
    for role, split in (("dev", dev), ("test", "test")):
        pairs = load(name, role, data_folder=small_data, cache_folder=tmp_path / "cache")  # type: ignore[arg-type]
        assert pairs["sentence1"][:] == [f"{name} {split} query {row}" for row in (0, 0, 0, 1, 1, 1)]
        assert pairs["sentence2"][3] == f"{name} {split} positive 1"
        assert pairs["score"][:] == [1.0, 0.0, 0.0] * 2
        assert pairs["query"][:] == [0, 0, 0, 1, 1, 1]
    with pytest.raises(InputError, match=f"task '{name}' has no train split; it has: dev, test"):
        load(name, "train", data_folder=small_data)


@pytest.mark.parametrize(("name", "scores"), [("qqp", [1, 0, 0, 1]), ("qnli", [0, 1, 1, 0]), ("mrpc", [1, 0, 0, 1])])
def test_a_class_becomes_a_score_of_1_or_0(name: str, scores: list[int], small_data: Path, tmp_path: Path) -> None:
    pairs = load(name, "dev", data_folder=small_data, cache_folder=tmp_path / "cache")
    assert pairs.column_names == ["sentence1", "sentence2", "score"]
    assert pairs["score"][:] == scores
    assert pairs["sentence2"][1] == f"{name} validation right 1"


def test_the_rows_of_a_test_without_labels_are_drawn_from_others(
    small_data: Path, tmp_path: Path, write_split: Callable[..., None]
) -> None:
    qqp, where = TASKS["qqp"], {"data_folder": small_data, "cache_folder": tmp_path / "cache"}
    assert load_named(qqp, "test", **where)[1] == "test[:10000]"
    folder = small_data / qqp.dataset / "qqp"
    write_split(folder, "test", [("A?", "B?", -1), ("C?", "D?", -1)], qqp.columns)
    write_split(folder, "validation", [(f"left {i}?", f"right {i}?", i % 2) for i in range(1050)], qqp.columns)
    few = replace(qqp, stand_in=StandIn(split="validation[1000:]", rows=20, seed=0))
    pairs, rows = load_named(few, "test", **where)
    assert rows == "validation[1000:], 20 rows drawn with seed 0"
    drawn = [int(text[5:-1]) for text in pairs["sentence1"]]
    assert len(set(drawn)) == 20 and min(drawn) >= 1000 and drawn == sorted(drawn)
    assert pairs["score"][:] == [number % 2 for number in drawn]
    assert load_named(few, "test", **where)[0]["sentence1"][:] == pairs["sentence1"][:]
    assert len(load(few, "dev", **where)) == 1000
    write_split(folder, "test", [("A?", "B?", -1), ("C?", "D?", 1)], qqp.columns)
    with pytest.raises(InputError, match="row 1 of test.* has the label -1, which means none"):
        load(few, "test", **where)


def test_a_suite_of_tasks_with_dev_sets_of_their_own_has_none(small_data: Path) -> None:
    with pytest.raises(InputError, match="'binary' is a suite whose tasks each have a dev set of their own"):
        load("binary", "dev", data_folder=small_data)


@pytest.mark.parametrize(
    ("name", "rows", "positive"), [("qqp", (8785, 985, 9999), 0.5), ("qnli", (9999, 1000, 4463), 0.5)]
)
def test_the_real_binary_tasks(
    name: str, rows: tuple[int, ...], positive: float, real_data: Path, tmp_path: Path
) -> None:
    found = [load(name, role, data_folder=real_data, cache_folder=tmp_path) for role in ("train", "dev", "test")]  # type: ignore[arg-type]
    assert tuple(map(len, found)) == rows
    assert sum(found[2]["score"]) / rows[2] == pytest.approx(positive, abs=0.02)


def test_a_score_out_of_the_tasks_range_is_refused(
    small_data: Path, tmp_path: Path, write_split: Callable[..., None]
) -> None:
    task = TASKS["sickr"]
    write_split(small_data / task.dataset, "test", [("A.", "B.", 0.5), ("C.", "D.", 3.0)], task.columns)
    with pytest.raises(InputError, match=r"0\.5"):
        load(task, "test", data_folder=small_data, cache_folder=tmp_path / "cache")


def test_a_role_the_task_lacks_is_refused_with_those_it_has(small_data: Path) -> None:
    with pytest.raises(InputError, match="'sts12' has no train split; it has: test"):
        load("sts12", "train", data_folder=small_data)


def test_rows_without_a_class_are_left_out(
    small_data: Path, write_split: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    task = TASKS["snli"]
    write_split(small_data / task.dataset, "test", [("a", "b", -1), ("c", "d", 2), ("e", "f", 0)], task.columns)
    caplog.set_level(logging.INFO)
    sets = load_classes("snli", data_folder=small_data)
    assert {role: rows["score"][:] for role, rows in sets.items()} == {
        "train": [1, 0, 2, 1],
        "dev": [1, 0, 2, 1],
        "test": [2, 0],
    }
    assert "snli: 1 of 3 rows of test have no class and are left out" in caplog.text


def test_a_suite_has_no_single_test_set(small_data: Path) -> None:
    with pytest.raises(InputError, match=r"'sts' is a suite of several tasks \(sts12, "):
        load("sts", "test", data_folder=small_data)


REAL_ROWS = dict(zip(SUITES["sts"], (3108, 1500, 3750, 3000, 1186, 1379, 4906), strict=True))


@pytest.mark.parametrize("name", REAL_ROWS)
def test_real_test_sets_have_the_papers_rows(name: str, real_data: Path, tmp_path: Path) -> None:
    pairs = load(name, "test", data_folder=real_data, cache_folder=tmp_path)
    assert len(pairs) == REAL_ROWS[name]
    low, high = TASKS[name].score_range
    assert low <= min(pairs["score"]) < max(pairs["score"]) <= high


def test_the_real_dev_set_has_1500_rows(real_data: Path, tmp_path: Path) -> None:
    assert len(load("sts", "dev", data_folder=real_data, cache_folder=tmp_path)) == 1500
    assert len(load("sickr", "dev", data_folder=real_data, cache_folder=tmp_path)) == 495
