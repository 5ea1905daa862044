"""A task's splits, and the paper's training pairs, read from a folder in the hub's layout."""

import logging
from dataclasses import replace

import pytest

from tests.tasks.conftest import write_rows
from transencoder.errors import InputError
from transencoder.tasks import SUITES, TASKS, StandIn, load, load_named, unlabelled_pairs


def test_scores_keep_the_tasks_range_and_columns_get_our_names(small_data):
    pairs = load("sickr", "test", data_folder=small_data)
    assert set(pairs.column_names) == {"sentence1", "sentence2", "score"}
    assert pairs["sentence1"][0] == "sickr test left 0"
    assert list(pairs["score"]) == [1.0, 2.0, 3.0, 2.0]


def test_each_role_is_its_own_split(small_data):
    for role, split in (("train", "train"), ("dev", "validation"), ("test", "test")):
        pairs = load(TASKS["stsb"], role, data_folder=small_data)
        assert pairs["sentence1"][0] == f"stsb {split} left 0"


@pytest.mark.parametrize(("name", "owner"), [("sts", "stsb"), ("sts14", "stsb"), ("sickr", "sickr")])
def test_dev_is_the_papers(name, owner, small_data):
    assert load(name, "dev", data_folder=small_data)["sentence1"][0] == f"{owner} validation left 0"


def test_a_sliced_split_gives_those_rows(small_data):
    sliced = replace(TASKS["stsb"], splits={"dev": "validation[:1]", "test": "validation[1:]"})
    assert load(sliced, "dev", data_folder=small_data)["score"][:] == [1.0]
    assert load(sliced, "test", data_folder=small_data)["score"][:] == [2.0, 3.0, 2.0]


@pytest.mark.parametrize(("name", "dev"), [("askubuntu", "dev"), ("scidocs", "validation")])
def test_a_re_ranking_task_gives_pairs_of_query_and_candidate(name, dev, small_data):
    for role, split in (("dev", dev), ("test", "test")):
        pairs = load(name, role, data_folder=small_data)
        assert pairs["sentence1"][:] == [f"{name} {split} query {row}" for row in (0, 0, 0, 1, 1, 1)]
        assert pairs["sentence2"][3] == f"{name} {split} positive 1"
        assert pairs["score"][:] == [1.0, 0.0, 0.0] * 2
        assert pairs["query"][:] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(("name", "scores"), [("qqp", [1, 0, 0, 1]), ("qnli", [0, 1, 1, 0]), ("mrpc", [1, 0, 0, 1])])
def test_a_class_becomes_a_score_of_1_or_0(name, scores, small_data):
    pairs = load(name, "dev", data_folder=small_data)
    assert pairs.column_names == ["sentence1", "sentence2", "score"]
    assert pairs["score"][:] == scores
    assert pairs["sentence2"][1] == f"{name} validation right 1"


def test_the_rows_of_a_test_without_labels_are_drawn_from_others(small_data, write_split):
    qqp = TASKS["qqp"]
    assert load_named(qqp, "test", data_folder=small_data)[1] == "test[:10000]"
    write_split(qqp, "test", [("A?", "B?", -1), ("C?", "D?", -1)])
    write_split(qqp, "validation", [(f"left {i}?", f"right {i}?", i % 2) for i in range(1050)])
    few = replace(qqp, stand_in=StandIn(split="validation[1000:]", rows=20, seed=0))
    pairs, rows = load_named(few, "test", data_folder=small_data)
    assert rows == "validation[1000:], 20 rows drawn with seed 0"
    drawn = [int(text[5:-1]) for text in pairs["sentence1"]]
    assert len(set(drawn)) == 20 and min(drawn) >= 1000 and drawn == sorted(drawn)
    assert pairs["score"][:] == [number % 2 for number in drawn]
    assert load(few, "test", data_folder=small_data)["sentence1"][:] == pairs["sentence1"][:]
    assert len(load(few, "dev", data_folder=small_data)) == 1000
    write_split(qqp, "test", [("A?", "B?", -1), ("C?", "D?", 1)])
    with pytest.raises(InputError, match="row 1 of test.* has the label -1, which means none"):
        load(few, "test", data_folder=small_data)


def test_rows_without_a_class_are_left_out(small_data, write_split, caplog):
    write_split(TASKS["snli"], "test", [("a", "b", -1), ("c", "d", 2), ("e", "f", 0)])
    caplog.set_level(logging.INFO)
    scores = {role: load("snli", role, data_folder=small_data)["score"][:] for role in TASKS["snli"].splits}
    assert scores == {"train": [1, 0, 2, 1], "dev": [1, 0, 2, 1], "test": [2, 0]}
    assert "snli: 1 of 3 rows of test have no class and are left out" in caplog.text


def test_a_score_out_of_the_tasks_range_is_refused(small_data, write_split):
    write_split(TASKS["sickr"], "test", [("A.", "B.", 0.5), ("C.", "D.", 3.0)])
    with pytest.raises(InputError, match=r"0\.5"):
        load("sickr", "test", data_folder=small_data)


@pytest.mark.parametrize(
    ("name", "role", "message"),
    [
        ("sts12", "train", "'sts12' has no train split; it has: test"),
        ("scidocs", "train", "task 'scidocs' has no train split; it has: dev, test"),
        ("sts", "test", r"'sts' is a suite of several tasks \(sts12, "),
        ("binary", "dev", "'binary' is a suite whose tasks each have a dev set of their own"),
    ],
)
def test_a_role_that_is_not_there_is_refused(name, role, message, small_data):
    with pytest.raises(InputError, match=message):
        load(name, role, data_folder=small_data)


REAL_ROWS = dict(zip(SUITES["sts"], (3108, 1500, 3750, 3000, 1186, 1379, 4906), strict=True))


@pytest.mark.parametrize("name", REAL_ROWS)
def test_real_test_sets_have_the_papers_rows(name, data_folder):
    pairs = load(name, "test", data_folder=data_folder)
    assert len(pairs) == REAL_ROWS[name]
    low, high = TASKS[name].score_range
    assert low <= min(pairs["score"]) < max(pairs["score"]) <= high


def test_the_real_dev_sets_have_the_papers_rows(data_folder):
    assert [len(load(name, "dev", data_folder=data_folder)) for name in ("sts", "sickr")] == [1500, 495]


@pytest.mark.parametrize(("name", "rows"), [("qqp", (8785, 985, 9999)), ("qnli", (9999, 1000, 4463))])
def test_the_real_binary_tasks(name, rows, data_folder):
    found = [load(name, role, data_folder=data_folder) for role in ("train", "dev", "test")]
    assert tuple(map(len, found)) == rows
    assert sum(found[2]["score"]) / rows[2] == pytest.approx(0.5, abs=0.02)


def as_tuples(pairs):
    return list(zip(pairs["sentence1"], pairs["sentence2"], strict=True))


def test_all_splits_are_taken_without_scores_and_each_pair_once(small_data):
    pairs, provenance = unlabelled_pairs(["stsb", "sickr"], data_folder=small_data)
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


def test_building_the_suite_from_the_hub_says_what_is_missing(small_data, caplog):
    with caplog.at_level(logging.WARNING, logger="transencoder"):
        pairs, provenance = unlabelled_pairs("sts", data_folder=small_data)
    assert len(pairs) == (5 + 3 + 3) * 3 + 1
    assert provenance["missing_rows"] == 5410 + 7948
    assert "34 unlabelled pairs" in caplog.text and "STS15 5410, STS16 7948" in caplog.text
    assert "not on the hub" in caplog.text


def test_the_local_set_is_taken_for_the_whole_suite_only(small_data, caplog):
    rows = [{"sentence1": a, "sentence2": b, "source": 0} for a, b in (("A.", "B."), ("A.", "B."), ("C.", "D."))]
    write_rows(small_data / "pairs" / "sts-sickr", "train", rows)
    whole, provenance = unlabelled_pairs(list(reversed(SUITES["sts"])), data_folder=small_data)
    assert as_tuples(whole) == [("A.", "B."), ("C.", "D.")]
    assert provenance["source"] == "pairs/sts-sickr" and provenance["missing_rows"] == 0
    assert "not on the hub" not in caplog.text
    _, provenance = unlabelled_pairs("sts13", data_folder=small_data)
    assert provenance["source"] == "mteb/sts13-sts (test)"


def test_no_test_sentence_is_left_in_the_inductive_setting(small_data):
    pairs, provenance = unlabelled_pairs("stsb", exclude_test_sentences=True, data_folder=small_data)
    splits = {first.split(" left")[0] for first, _ in as_tuples(pairs)}
    assert splits == {"stsb train", "stsb validation"}, "the shared pair is a test pair too and must go"
    assert provenance["excluded_rows"] == 4 and not provenance["transductive"]


def test_a_test_sentence_is_found_on_either_side_in_any_case_and_spacing(small_data, write_split):
    task = TASKS["stsb"]
    rows = [("New.", "STSB  test right 0", 1.0), ("stsb TEST left 1", "New.", 1.0), ("New.", "Newer.", 1.0)]
    write_split(task, "train", rows)
    write_split(task, "validation", [("Own.", "Ours.", 1.0)])
    pairs, _ = unlabelled_pairs(task, exclude_test_sentences=True, data_folder=small_data)
    assert as_tuples(pairs) == [("New.", "Newer."), ("Own.", "Ours.")]


def test_pairs_that_are_not_there_are_refused(small_data):
    with pytest.raises(InputError, match="askubuntu, scidocs: for evaluation only, no method trains on its pairs"):
        unlabelled_pairs(["stsb", "reranking"], data_folder=small_data)
    with pytest.raises(InputError, match="no unlabelled pair is left of sts12: all 4 hold a sentence of a test split"):
        unlabelled_pairs("sts12", exclude_test_sentences=True, data_folder=small_data)


def test_the_real_inductive_set_shares_no_sentence_with_a_test_set(data_folder):
    if not (data_folder / "pairs" / "sts-sickr").is_dir():
        pytest.skip(f"{data_folder} has no pairs/sts-sickr, the paper's training pairs")
    whole, provenance = unlabelled_pairs("sts", data_folder=data_folder)
    assert len(whole) == provenance["rows"] == 37_077
    assert provenance["transductive"] and not provenance["missing_rows"]
    pairs, provenance = unlabelled_pairs("sts", exclude_test_sentences=True, data_folder=data_folder)
    assert len(pairs) + provenance["excluded_rows"] == 37_077
    training = {*pairs["sentence1"], *pairs["sentence2"]}
    for name in SUITES["sts"]:
        test = load(name, "test", data_folder=data_folder)
        assert training.isdisjoint(test["sentence1"]) and training.isdisjoint(test["sentence2"])


def test_real_pairs_built_from_the_hubs_splits_lack_only_the_unscored(data_folder, tmp_path):
    """The numbers in `Task.unscored_pairs` are what the local set has more than the tasks' own splits."""
    hub_only = tmp_path / "data"
    for task in (TASKS[name] for name in SUITES["sts"]):
        link = hub_only / task.dataset
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(data_folder / task.dataset)
    pairs, provenance = unlabelled_pairs("sts", data_folder=hub_only)
    assert len(pairs) + provenance["missing_rows"] == 37_077
