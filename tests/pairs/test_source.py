"""Files, folders, the hub and data sets lead to the same rows."""

import gzip
import io
import json
import logging
import os
from pathlib import Path
from unittest import mock

import datasets
import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict

from transencoder.errors import InputError, RunError
from transencoder.pairs import fingerprint, read_pairs, read_sentences

ROWS = [
    {"sentence1": "nan", "sentence2": "NA", "score": 0.0},
    {"sentence1": "None", "sentence2": "null", "score": 5.0},
    {"sentence1": " kept as it is ", "sentence2": 'a "quoted" word, a comma', "score": 2.5},
    {"sentence1": "Zürich 🙂", "sentence2": "\u2028 no row end here \x85 nor here", "score": 1 / 3},
    {"sentence1": "1", "sentence2": "2.0", "score": -0.0},
]


def text_of(rows, file_format):
    if file_format == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows)
    names = list(rows[0])
    if file_format == "tsv":
        return "\t".join(names) + "\n" + "".join("\t".join(map(str, row.values())) + "\n" for row in rows)
    quoted = [",".join('"' + str(value).replace('"', '""') + '"' for value in row.values()) for row in rows]
    return "\r\n".join([",".join(names), *quoted])


@pytest.fixture
def write_format(write, tmp_path):
    def write_rows(rows, name):
        file_format = name.split(".")[1]
        if file_format != "parquet":
            return write(name, text_of(rows, file_format))
        Dataset.from_list(rows).to_parquet(tmp_path / "plain.parquet")
        return write(name, (tmp_path / "plain.parquet").read_bytes())

    return write_rows


FORMATS = [f"f.{name}{gz}" for name in ("tsv", "csv", "jsonl", "parquet") for gz in ("", ".gz")]


@pytest.fixture
def stdin(monkeypatch):
    """Put bytes into stdin."""
    return lambda data: monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_rows_in_a_memory_mapped_file_named_by_its_content(name, write_format, stdin):
    path = write_format(ROWS, name)
    dataset = read_pairs(path, score_range=(0, 5))
    assert dataset.to_list() == ROWS
    assert fingerprint(dataset) == fingerprint(Dataset.from_list(ROWS))
    assert str(dataset.features["score"].dtype) == "float64"
    (file,) = [Path(file["filename"]) for file in dataset.cache_files]
    assert file == Path(os.environ["TRANSENCODER_CACHE"]) / "rows" / f"{fingerprint(dataset)}.arrow"
    assert list(file.parent.iterdir()) == [file]
    stdin(path.read_bytes())
    assert read_pairs("-", file_format=name.removeprefix("f.")).to_list() == ROWS


def test_stdin_is_tsv_if_not_stated(stdin):
    stdin(b"a\tb\n")
    assert read_pairs("-").to_list() == [{"sentence1": "a", "sentence2": "b"}]
    stdin(b"")
    with pytest.raises(InputError, match="<stdin>: the file is empty"):
        read_pairs("-")


def test_long_texts_are_written_in_small_batches(write):
    long = "x" * 1_000_000
    dataset = read_pairs(write("f.tsv", "".join(f"{row} {long}\t{row}\n" for row in range(20))))
    assert len(dataset.data.to_batches()) == 4


@pytest.mark.parametrize(
    ("name", "content", "options", "first"),
    [
        ("pairs.txt", "a,b\n", {"file_format": "csv"}, ["a", "b"]),
        ("f.tsv", b"\xef\xbb\xbfa\tb\n", {}, ["a", "b"]),
        ("f.csv", b"\xef\xbb\xbfsentence1,sentence2\nc,d\n", {}, ["c", "d"]),
        ("f.tsv", '"a\t"b"\n', {}, ['"a', '"b"']),
        ("f.jsonl", '{"score": 1, "premise": "a", "hypothesis": "b"}\n', {}, ["a", "b", 1.0]),
        ("f.tsv", "a\tb\t4.5\n", {}, ["a", "b"]),
        ("f.tsv", "a\tb\t4.5\n", {"score_column": "3"}, ["a", "b", 4.5]),
    ],
)
def test_a_stated_format_byte_order_marks_quotes_and_scores(name, content, options, first, write):
    assert list(read_pairs(write(name, content), **options)[0].values()) == first


# first rows of a TSV, options, is it a header, rows read
HEADERS = {
    "unknown names above texts": ("topic\tanswer", {}, True, ["a", "b"]),
    "known names": ("sentence1\tsentence2", {}, True, ["a", "b"]),
    "in another case": ("Sentence_a\tSENTENCE_B", {}, True, ["a", "b"]),
    "after other columns": ("id\tgenre\tquestion2\tquestion1", {}, True, ["d", "c"]),
    "not a header": ("How?\tWhy?", {}, False, ["How?", "Why?"]),
    "words of a text": ("reset it\tpress", {}, False, ["reset it", "press"]),
    "stated as none": ("sentence1\tsentence2", {"header": False}, False, ["sentence1", "sentence2"]),
    "stated": ("mine\tyours", {"header": True}, True, ["a", "b"]),
    "stated, in part known": ("note\tpremise\thypothesis", {"header": True}, True, ["b", "c"]),
    "columns by name": ("mine\tyours\tours", {"columns": ["ours", "mine"]}, True, ["c", "a"]),
    "columns by position": ("x\ty\tz", {"columns": ["3", "1"]}, False, ["z", "x"]),
    "score by name": ("sentence1\tsentence2\tgold", {"score_column": "gold"}, True, ["a", "b", 3.0]),
}


def test_without_known_names_the_only_texts_are_read(write, tmp_path, caplog):
    caplog.set_level("INFO")
    rows = read_pairs(write("f.jsonl", '{"day": 7, "title": "b", "body of it": "c"}\n'))
    assert rows[0] == {"sentence1": "b", "sentence2": "c"}
    assert "sentence1, sentence2 read from 'title', 'body of it'; not used: 'day'" in caplog.text
    with pytest.raises(InputError, match="f.jsonl:1: which 2 of the columns 'id', 'title', 'answer' have the texts"):
        read_pairs(write("f.jsonl", '{"id": "q1", "title": "a", "answer": "b"}\n'))
    Dataset.from_dict({"doc": ["d1"], "abstract": ["a text"]}).to_parquet(tmp_path / "f.parquet")
    with pytest.raises(InputError, match="f.parquet: which of the columns 'doc', 'abstract' has the texts"):
        read_sentences(tmp_path / "f.parquet")
    assert read_pairs(Dataset.from_dict({"x": ["a"], "y": ["b"]}))[0] == {"sentence1": "a", "sentence2": "b"}
    for columns in ({"x": [1], "y": ["b"]}, {"x": ["a"], "y": ["b"], "z": ["c"]}):
        with pytest.raises(InputError, match="which 2 of the columns 'x', 'y'.* have the texts"):
            read_pairs(Dataset.from_dict(columns))
    with pytest.raises(InputError, match="1: x is 1, of type int"):
        read_pairs(Dataset.from_dict({"x": [1], "y": ["b"]}), columns=["x", "y"])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Ticket", "it broke again"),
        ("id,Description,date", "17,it broke again,2024-01-31"),
        ("Number,Ticket Text,body", "17,x,it broke again"),
    ],
)
def test_a_header_is_unlike_the_rows_below_it(first, second, write):
    found = read_sentences(write("f.csv", f"{first}\n{second}\n{second}2\n"))
    assert found["text"][0] == "it broke again" and len(found) == 2


@pytest.mark.parametrize("case", HEADERS)
def test_header_and_columns(case, write, caplog):
    caplog.set_level(logging.DEBUG)
    first, options, is_header, expected = HEADERS[case]
    second = "\t".join("abcd"[: first.count("\t") + 1]) if "score_column" not in options else "a\tb\t3"
    dataset = read_pairs(write("f.tsv", f"{first}\n{second}\n"), **options)
    assert list(dataset[0].values()) == expected
    assert len(dataset) == (1 if is_header else 2)
    assert "read from" in caplog.text
    if not options:
        assert ("the first row is taken as a header" in caplog.text) == is_header
        assert not [each for each in caplog.records if "as a header" in each.message and each.levelno > logging.DEBUG]


def test_dataset_is_used_where_it_is(tmp_path):
    dataset = Dataset.from_list(ROWS)
    assert read_pairs(dataset).data.table.column(0).chunk(0).buffers()[2].address == (
        dataset.data.table.column(0).chunk(0).buffers()[2].address
    )
    swapped = read_pairs(dataset, columns=["sentence2", "sentence1"])
    assert swapped["sentence1"][:] == [row["sentence2"] for row in ROWS]


def test_a_format_of_a_dataset_is_put_aside_and_a_transform_refused():
    rows = Dataset.from_dict({"sentence1": ["a"], "sentence2": ["b"]})
    for held in (rows.with_format("arrow"), rows.with_format("numpy", columns=["sentence1"])):
        assert read_pairs(held)[0] == {"sentence1": "a", "sentence2": "b"}
    with pytest.raises(InputError, match="it has a transform"):
        read_pairs(rows.with_transform(lambda batch: batch))


def test_an_exact_name_wins_and_spaces_around_names_do_not_count(write):
    path = write("f.jsonl", '{"Score": 7, "Sentence1": "A", "sentence1": "a", "sentence2": "b", "score": 1}\n')
    assert read_pairs(path)[0] == {"sentence1": "a", "sentence2": "b", "score": 1.0}
    path = write("f.csv", "sentence1, sentence2, score\na,b,3\n")
    assert read_pairs(path)[0] == {"sentence1": "a", "sentence2": "b", "score": 3.0}


def test_a_long_field_of_a_csv_is_read(write):
    assert read_pairs(write("f.csv", f"sentence1,sentence2\n{'c' * 140_000},d\n"))[0]["sentence2"] == "d"


def test_dataset_is_checked_and_numbers_become_scores():
    labelled = Dataset.from_list([{"premise": "a", "hypothesis": "b", "label": 2}])
    scored = read_pairs(labelled, score_column="label")
    assert scored.to_list() == [{"sentence1": "a", "sentence2": "b", "score": 2.0}]
    assert scored.features["score"].dtype == "float64"
    for bad, message in (
        (
            Dataset.from_dict({"sentence1": ["a", "c"], "sentence2": ["b", None]}),
            r"<dataset>:2: sentence2 is null. Read",
        ),
        (Dataset.from_dict({"x": ["a"]}), "<dataset>: no columns for sentence1 and sentence2 among 'x'"),
        (DatasetDict({"train": labelled, "test": labelled}), "a DatasetDict with the splits train, test; give one"),
    ):
        with pytest.raises(InputError, match=message):
            read_pairs(bad)
    with pytest.raises(InputError, match="split 'test' is stated, but the source is a Dataset"):
        read_pairs(labelled, split="test")


def test_dataset_with_skipping_drops_bad_rows_and_duplicates():
    dataset = Dataset.from_dict({"sentence1": ["a", "a", " ", "c"], "sentence2": ["b", "b", "b", "d"]}).select(
        [3, 0, 1, 2]
    )
    assert read_pairs(dataset, skip_bad_rows=True)["sentence1"][:] == ["c", "a"]


@pytest.fixture
def local(write, tmp_path):
    """A folder of data sets."""
    write("data/org/name/train.jsonl.gz", text_of(ROWS, "jsonl"))
    write("data/org/name/test.jsonl.gz", text_of(ROWS[:2], "jsonl"))
    write("data/org/glue/qnli/dev.tsv", "question\tsentence\nx\ty\n")
    return tmp_path / "data"


def test_data_folder(local, monkeypatch):
    assert len(read_pairs("org/name", split="test", data_folder=local)) == 2
    monkeypatch.setenv("TRANSENCODER_DATA", str(local))
    assert read_pairs("org/name", split="train[1:3]").to_list() == ROWS[1:3]
    assert read_pairs("org/glue:qnli@refs/pr/1", split="dev")[0] == {"sentence1": "x", "sentence2": "y"}
    assert read_pairs("org/glue", config="qnli")[0] == {"sentence1": "x", "sentence2": "y"}
    assert read_pairs("org/glue/qnli", split="dev", revision="abc")[0] == {"sentence1": "x", "sentence2": "y"}
    assert read_pairs(local / "org" / "name", split="test").to_list() == ROWS[:2]


def test_a_path_wins_over_the_data_folder(local, write, tmp_path, monkeypatch):
    write("here/org/name/train.tsv", "from\there too\n")
    monkeypatch.chdir(tmp_path / "here")
    assert read_pairs("org/name", data_folder=local)[0] == {"sentence1": "from", "sentence2": "here too"}


def test_data_folder_errors(local, caplog):
    for source, options, message in (
        ("org/name", {"split": "dev"}, "no file for split dev.*its splits are test, train"),
        ("org/name", {}, "no split is stated.*its splits are test, train"),
        ("org/glue", {"split": "dev"}, "stated as config, are qnli"),
        ("org/name", {"split": "test[:10%]"}, r"split 'test\[:10%\]' is not understood"),
        ("org/name", {"split": "test[9:]"}, "no rows"),
    ):
        with pytest.raises(InputError, match=message):
            read_pairs(source, **options, data_folder=local)
    with pytest.raises(InputError, match="the data folder .*none, stated by data_folder .* is not a folder"):
        read_pairs("org/name", data_folder=local / "none")
    assert len(read_pairs("org/name", split="test[:9]", data_folder=local)) == 2
    assert "[0:9] asks for more rows than there are: 2 read" in caplog.text


def test_missing_hub_id_names_it_and_says_what_was_tried(monkeypatch, tmp_path):
    def load_dataset(*arguments, **options):
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(InputError) as error:
        read_pairs("org/none", split="test", revision="abc", data_folder=tmp_path)
    for part in (
        "org/none (split test, revision abc) could not be loaded",
        f"the data folder {tmp_path}",
        'ConnectionError: "Couldn\'t reach the hub"',
        "state a local file, or a data folder that holds org/none/test.jsonl.gz",
    ):
        assert part in str(error.value)


def test_hub_id_is_asked_for_as_stated(monkeypatch, tmp_path, caplog):
    asked = []

    def load_dataset(*arguments, **options):
        asked.append((arguments, options))
        dataset = Dataset.from_list(ROWS)
        return dataset if options["split"] else DatasetDict({"train": dataset, "test": dataset})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    read = read_pairs("org/x", config="c", split="test[:2]", revision="r", token="t", cache_folder=tmp_path)
    assert read.to_list() == ROWS[:2]
    options = {"split": "test", "revision": "r", "token": "t", "cache_dir": str(tmp_path / "hub")}
    assert asked == [(("org/x", "c"), options)]
    for source, stated in (("org/x:c@r", {}), ("org/x:c", {"revision": "r"}), ("org/x@r", {"config": "c"})):
        read_pairs(source, split="test[:2]", token="t", cache_folder=tmp_path, **stated)
    assert asked == [(("org/x", "c"), options)] * 4
    with pytest.raises(InputError, match="its config is c, and config d is stated too"):
        read_pairs("org/x:c", config="d")
    with pytest.raises(InputError, match="org/x has the splits train, test and none is stated"):
        read_pairs("org/x")
    with pytest.raises(InputError, match="org/x/test:1: sentence1 is 1, of type int"):
        bad = Dataset.from_dict({"sentence1": [1], "sentence2": ["b"]})
        monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: bad)
        read_pairs("org/x", split="test")


def test_sentences_from_every_source(write, write_format, stdin):
    expected = [{"text": "one, two"}, {"text": "text"}, {"text": "drei"}]
    files = {
        "f.txt": "one, two\r\ntext\r\ndrei",
        "f.tsv": "text\none, two\ntext\ndrei\n",
        "f.csv": 'id,text\n1,"one, two"\n2,text\n3,drei\n',
        "f.jsonl": "".join(json.dumps(row) + "\n" for row in expected),
        "f.txt.gz": "one, two\ntext\ndrei\n",
    }
    for name, content in files.items():
        assert read_sentences(write(name, content)).to_list() == expected, name
    assert read_sentences(write_format(expected, "f.parquet")).to_list() == expected
    assert read_sentences(Dataset.from_list(expected).rename_column("text", "x"), column="x").to_list() == expected
    stdin(files["f.txt"].encode())
    assert read_sentences("-", file_format="txt").to_list() == expected


def test_sentences_skip_and_duplicates(write, tmp_path):
    path = write("f.txt", "a\n\nb\na\n")
    read = read_sentences(path, skip_bad_rows=True, bad_rows_file=tmp_path / "bad.tsv")
    assert read["text"][:] == ["a", "b"]
    assert len((tmp_path / "bad.tsv").read_text().splitlines()) == 2


def test_cache_folder_that_cannot_be_written(write, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="TRANSENCODER_CACHE"):
        read_pairs(write("f.tsv", "a\tb\n"), cache_folder=tmp_path / "file")


def test_full_disk_is_an_error_and_leaves_nothing(write, tmp_path, monkeypatch):
    writer = mock.MagicMock()
    writer.return_value.__enter__.return_value.write_batch.side_effect = OSError(28, "No space left on device")
    monkeypatch.setattr(pa.ipc, "new_stream", writer)
    with pytest.raises(RunError, match="rows.arrow cannot be written: No space left on device"):
        read_pairs(write("f.tsv", "a\tb\n"), cache_folder=tmp_path / "cache")
    assert list((tmp_path / "cache" / "rows").iterdir()) == []


def test_real_pairs(data_folder, caplog):
    dataset = read_pairs("pairs/sts-sickr", data_folder=data_folder)
    assert len(dataset) == 37_077
    assert dataset.column_names == ["sentence1", "sentence2"]
    assert "duplicate" not in caplog.text
    with gzip.open(data_folder / "pairs" / "sts-sickr" / "train.jsonl.gz", "rt") as file:
        plain = [json.loads(line) for line in file]
    assert fingerprint(dataset) == fingerprint(Dataset.from_list(plain).select_columns(["sentence1", "sentence2"]))
