"""Several files are one source: patterns, folders of parts, URLs; nothing of them is lost, and places keep their file."""

import gzip
import json
import logging

import fsspec
import pandas as pd
import pyarrow as pa
import pytest

from transencoder import read_pairs, read_sentences
from transencoder.errors import InputError
from transencoder.in_memory import check_file
from transencoder.pairs import Source, read_classes

FIRST, SECOND = [("a one", "b one"), ("a two", "b two")], [("a three", "b three")]


def content(rows, kind):
    frame = pd.DataFrame(rows, columns=["sentence1", "sentence2"])
    if kind == "parquet":
        return frame.to_parquet()
    if kind == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in frame.to_dict("records")).encode()
    return frame.to_csv(sep="\t" if kind == "tsv" else ",", index=False).encode()


def zst(data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(data)
    return sink.getvalue().to_pybytes()


PACKED = {"": bytes, "gz": gzip.compress, "zst": zst}


def rows_of(pairs):
    return list(zip(pairs["sentence1"][:], pairs["sentence2"][:], strict=True))


@pytest.fixture
def parts(tmp_path):
    """Writes two files of a kind under names."""

    def write(kind="tsv", packed="", names=("x/one", "x/two"), second=SECOND):
        ending = ".".join(filter(None, (kind, packed)))
        for name, rows in zip(names, (FIRST, second), strict=True):
            path = tmp_path / f"{name}.{ending}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(PACKED[packed](content(rows, kind)))
        return ending

    return write


@pytest.mark.parametrize("packed", ["", "gz", "zst"])
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet"])
def test_a_pattern_is_all_its_files_in_the_order_of_their_names(kind, packed, parts, tmp_path):
    ending = parts(kind, packed)
    assert rows_of(read_pairs(f"{tmp_path}/x/*.{ending}")) == FIRST + SECOND
    assert rows_of(read_pairs(f"{tmp_path}/**/t*.{ending}")) == SECOND
    check_file(f"{tmp_path}/x/*.{ending}")


@pytest.mark.parametrize(
    "names",
    [
        ("x/train-00000-of-00002", "x/train-00001-of-00002"),
        ("x/part-00000-4f2a-c000.snappy", "x/part-00001-4f2a-c000.snappy"),
        ("x/part.0", "x/part.1"),
    ],
)
def test_a_folder_of_parts_is_one_split(names, parts, tmp_path):
    parts("parquet", names=names)
    assert rows_of(read_pairs(tmp_path / "x")) == FIRST + SECOND
    assert rows_of(read_pairs(tmp_path / "x", split="part[1:]" if "part" in names[0] else "train[1:]")) == (
        FIRST[1:] + SECOND
    )


@pytest.fixture
def memory(parts, tmp_path):
    """Puts two files into fsspec's file system in memory."""

    def put(*options, **named):
        ending = parts(*options, **named)
        fsspec.filesystem("memory").put(str(tmp_path / "x"), "/there", recursive=True)
        return ending

    yield put
    fsspec.filesystem("memory").rm("/there", recursive=True)


@pytest.mark.parametrize("packed", ["", "zst"])
@pytest.mark.parametrize("kind", ["tsv", "parquet"])
def test_a_url_is_a_file_a_pattern_or_a_folder(kind, packed, memory):
    ending = memory(kind, packed)
    assert rows_of(read_pairs(f"memory://there/two.{ending}")) == SECOND
    assert rows_of(read_pairs(f"memory://there/*.{ending}")) == FIRST + SECOND
    with pytest.raises(InputError, match="its splits are one, two"):
        read_pairs("memory://there")
    assert rows_of(read_pairs("memory://there", split="two")) == SECOND
    with pytest.raises(InputError, match="its sub-folders, to be stated as config, are there"):
        read_pairs("memory://")
    assert rows_of(read_pairs("memory://", config="there", split="one")) == FIRST
    check_file(f"memory://there/two.{ending}")


def test_places_keep_their_file(parts, tmp_path, caplog):
    parts("csv", second=[*SECOND, ("", "b four"), ("a one", "b one")])
    two = tmp_path / "x" / "two.csv"
    with pytest.raises(InputError, match=f"{two}:3: sentence1 is empty"):
        read_pairs(f"{tmp_path}/x/*.csv")
    pairs = read_pairs(f"{tmp_path}/x/*.csv", skip_bad_rows=True, bad_rows_file=tmp_path / "bad.tsv")
    assert rows_of(pairs) == FIRST + SECOND
    bad = (tmp_path / "bad.tsv").read_text().splitlines()
    assert bad[0].startswith(f"{two}:3\tsentence1 is empty")
    assert bad[1].startswith(f"{two}:4\tthe same as {tmp_path / 'x' / 'one.csv'}:2")
    assert "1 x sentence1 is empty (first: " + str(two) + ":3)" in caplog.text
    parts("csv", second=[*SECOND, ("a one", "b one")])
    with caplog.at_level(logging.WARNING):
        read_pairs(f"{tmp_path}/x/*.csv")
    assert f"the first: {two}:3 is the same as {tmp_path / 'x' / 'one.csv'}:2" in caplog.text


def test_sentences_and_classes_of_several_files(parts, tmp_path):
    for number in (1, 2):
        (tmp_path / f"t{number}.txt").write_text(f"text {number}\n")
        (tmp_path / f"c{number}.tsv").write_text(
            f"sentence1\tsentence2\tlabel\na {number}\tb\tyes\na\tb {number}\tno\n"
        )
    assert read_sentences(f"{tmp_path}/t*.txt")["text"][:] == ["text 1", "text 2"]
    assert len(read_classes(Source(f"{tmp_path}/c*.tsv")).pairs) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: (x / "two.tsv").rename(x / "two.csv"), "its files are of several kinds, csv, tsv"),
        (
            lambda x: (x / "two.tsv").write_text("query\tdocument\na\tb\n"),
            r"two.tsv: its columns are query, document, and",
        ),
        (lambda x: (x / "two.tsv").write_text(""), "two.tsv: the file is empty"),
        (lambda x: (x / "two.tsv").rename(x / "two.bin"), "two.bin: unknown kind of file by its name"),
        (
            lambda x: (x / "two.tsv").rename(x / "z-00001-of-00003.tsv"),
            "is one of 3 files by its name, and 2 are given",
        ),
        (lambda x: [path.unlink() for path in x.iterdir()], r"no file has such a name .* Check the pattern"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(change, message, parts, tmp_path):
    parts()
    change(tmp_path / "x")
    with pytest.raises(InputError, match=message):
        read_pairs(f"{tmp_path}/x/*")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://nowhere/x.tsv", "memory:///nowhere/x.tsv: no such file"),
        ("memory://nowhere/*.tsv", "no file has such a name"),
        ("nothing://x.tsv", "nothing://x.tsv: cannot be read .*Protocol not known"),
        ("memory://nowhere/x", "unknown kind of file by its name"),
    ],
)
def test_urls_that_cannot_be_read(url, message):
    with pytest.raises(InputError, match=message):
        read_pairs(url)


def test_packed_data_must_be_whole(parts, tmp_path):
    parts("tsv", "zst")
    path = tmp_path / "x" / "one.tsv.zst"
    whole = path.read_bytes()
    for damaged in (whole[:-5], b"no zstd at all"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="one.tsv.zst: not whole or not valid zstd data"):
            read_pairs(path)
