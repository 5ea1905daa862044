"""Queries with lists of candidates become pairs; what is not such a row is named by its line."""

import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from transencoder.errors import InputError
from transencoder.pairs import Source, fingerprint, read_candidates

ROWS = [
    {"query": "how to zip", "positive": ["make a zip", "zip it"], "negative": ["kernel panic"]},
    {"query": "no answer", "positive": [], "negative": ["kernel panic"]},
    {"query": "how to zip", "positive": ["compress"], "negative": ["no sound", "no wifi"]},
    {"query": "only answers", "positive": ["yes"], "negative": []},
]
PAIRS = [
    ("how to zip", "make a zip", 1.0, 0),
    ("how to zip", "zip it", 1.0, 0),
    ("how to zip", "kernel panic", 0.0, 0),
    ("how to zip", "compress", 1.0, 2),
    ("how to zip", "no sound", 0.0, 2),
    ("how to zip", "no wifi", 0.0, 2),
]


def candidates_of(path, **options):
    return read_candidates(Source(path, **options))


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def tuples(pairs):
    return [(row["sentence1"], row["sentence2"], row["score"], row["query"]) for row in pairs]


def test_each_candidate_is_a_pair_and_rows_of_one_query_text_stay_apart(write, caplog):
    with caplog.at_level(logging.INFO, logger="transencoder"):
        pairs = candidates_of(write("test.jsonl.gz", lines(ROWS)))
    assert tuples(pairs) == PAIRS
    types = {name: str(feature.dtype) for name, feature in pairs.features.items()}
    assert types == {"sentence1": "string", "sentence2": "string", "score": "float64", "query": "int64"}
    assert "2 of 4 queries are left out" in caplog.text


def test_files_folders_and_datasets_are_the_same_pairs(write, tmp_path):
    write("data/some/set/test.jsonl.gz", lines(ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    found = [
        candidates_of("some/set", split="test", data_folder=tmp_path / "data"),
        candidates_of(tmp_path / "rows.parquet"),
        candidates_of(Dataset.from_list(ROWS)),
    ]
    assert [tuples(pairs) for pairs in found] == [PAIRS] * 3
    assert len({fingerprint(pairs) for pairs in found}) == 1


def test_columns_can_have_other_names_and_a_split_a_slice(write):
    rows = [{"q": row["query"], "pos": row["positive"], "neg": row["negative"], "id": 1} for row in ROWS]
    write("set/dev.jsonl.gz", lines(rows))
    pairs = candidates_of(
        str(write("set/test.jsonl.gz", lines(rows)).parent), split="test[2:4]", columns=("q", "pos", "neg")
    )
    assert tuples(pairs) == [(*row[:3], 0) for row in PAIRS[3:]]


def test_a_candidate_that_is_there_twice_is_kept_and_counted(write, caplog):
    path = write("test.jsonl", lines([ROWS[0], ROWS[2] | {"negative": ["no sound", "no sound", "compress"]}]))
    with caplog.at_level(logging.WARNING, logger="transencoder"):
        pairs = candidates_of(path)
    assert pairs["sentence2"][3:] == ["compress", "no sound", "no sound", "compress"]
    assert "1 duplicate row; the first:" in caplog.text and "test.jsonl:2 is the same as" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positive": ["zip it", ""]}, r"positive\[1\] is empty"),
        ({"negative": ["  "]}, r"negative\[0\] is only white space"),
        ({"negative": [None]}, r"negative\[0\] is null"),
        ({"negative": ["a", 3]}, r"negative\[1\] is 3, of type int.*must be a text"),
        ({"positive": "zip it"}, r"positive is 'zip it', of type str.*must be a list of texts"),
        ({"negative": None}, r"negative is None, of type NoneType.*must be a list of texts"),
        ({"query": ""}, r"query is empty"),
        ({"query": ["how", "to"]}, r"query is \['how', 'to'\], of type list"),
    ],
)
def test_what_is_no_such_row_is_named_by_its_line(change, message, write):
    path = write("test.jsonl", lines([ROWS[0], ROWS[2] | change]))
    with pytest.raises(InputError, match=rf"test\.jsonl:2: {message}") as error:
        candidates_of(path)
    assert "skip" not in str(error.value), "there is no such option for tasks"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test.jsonl", lines([ROWS[0]]) + "{\n", r"test\.jsonl:2: not valid JSON"),
        ("short.jsonl", lines([{"query": "a", "positive": ["b"]}]), r"no column 'negative'.*'query', 'positive'"),
        ("empty.jsonl", lines([ROWS[1], ROWS[3]]), "of 2 rows none has both positive and negative"),
        ("none.jsonl", "", "the file is empty"),
        (
            *("table.tsv", "query\tpositive\tnegative\nhow to zip\tzip it\tno sound\n"),
            r"table\.tsv:2: positive is 'zip it', of type str",
        ),
    ],
)
def test_other_faults_of_a_file_are_named(name, content, message, write):
    with pytest.raises(InputError, match=message):
        candidates_of(write(name, content))
