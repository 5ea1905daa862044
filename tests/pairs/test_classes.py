"""Pairs with classes: by name or number, from every format; what is no class is named by its line."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, Value

from transencoder.errors import InputError
from transencoder.pairs import Source, read_classes

NLI = ("entailment", "neutral", "contradiction")
ROWS = [("a b", "a", "entailment"), ("a b", "c", "neutral"), ("a b", "not a", "contradiction"), ("b", "b c", "neutral")]


def classes_of(path, *, class_names=(), **options):
    return read_classes(Source(path, **options), class_names=class_names)


def tsv(rows, head="sentence1\tsentence2\tlabel"):
    return "\n".join([head, *("\t".join(map(str, row)) for row in rows)]) + "\n"


def numbered(rows):
    return [(first, second, NLI.index(name)) for first, second, name in rows]


def test_names_are_numbered_in_their_order(write):
    found = classes_of(write("a.tsv", tsv(ROWS)))
    assert found.names == tuple(sorted(NLI))
    assert found.classes.tolist() == [1, 2, 0, 2]
    assert found.pairs["sentence2"][:] == ["a", "c", "not a", "b c"]
    assert found.pairs.column_names == ["sentence1", "sentence2"]


def test_names_that_are_given_decide_and_numbers_stand_for_them(write):
    by_name = classes_of(write("a.tsv", tsv(ROWS)), class_names=NLI)
    by_number = classes_of(write("b.tsv", tsv(numbered(ROWS))), class_names=NLI)
    assert by_name.names == by_number.names == NLI
    assert by_name.classes.tolist() == by_number.classes.tolist() == [0, 1, 2, 1]


def test_numbers_are_ordered_by_value(write):
    rows = [("a", "b", value) for value in (10, 2, 1, 2)]
    found = classes_of(write("a.tsv", tsv(rows)))
    assert found.names == ("1", "2", "10")
    assert found.classes.tolist() == [2, 1, 0, 1]


def test_formats_agree(write):
    jsonl = "".join(
        json.dumps(dict(zip(("premise", "hypothesis", "gold_label"), row, strict=True))) + "\n" for row in ROWS
    )
    features = Features({"premise": Value("string"), "hypothesis": Value("string"), "label": ClassLabel(names=NLI)})
    columns = dict(zip(("premise", "hypothesis", "label"), zip(*numbered(ROWS), strict=True), strict=True))
    dataset = Dataset.from_dict({name: list(values) for name, values in columns.items()}, features=features)
    for source, options in ((write("a.jsonl", jsonl), {"class_names": NLI}), (dataset, {})):
        found = classes_of(source, **options)
        assert found.names == NLI
        np.testing.assert_array_equal(found.classes, [0, 1, 2, 1])


@pytest.mark.parametrize("mark", ["-1", "-", ""])
def test_rows_without_a_class_are_left_out_and_counted(mark, write, caplog):
    found = classes_of(write("a.tsv", tsv([*ROWS, ("x", "y", mark)])), class_names=NLI)
    assert (len(found.pairs), len(found.classes), found.n_without) == (4, 4, 1)
    assert "1 row without a class left out" in caplog.text


def test_null_is_no_class_either(write):
    rows = [*ROWS, ("x", "y", None)]
    jsonl = "".join(json.dumps(dict(zip(("text1", "text2", "label"), row, strict=True))) + "\n" for row in rows)
    assert classes_of(write("a.jsonl", jsonl)).n_without == 1


def test_a_class_must_be_a_text(write):
    """Was: a UnicodeEncodeError where the rows are stored."""
    row = '{"text1": "a", "text2": "b", "label": "\\ud83d"}\n'
    with pytest.raises(InputError, match=r"a\.jsonl:1: label has a lone surrogate"):
        classes_of(write("a.jsonl", row))


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (
            [*ROWS, ("a", "b", "other")],
            {"class_names": NLI},
            "a.tsv:6: label is 'other', which is no class.*entailment",
        ),
        ([*numbered(ROWS), ("a", "b", 3)], {"class_names": NLI}, "a.tsv:6: label is '3', which is no class.*0 to 2"),
        ([("a", "b", "yes"), ("c", "d", "yes")], {}, "a.tsv has 1 different classes, such as .*; 2 to 100"),
        ([("a", "b", -1)], {}, "a.tsv has 0 different classes"),
        ([("a", "b", i) for i in range(101)], {}, "has 101 different classes"),
        ([*ROWS, ("", "b", "neutral")], {}, "a.tsv:6: sentence1 is empty"),
        (ROWS, {"score_column": "nope"}, "no column 'nope'"),
    ],
)
def test_what_is_no_class_is_refused(rows, options, message, write):
    with pytest.raises(InputError, match=message):
        classes_of(write("a.tsv", tsv(rows)), **options)


def test_a_file_without_classes_is_refused(write):
    with pytest.raises(InputError, match="no column of classes is called label, labels or gold_label"):
        classes_of(write("a.tsv", "sentence1\tsentence2\na\tb\n"))


def test_a_value_of_another_type_is_refused(write):
    for value in (0.5, float("nan"), True, ["x"]):
        lines = json.dumps({"text1": "a", "text2": "b", "label": value}) + "\n"
        with pytest.raises(InputError, match="a.jsonl:1: label is .*, which is no class"):
            classes_of(write("a.jsonl", lines))


def test_bad_rows_can_be_left_out(write, tmp_path):
    path = write("a.tsv", tsv([*ROWS, ("a", "b", "other"), ROWS[0]]))
    found = classes_of(path, class_names=NLI, skip_bad_rows=True, bad_rows_file=tmp_path / "bad.tsv")
    assert len(found.pairs) == 4
    assert [line.split("\t")[0][-5:] for line in (tmp_path / "bad.tsv").read_text().splitlines()] == ["tsv:6", "tsv:7"]


@pytest.fixture
def with_names():
    """A data set that names its classes."""
    features = Features({"text1": Value("string"), "text2": Value("string"), "label": ClassLabel(names=NLI)})
    columns = {"text1": list("abc"), "text2": list("def"), "label": [0, 1, 2]}
    return Dataset.from_dict(columns, features=features)


def test_a_data_sets_own_names_say_what_its_numbers_mean(with_names):
    """Also where the classes are wanted in another order."""
    found = classes_of(with_names, class_names=NLI[::-1])
    assert [found.names[i] for i in found.classes] == list(NLI)
    with pytest.raises(InputError, match="label is 0, which is no class"):
        classes_of(with_names, class_names=("yes", "no", "perhaps"))


def test_a_parquet_file_keeps_its_data_sets_names(with_names, tmp_path):
    path = tmp_path / "nli.parquet"
    with_names.to_parquet(path)
    found = classes_of(path, class_names=NLI[::-1])
    assert [found.names[i] for i in found.classes] == list(NLI)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"huggingface": '{"info": {"features": {"label": 3}}}'}), path)
    assert classes_of(path).names == ("0", "1", "2")


def test_numbers_that_are_names_are_no_positions(write):
    with pytest.raises(InputError, match=r"a.tsv:2: label is '0', which is no class. .*Allowed are 1, 2, 3;"):
        classes_of(write("a.tsv", tsv([("a", "b", 0), ("c", "d", 1)])), class_names=("1", "2", "3"))


def test_snli_is_read_by_its_numbers(data_folder):
    found = classes_of("stanfordnlp/snli", split="train", class_names=NLI, data_folder=data_folder)
    assert (len(found.pairs), found.names) == (9999, NLI)
    assert np.bincount(found.classes).tolist() == [3327, 3322, 3350]
