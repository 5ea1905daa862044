import pytest

from transencoder.errors import InputError
from transencoder.methods.data import read_data


def test_gold_scores_never_reach_training(tiny_method, tiny_pairs, tiny_files):
    for source in (tiny_pairs, str(tiny_files / "dev.tsv")):
        data = read_data(tiny_method(pairs=source, dev=None), None)
        assert data.pairs.column_names == ["sentence1", "sentence2"]
        assert len(data.pairs) == data.record["rows"] == len(tiny_pairs if source is tiny_pairs else [0] * 40)
    assert (data.dev, data.tests, data.as_record()["dev"]) == (None, [], None)


def test_files_and_datasets_are_the_same_data(tiny_method, tiny_pairs, tiny_files):
    from_file = read_data(tiny_method(), None)
    rows = tiny_pairs.select(range(96))
    from_python = read_data(tiny_method(pairs=rows, dev=tiny_pairs.select(range(100, 140))), None)
    assert from_file.record["fingerprint"] == from_python.record["fingerprint"]
    assert from_file.record["source"] == str(tiny_files / "pairs.tsv")
    assert from_python.record["source"] == "a Dataset given in Python"
    assert from_file.dev.pairs["score"] == from_python.dev.pairs["score"]
    assert (from_file.dev.name, from_python.dev.name) == ("dev", "dev")


@pytest.mark.parametrize(("kind", "metric"), [("graded", "spearman"), ("binary", "roc_auc")])
def test_the_kind_of_task_picks_the_metric(tiny_method, kind, metric, tiny_files, tmp_path):
    test = tmp_path / "mine.v2.tsv"
    test.write_text((tiny_files / "test.tsv").read_text())
    data = read_data(tiny_method(task_kind=kind, tests=(str(test),)), None)
    assert data.dev.metric == data.tests[0].metric == metric
    assert data.tests[0].name == "mine"
    assert set(data.as_record()["tests"]) == {"mine"}


def test_a_dev_set_without_scores_is_refused(tiny_method, tiny_files):
    with pytest.raises(InputError, match="given as dev and has no column `score`; its columns are sentence1"):
        read_data(tiny_method(dev=str(tiny_files / "pairs.tsv")), None)


def test_the_inductive_setting_needs_tasks(tiny_method):
    with pytest.raises(InputError, match="exclude_test_sentences needs pairs to be a task or suite, not '"):
        read_data(tiny_method(exclude_test_sentences=True), None)


def test_bad_rows_are_set_aside_when_asked(tiny_method, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("sentence1\tsentence2\nbalo\tbama\nonly one\nbalo\tdima\n")
    with pytest.raises(InputError, match=r"pairs\.tsv:3"):
        read_data(tiny_method(pairs=str(path)), None)
    data = read_data(tiny_method(pairs=str(path), skip_bad_rows=True), tmp_path / "bad-rows.tsv")
    assert len(data.pairs) == 2
    assert "only one" in (tmp_path / "bad-rows.tsv").read_text()


def test_tasks_and_suites_by_name(tiny_method, data_folder):
    config = tiny_method(dev="stsb", tests=("sts12", "stsb"), data_dir=str(data_folder))
    data = read_data(config, None)
    assert (data.dev.name, len(data.dev.pairs)) == ("stsb", 1500)
    assert [(test.name, len(test.pairs)) for test in data.tests] == [("sts12", 3108), ("stsb", 1379)]
