import pytest

from tests.training.reading import read_data
from transencoder.errors import InputError
from transencoder.report.words import data_line


def test_gold_scores_never_reach_training(tiny_method, tiny_pairs, tiny_files):
    for source in (tiny_pairs, str(tiny_files / "dev.tsv")):
        data = read_data(tiny_method(pairs=source, dev=None))
        assert data.training.column_names == ["sentence1", "sentence2"]
        assert len(data.training) == data.record["rows"] == len(tiny_pairs if source is tiny_pairs else [0] * 40)
    assert (data.dev, data.tests, data.as_record()["dev"]) == (None, [], None)


def test_files_and_datasets_are_the_same_data(tiny_method, tiny_pairs, tiny_files):
    from_file = read_data(tiny_method())
    rows = tiny_pairs.select(range(96))
    from_python = read_data(tiny_method(pairs=rows, dev=tiny_pairs.select(range(100, 140))))
    assert from_file.record["fingerprint"] == from_python.record["fingerprint"]
    assert from_file.record["source"] == str(tiny_files / "pairs.tsv")
    assert from_python.record["source"] == "rows given in Python"
    assert from_file.dev.pairs["score"] == from_python.dev.pairs["score"]
    assert (from_file.dev.name, from_python.dev.name) == ("dev", "dev")


@pytest.mark.parametrize(("kind", "metric"), [("graded", "spearman"), ("binary", "roc_auc")])
def test_the_kind_of_task_picks_the_metric(tiny_method, kind, metric, tmp_path):
    test = tmp_path / "mine.v2.tsv"
    test.write_text("sentence1\tsentence2\tscore\nbalo\tbama\t1\nbalo\tdima\t0\n")
    data = read_data(tiny_method(task_kind=kind, dev=str(test), tests=(str(test),)))
    assert data.dev.metric == data.tests[0].metric == metric
    assert data.tests[0].name == "mine"
    assert set(data.as_record()["tests"]) == {"mine"}


def test_a_dev_set_without_scores_is_refused(tiny_method, tiny_files):
    with pytest.raises(
        InputError, match=r"^dev: .* no column of gold scores among 'sentence1', 'sentence2'\. Call it score"
    ):
        read_data(tiny_method(dev=str(tiny_files / "pairs.tsv")))


def test_graded_gold_is_no_binary_gold(tiny_method):
    with pytest.raises(InputError, match="gold labels 0 and 1"):
        read_data(tiny_method(task_kind="binary"))


@pytest.mark.parametrize("rows", ["", "balo\tbama\t3\nbalo\tdima\t3\n"])
@pytest.mark.parametrize("role", ["dev", "tests"])
def test_gold_that_nothing_can_be_measured_against_is_refused_before_training(role, rows, tiny_method, tmp_path):
    path = tmp_path / "gold.tsv"
    path.write_text(f"sentence1\tsentence2\tscore\n{rows}")
    with pytest.raises(InputError, match=r"gold\.tsv.*(Give pairs of different scores|no rows|empty)"):
        read_data(tiny_method(**{role: str(path) if role == "dev" else (str(path),)}))


def test_two_tests_of_one_name_are_refused(tiny_method, tiny_files, tmp_path):
    other = tmp_path / "test.v2.tsv"
    other.write_text((tiny_files / "test.tsv").read_text())
    with pytest.raises(InputError, match=r"two test sets are called test: .*test\.tsv and .*test\.v2\.tsv"):
        read_data(tiny_method(tests=(str(tiny_files / "test.tsv"), str(other))))


def test_pairs_that_hold_test_sentences_are_reported_and_can_be_left_out(tiny_method, tmp_path):
    pairs, test = tmp_path / "pairs.tsv", tmp_path / "test.tsv"
    pairs.write_text("sentence1\tsentence2\nbalo\tbama\nkama\tdima\nlelo\tBALO\n")
    test.write_text("sentence1\tsentence2\tscore\nbalo\tfema\t1\nfemo\tgelo\t0\n")
    config = {"pairs": str(pairs), "tests": (str(test),)}
    record = read_data(tiny_method(**config)).record
    assert (record["rows"], record["transductive"], record["transductive_rows"]) == (3, True, 2)
    apart = read_data(tiny_method(**config, exclude_test_sentences=True))
    assert apart.training["sentence1"][:] == ["kama"]
    assert (apart.record["rows"], apart.record["excluded_rows"], apart.record["transductive"]) == (1, 2, False)
    assert read_data(tiny_method(**config, exclude_test_sentences=False, dev=None)).record["rows"] == 3


def test_the_inductive_setting_needs_tests_and_leaves_some_pairs(tiny_method, tiny_files):
    with pytest.raises(InputError, match="needs to know the tests"):
        read_data(tiny_method(exclude_test_sentences=True))
    test = str(tiny_files / "test.tsv")
    with pytest.raises(InputError, match="every row of .* holds a sentence of a test set"):
        read_data(tiny_method(pairs=test, tests=(test,), exclude_test_sentences=True))


def test_bad_rows_are_set_aside_when_asked(tiny_method, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("sentence1\tsentence2\nbalo\tbama\nonly one\nbalo\tdima\n")
    with pytest.raises(InputError, match=r"pairs\.tsv:3"):
        read_data(tiny_method(pairs=str(path)))
    data = read_data(tiny_method(pairs=str(path), skip_bad_rows=True), tmp_path)
    assert len(data.training) == 2
    assert "only one" in (tmp_path / "bad-rows.tsv").read_text()
    assert data.record["bad_rows"] == 1
    path.write_text("sentence1\tsentence2\nbalo\tbama\n")
    assert "bad_rows" not in read_data(tiny_method(pairs=str(path)), tmp_path).record


def test_tasks_and_suites_by_name(tiny_method, data_folder):
    config = tiny_method(dev="stsb", tests=("sts12", "stsb"), data_dir=str(data_folder))
    data = read_data(config)
    assert (data.dev.name, len(data.dev.pairs)) == ("stsb", 1500)
    assert [(test.name, len(test.pairs)) for test in data.tests] == [("sts12", 3108), ("stsb", 1379)]


def test_a_task_of_one_order_is_not_trained_on_both(tiny_method):
    with pytest.raises(InputError, match="qnli: .* is_symmetric is true; set it false"):
        read_data(tiny_method(pairs="qnli", task_kind="binary", is_symmetric=True, dev=None))


def test_so_many_pairs_are_drawn_with_the_seed_and_extra_ones_follow(tiny_method, tiny_pairs, tmp_path):
    extra = tmp_path / "extra.tsv"
    extra.write_text("sentence1\tsentence2\n" + "".join(f"extra {i}\tdima {i}\n" for i in range(9)))
    config = {"pairs": tiny_pairs.select(range(96)), "extra_pairs": str(extra), "n_pairs": 40, "n_extra_pairs": 5}
    first, again, other = (read_data(tiny_method(**config, seed=seed, dev=None)) for seed in (1, 1, 2))
    assert first.record["fingerprint"] == again.record["fingerprint"] != other.record["fingerprint"]
    drawn = first.training["sentence1"][:]
    assert [text.startswith("extra ") for text in drawn] == [False] * 40 + [True] * 5
    assert (first.record["rows"], first.record["drawn_from"]) == (45, 96)
    assert [first.record["extra"][name] for name in ("rows", "drawn_from", "source")] == [5, 9, str(extra)]
    shown = data_line(first.record)
    assert "40 rows drawn from the 96 of" in shown and "and 5 rows drawn from the 9 of" in shown
    with pytest.raises(InputError, match="n_extra_pairs is 10, but .*extra.tsv has 9; give at most that"):
        read_data(tiny_method(**config | {"n_extra_pairs": 10}))
    with pytest.raises(InputError, match="n_extra_pairs needs extra_pairs"):
        tiny_method(n_extra_pairs=1)


def test_extra_pairs_too_are_kept_apart_from_the_tests(tiny_method, tmp_path):
    for name, rows in (("pairs", "balo\tbama\nkama\tdima\n"), ("extra", "femo\tgama\nlelo\tlemo\n")):
        (tmp_path / f"{name}.tsv").write_text(f"sentence1\tsentence2\n{rows}")
    (tmp_path / "test.tsv").write_text("sentence1\tsentence2\tscore\nbalo\tfema\t1\nfemo\tgelo\t0\n")
    config = {f: str(tmp_path / f"{n}.tsv") for f, n in (("pairs", "pairs"), ("extra_pairs", "extra"))}
    apart = read_data(tiny_method(**config, tests=(str(tmp_path / "test.tsv"),), exclude_test_sentences=True), None)
    assert apart.training["sentence1"][:] == ["kama", "lelo"]
    assert (apart.record["excluded_rows"], apart.record["transductive"]) == (2, False)
    with_them = read_data(tiny_method(**config, tests=(str(tmp_path / "test.tsv"),)))
    assert (with_them.record["rows"], with_them.record["transductive_rows"]) == (4, 2)


def test_a_tasks_pairs_may_be_the_extra_ones(tiny_method, tmp_path):
    folder = tmp_path / "data" / "stanfordnlp" / "snli"
    folder.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        (folder / f"{split}.jsonl").write_text(f'{{"premise": "{split} a", "hypothesis": "b", "label": -1}}\n')
    data = read_data(tiny_method(extra_pairs="snli", data_dir=str(tmp_path / "data")))
    assert data.training["sentence1"][-3:] == ["train a", "validation a", "test a"]
    assert (data.record["extra"]["rows"], data.record["extra"]["source"]) == (3, "snli")


def test_bad_rows_of_the_extra_pairs_are_set_aside_too(tiny_method, tiny_files, tmp_path):
    extra = tmp_path / "extra.tsv"
    extra.write_text("sentence1\tsentence2\nkama\tdima\nalone\nlelo\tlemo\n")
    config = tiny_method(extra_pairs=str(extra), skip_bad_rows=True)
    data = read_data(config, tmp_path)
    assert (data.record["extra"]["rows"], data.record["bad_rows"]) == (2, 1)
    assert "alone" in (tmp_path / "bad-extra-rows.tsv").read_text()


def test_tests_that_are_not_scored_still_keep_training_apart(tiny_method, tmp_path):
    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\nbalo\tbama\nkama\tdima\n")
    (tmp_path / "test.tsv").write_text("sentence1\tsentence2\tscore\nbalo\tfema\t1\nfemo\tgelo\t0\n")
    config = {"pairs": str(tmp_path / "pairs.tsv"), "tests": (str(tmp_path / "test.tsv"),), "score_tests": False}
    data = read_data(tiny_method(**config, exclude_test_sentences=True))
    assert (data.training["sentence1"][:], data.tests) == (["kama"], [])
