"""What a user sees for every bad input: where, what was read, what is allowed, what to do."""

import gzip
import io
import json
import logging
import re
from pathlib import Path

import pyarrow as pa
import pytest
from datasets import Dataset
from pyarrow import parquet

from transencoder import pairs
from transencoder.cli import main
from transencoder.errors import InputError, RunError
from transencoder.pairs import read_pairs, read_sentences

GOOD = "A man runs.\tA person runs.\n"
JSON = '{"sentence1": "a", "sentence2": "b", "score": 1}\n'


def tsv(bad, *parts, before=GOOD, **options):
    return "f.tsv", before + bad + "\n", options, parts


def csv(bad, *parts, **options):
    return "f.csv", "a,b\n" + bad, options, parts


def jsonl(bad, *parts, **options):
    return "f.jsonl", JSON + bad + "\n", options, parts


def scored(score, *parts, **options):
    """A row of JSON with this score."""
    return jsonl(JSON.strip().replace("1}", f"{score}}}"), *parts, **options)


def second(text, *parts):
    """A row of JSON with this second text."""
    return jsonl(JSON.strip().replace('"b"', text), *parts)


# name of the case: file, content, options, parts of the message
BAD_ROWS = {
    "not UTF-8": (
        *("f.tsv", GOOD.encode() + b"caf\xe9\tb\n", {}),
        (":2: not UTF-8: byte 0xe9 at offset 30 ", "UTF-8: convert"),
    ),
    "not UTF-8 after a BOM": ("f.tsv", b"\xef\xbb\xbfa\tb\nc\t\xff\n", {}, (":2: not UTF-8: byte 0xff at offset 9 ",)),
    "not UTF-8 in JSON": ("f.jsonl", JSON.encode() + b'{"sentence1": "\xe9"}\n', {}, (":2: not UTF-8: byte 0xe9",)),
    "not UTF-8 in CSV": ("f.csv", b'a,b\n"c\n\xe9",d\n', {}, (":2: not UTF-8: byte 0xe9 at offset 7 ",)),
    "empty text": tsv("a\t", ":2: column 2 is empty", "Read: ['a', '']", "at least one character"),
    "white space": tsv("\u00a0 \tb", ":2: column 1 is only white space: '\\xa0 '", "Read: ['\\xa0 ', 'b']"),
    "too many fields": tsv("a\tb\tc", ":2: 3 fields where the first row has 2", "Read: ['a', 'b', 'c']", "tab"),
    "blank line": tsv("\n" + GOOD.strip(), ":2: a blank line", "remove the line"),
    "NUL byte": tsv("a\0\tb", ":2: column 1 has a NUL byte", "Read: ['a\\x00', 'b']", "UTF-16"),
    "lone CR": tsv("a\tb\rc\td", ":2: a carriage return (CR) without a line feed", "LF or CRLF"),
    "long row is cut": tsv("x" * 9999 + "\t", ":2: column 2 is empty", "x" * 70 + "..."),
    "score not a number": tsv(
        *("c\td\thigh", ":3: score is 'high' (str), not a number", "A score is a finite number"),
        *("Read: ['c', 'd', 'high']",),
        before="sentence1\tsentence2\tscore\na\tb\t1\n",
    ),
    "score with underscore": tsv(
        "a\tc\t1_0", ":2: column 3 is '1_0' (str), not a number", before="a\tb\t1\n", score_column="3"
    ),
    "score nan": tsv("c\td\tnan", ":2: column 3 is 'nan', not finite", before="a\tb\t1\n", score_column="3"),
    "score below range": tsv(
        "c\td\t-.1", ":2: column 3 is -0.1, out", before="a\tb\t1\n", score_column="3", score_range=(0, 5)
    ),
    "score empty": ("f.csv", "a,b,1\na,c,\n", {"score_column": "3"}, (":2: column 3 is '' (str), not a number",)),
    "too few fields": csv("c\n", ":2: 1 field where the first row has 2", "Read: ['c']", "double quotes"),
    "lone CR in CSV": csv("c,d\re,f\n", ":2: not valid CSV: a carriage return (CR)"),
    "stray quote in CSV": csv('"c"d,e\n', ":2: not valid CSV: ',' expected after '\"'", "RFC 4180", '"c"d,e'),
    "empty text in JSON": jsonl('{"sentence1": "", "sentence2": "b", "score": 1}', ":2: sentence1 is empty"),
    "blank line in JSON": jsonl("", ":2: a blank line"),
    "invalid JSON": jsonl('{"sentence1": "a"', ":2: not valid JSON: Expecting ',' delimiter", "one JSON object"),
    "two objects on a line": jsonl(JSON.strip() + JSON.strip(), ":2: not valid JSON: Extra data"),
    "JSON list": jsonl('["a", "b"]', ":2: a JSON list, not an object", 'Read: \'["a", "b"]\''),
    "missing key": jsonl('{"sentence1": "a"}', ":2: the key 'sentence2' is missing", "sentence1, sentence2, score"),
    "JSON text of another type": second("7", ":2: sentence2 is 7, of type int", "a text"),
    "JSON null": second("null", ":2: sentence2 is null"),
    "JSON lone surrogate": second('"\\ud800"', ":2: sentence2 has a lone surrogate (\\ud800)"),
    "score NaN in JSON": scored("NaN", ":2: score is nan, not finite"),
    "score too big": scored("1" * 400, ":2: score is 111", "not finite"),
    "score out of range": scored(
        "5.5", ":2: score is 5.5, out of range", "from 0 to 5", "Read: ['a', 'b', 5.5]", score_range=(0, 5)
    ),
    "score as text in JSON": scored('"1"', ":2: score is '1' (str), not a number", "quotes"),
    "score a boolean": scored("true", ":2: score is True (bool), not a number"),
    "score null": scored("null", ":2: score is None (NoneType), not a number"),
}

BAD_FILES = {
    "empty": ("f.tsv", b"", {}, ["the file is empty", "At least one row"]),
    "empty CSV": ("f.csv", b"", {}, ["the file is empty"]),
    "empty JSONL": ("f.jsonl.gz", b"", {}, ["the file is empty"]),
    "header only": ("f.tsv", "sentence1\tsentence2\n", {}, ["a header and no rows", "At least one row"]),
    "header only in CSV": ("f.csv", "my,own\n", {"header": True}, ["a header and no rows"]),
    "UTF-16": ("f.tsv", GOOD.encode("utf-16"), {}, ["begins with 0xff 0xfe", "UTF-16", "UTF-8"]),
    "gzip by content": ("f.tsv", gzip.compress(GOOD.encode()), {}, ["begins with 0x1f 0x8b", "end in .gz"]),
    "Parquet by content": ("f.tsv", b"PAR1\x15\x04", {}, ["is Parquet", "end in .parquet"]),
    "a spreadsheet": ("f.csv", b"PK\x03\x04\x14", {}, ["spreadsheet", "export it as CSV"]),
    "corrupt Parquet": ("f.parquet", b"PAR1 no PAR1", {}, ["not a whole Parquet file", "Write it again"]),
    "unknown suffix": (
        "f.xlsx",
        b"x",
        {},
        ["unknown kind of file", ".tsv, .csv, .jsonl, .parquet", "file_format='tsv'"],
    ),
    "unknown format": ("f.tsv", GOOD, {"file_format": "xml"}, ["unknown file format 'xml'", ".tsv, .csv"]),
    "one column": ("f.tsv", "a,b\n", {}, [":1: 1 field in the first row: ['a,b']", "2 to 10,000", "commas (.csv)"]),
    "millions of tabs": ("f.tsv", "a" + "\t" * 20_000, {}, [":1: too many fields in the first row", "2 to 10,000"]),
    "open quote": (
        *("f.csv", 'a,b\n"c,d\ne,f\n', {}),
        [":2: a quote is opened", "not closed by line 3", "cannot be skipped"],
    ),
    "a quote open for 33 MB": (
        *("f.csv", 'a,b\n"c,d\n' + 34 * ("e" * (1 << 20) + "\n"), {}),
        [":2: a field of this row is too long", "RFC 4180"],
    ),
    "names that we do not know": (
        "f.tsv",
        "topic\tSentence 2\nnews\tsport\n",
        {},
        [":1: cannot tell", "a text of one word"],
    ),
    "part of a header": (
        "f.tsv",
        "sentence1\tanswer\nquestion\tanswer\n",
        {},
        [":1: cannot tell", "'sentence1' could be", "--no-header"],
    ),
    "unknown names, too many": (
        "f.csv",
        "q,r,s,t\na b,c d,e f,3\n",
        {},
        ["'q', 'r', 's', 't' have the texts? Name them: columns, --columns NAME NAME"],
    ),
    "others of a header": ("f.tsv", "label\tscore\na b\t1\n", {}, ["which 2 of the columns 'label', 'score'"]),
    "no such column": ("f.csv", "q,r\na,b\n", {"columns": ["q", "s"]}, ["no column 's'", "'q', 'r'"]),
    "no such position": ("f.csv", "q,r\na,b\n", {"score_column": "3"}, ["no column '3'", "'1', '2'"]),
    "column there twice": ("f.csv", "q,q\na,b\n", {"columns": ["q", "q"]}, ["2 columns are called 'q'"]),
    "column stated twice": ("f.csv", "q,r\na,b\n", {"columns": ["q", "q"]}, ["stated twice: q, q"]),
    "three columns": ("f.csv", "q,r\na,b\n", {"columns": ["q", "r", "s"]}, ["3 columns stated: q, r, s", "Exactly 2"]),
    "columns as a text": (
        "f.csv",
        "q,r\na,b\n",
        {"columns": "qr"},
        ["columns is the text 'qr'", "['sentence1', 'sentence2']"],
    ),
    "unknown keys": ("f.jsonl", '{"x": "a"}\n', {}, [":1: no columns", "among 'x'", "sentence1/sentence2 or"]),
    "bad first row": ("f.jsonl", "nope\n" + JSON, {"skip_bad_rows": True}, [":1: not valid JSON", "cannot be skipped"]),
    "no good row": ("f.tsv", "a\t\nb\t \n", {"skip_bad_rows": True}, ["no good row: 2 bad rows skipped", "f.tsv:1"]),
    "range without scores": ("f.tsv", GOOD, {"score_range": (0, 5)}, ["no score column is found", "score_column"]),
    "range upside down": ("f.tsv", GOOD, {"score_range": (5, 0)}, ["score_range is (5, 0)", "(0, 5)"]),
    "bad rows file alone": ("f.tsv", GOOD, {"bad_rows_file": "x"}, ["without skip_bad_rows", "State both"]),
    "split of a file": ("f.tsv", GOOD, {"split": "test"}, ["split 'test' is stated", "one file", "Leave it out"]),
    "config of a file": ("f.tsv", GOOD, {"config": "qnli"}, ["config 'qnli' is stated"]),
    "plain text as pairs": (
        "f.txt",
        GOOD,
        {},
        ["one sentence a line, but 2 texts a row are needed", ".tsv", "sentence1||sentence2"],
    ),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_row_is_an_error_that_says_where_and_what(case, write):
    name, content, options, parts = BAD_ROWS[case]
    path = write(name, content)
    with pytest.raises(InputError) as error:
        read_pairs(path, **options)
    assert str(error.value).startswith(f"{path}:")
    assert "skip_bad_rows=True (--skip-bad-rows)" in str(error.value)
    for part in parts:
        assert part in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_row_can_be_skipped_and_is_reported(case, write, tmp_path, caplog):
    name, content, options, parts = BAD_ROWS[case]
    path, bad_rows_file = write(name, content), tmp_path / "bad" / "rows.tsv"
    dataset = read_pairs(path, skip_bad_rows=True, bad_rows_file=bad_rows_file, **options)
    n_lines = len(path.read_bytes().splitlines())
    assert 1 <= len(dataset) < n_lines
    fields = [line.split("\t") for line in bad_rows_file.read_text().splitlines()]
    where, reason, _ = fields[0]
    assert f"{where}: {reason}"[len(str(path)) :].startswith(parts[0].strip()[:25])
    assert f"{path}: " in caplog.text
    assert str(bad_rows_file) in caplog.text


def test_a_line_without_end_is_refused_before_it_fills_the_memory(write, monkeypatch):
    """Was: 3 MB of gzip could be a line of gigabytes."""
    monkeypatch.setattr("transencoder.pairs.files.MOST_LINE_BYTES", 8)
    assert read_sentences(write("f.txt", "a b c d\n" * 2 + "a b"))["text"] == ["a b c d", "a b c d", "a b"]
    with pytest.raises(InputError, match=r"f\.txt:2: a line of more than 8 bytes\. .* end with LF"):
        read_sentences(write("f.txt", "a b c d\na b c d e\n"))


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_file_is_an_error(case, write):
    name, content, options, parts = BAD_FILES[case]
    path = write(name, content)
    with pytest.raises(InputError) as error:
        read_pairs(path, **options)
    for part in parts:
        assert part in str(error.value)


@pytest.mark.parametrize("skip_bad_rows", [False, True])
@pytest.mark.parametrize("name", ["f.tsv.gz", "f.csv.gz", "f.jsonl.gz", "f.parquet.gz"])
def test_truncated_gzip_is_an_error_and_leaves_nothing(name, skip_bad_rows, tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))
    rows = "".join(json.dumps({"sentence1": f"a{i * i}", "sentence2": f"b{i}"}) + "\n" for i in range(9000))
    if "json" not in name:
        rows = "".join(f"a{i * i}\tb{i}\n".replace("\t", "\t" if "tsv" in name else ",") for i in range(9000))
    path = tmp_path / name
    path.write_bytes(gzip.compress(rows.encode())[:-500])
    with pytest.raises(InputError, match="gzip data ends early, so rows are missing") as error:
        read_pairs(path, skip_bad_rows=skip_bad_rows)
    assert "Copy or download it again" in str(error.value)
    assert [file for file in (tmp_path / "cache").rglob("*") if file.is_file()] == []


def test_damaged_gzip_is_an_error(tmp_path):
    packed = bytearray(gzip.compress(GOOD.encode() * 99))
    packed[-6] ^= 255
    (tmp_path / "crc.tsv.gz").write_bytes(packed)
    (tmp_path / "plain.tsv.gz").write_text(GOOD)
    for name in ("crc.tsv.gz", "plain.tsv.gz"):
        with pytest.raises(InputError, match=f"{name}: not valid gzip data"):
            read_pairs(tmp_path / name)


def test_damaged_parquet_page_is_an_error(tmp_path):
    path = tmp_path / "f.parquet"
    table = pa.table({"sentence1": [f"a{i}" for i in range(999)], "sentence2": [f"b{i}" for i in range(999)]})
    parquet.write_table(table, path, compression="gzip", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[200:900] = b"\xff" * 700
    path.write_bytes(data)
    with pytest.raises(InputError, match="f.parquet: not a whole Parquet file, or a damaged one"):
        read_pairs(path)


def test_parquet_value_that_is_not_utf8_names_the_row(tmp_path):
    path = tmp_path / "f.parquet"
    bad = pa.array([b"a", b"caf\xe9"], pa.binary())
    bad = pa.StringArray.from_buffers(2, bad.buffers()[1], bad.buffers()[2])
    parquet.write_table(pa.table({"sentence1": bad, "sentence2": ["b", "c"]}), path)
    with pytest.raises(InputError, match=r"f.parquet:2: sentence1 is not UTF-8. Read: \[b'caf\\xe9', 'c'\]"):
        read_pairs(path)


def test_parquet_of_another_type_and_without_rows(tmp_path):
    path = tmp_path / "f.parquet"
    parquet.write_table(pa.table({"sentence1": [1], "sentence2": ["b"]}), path)
    with pytest.raises(InputError, match="f.parquet:1: sentence1 is 1, of type int"):
        read_pairs(path)
    parquet.write_table(pa.table({"sentence1": ["a"], "sentence2": ["b"]}).slice(0, 0), path)
    with pytest.raises(InputError, match="f.parquet: no rows"):
        read_pairs(path)


def test_missing_file_says_where_it_looked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for source in ("pairs.tsv", str(tmp_path / "none" / "x.jsonl"), "./here", "a/b/c"):
        with pytest.raises(InputError) as error:
            read_pairs(source)
        assert str(error.value).startswith(f"{source}: no such file (looked in {tmp_path})")
        assert ".tsv, .csv" in str(error.value) and "mteb/sts12-sts" in str(error.value)


def test_folder_that_holds_no_data_set(tmp_path):
    (tmp_path / "sub").mkdir()
    with pytest.raises(InputError) as error:
        read_pairs(tmp_path)
    assert "a folder, and no split is stated" in str(error.value)
    assert "<split>.jsonl.gz" in str(error.value) and "sub-folders, to be stated as config, are sub" in str(error.value)


def test_source_of_another_type():
    for source in (None, 3):
        with pytest.raises(InputError, match=f"the source is of type {type(source).__name__}"):
            read_pairs(source)
    with pytest.raises(InputError, match="empty text"):
        read_pairs("")


def test_mixed_line_ends_are_a_warning_and_leave_the_texts_clean(write, caplog):
    dataset = read_pairs(write("f.tsv", "a\tb\r\nc\td\ne\tf\r\n"))
    assert dataset["sentence2"][:] == ["b", "d", "f"]
    assert "mixed line ends, LF after 1 rows and CRLF after 2" in caplog.text


def test_line_ends_within_csv_quotes_are_not_mixed_line_ends(write, caplog):
    dataset = read_pairs(write("f.csv", 'a,"b\nb"\r\nc,"d\re"\r\n'))
    assert dataset["sentence2"][:] == ["b\nb", "d\re"]
    assert "mixed" not in caplog.text


def test_csv_row_number_is_the_line_where_the_row_starts(write):
    with pytest.raises(InputError, match=r"f.csv:4: column 2 is empty"):
        read_pairs(write("f.csv", 'a,"b\nb\nb"\nc,\n'))


def test_duplicates_are_kept_counted_and_the_first_is_named(write, caplog):
    path = write("f.tsv", "sentence1\tsentence2\tscore\n" + "a\tb\t1\n" + "c\td\t1\n" + "a\tb\t2\n" + "a\tb\t1\n" * 2)
    assert len(read_pairs(path)) == 5
    assert f"{path}: 2 duplicate rows; the first: {path}:5 is the same as {path}:2; all are kept" in caplog.text


def test_skipped_rows_and_duplicates_are_counted_and_written(write, tmp_path, caplog):
    path = write("f.tsv", "a\tb\nc\t\na\tb\nd\te\tf\ng\th\na\tb\n")
    dataset = read_pairs(path, skip_bad_rows=True, bad_rows_file=tmp_path / "bad.tsv")
    assert dataset["sentence1"][:] == ["a", "g"]
    assert (tmp_path / "bad.tsv").read_text().splitlines() == [
        f"{path}:2\tcolumn 2 is empty\t['c', '']",
        f"{path}:4\t3 fields where the first row has 2\t['d', 'e', 'f']",
        f"{path}:3\tthe same as {path}:1\t['a', 'b']",
        f"{path}:6\tthe same as {path}:1\t['a', 'b']",
    ]
    assert (
        f"4 bad rows skipped: 2 x duplicate (first: {path}:3); 1 x column 2 is empty (first: {path}:2)" in caplog.text
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bad.tsv", "f.tsv"]


def test_skipping_with_nothing_bad_writes_an_empty_file(write, tmp_path, caplog):
    assert len(read_pairs(write("f.tsv", GOOD), skip_bad_rows=True, bad_rows_file=tmp_path / "bad.tsv")) == 1
    assert (tmp_path / "bad.tsv").read_text() == ""
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_folder_is_no_bad_rows_file(write):
    with pytest.raises(RunError, match=r"\. cannot be written: Is a directory"):
        read_pairs(write("f.tsv", GOOD), skip_bad_rows=True, bad_rows_file=".")


def test_an_error_leaves_no_bad_rows_file(write, tmp_path):
    with pytest.raises(InputError, match="not closed"):
        read_pairs(write("f.csv", 'a,b\nc\n"d,e\n'), skip_bad_rows=True, bad_rows_file=tmp_path / "bad.tsv")
    assert [file.name for file in tmp_path.iterdir()] == ["f.csv"]


def test_columns_of_numbers_are_no_texts_and_the_only_one_is_the_gold_where_it_is_needed(write):
    assert read_sentences(write("f.csv", "Number,Subject line\n1,it broke\n2,it works\n"))["text"][0] == "it broke"
    content = "first,second,same\na b,c d,0\na c,b d,1\n"
    for each in (write("f.csv", content), Dataset.from_dict({"first": ["a b"], "second": ["c d"], "same": [1]})):
        pairs = read_pairs(each, needs_score=True)
        assert pairs.column_names == ["sentence1", "sentence2", "score"]
        assert pairs["score"][0] in (0.0, 1.0)
        assert read_pairs(each).column_names == ["sentence1", "sentence2"]
    with pytest.raises(InputError, match=r"no column of gold scores among 'first', 'second', 'label'\. Call it score"):
        read_pairs(write("g.csv", content.replace("same", "label")), needs_score=True, columns=["first", "second"])
    with pytest.raises(InputError, match="Call them sentence1, sentence2 and score"):
        read_pairs(write("h.csv", "a,b,c,d\nx y,y z,z a,1\n"), needs_score=True)


def test_bad_sentences(write, monkeypatch):
    with pytest.raises(InputError, match=r"f.txt:2: text is empty. Read: \[''\]"):
        read_sentences(write("f.txt", "one\n\ntwo\n"))
    with pytest.raises(InputError, match="f.txt: plain text has neither columns nor a header"):
        read_sentences(write("f.txt", "one\n"), header=True)
    with pytest.raises(InputError, match="f.tsv:1: cannot tell whether"):
        read_sentences(write("f.tsv", "one\nword\n"))
    with pytest.raises(InputError, match="f.csv: which of the columns 'Subject', 'Answer' has the texts"):
        read_sentences(write("f.csv", "Subject,Answer\nit broke,mend it\nit works,keep it\n"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\nc\n")))
    with pytest.raises(InputError, match="<stdin>:2: 1 field where the first row has 2"):
        read_sentences("-")


def test_every_option_that_a_message_recommends_is_there(capsys):
    """Of `train` and of the commands that read a file of pairs."""
    sources = [path.read_text() for path in Path(pairs.__file__).parent.glob("*.py")]
    recommended = {option for text in sources for option in re.findall(r"--[a-z][a-z-]+", text)}
    assert {"--header", "--no-header", "--file-format", "--split", "--cache-dir"} <= recommended
    for command in (("train", "trans-encoder", "--help-all"), ("score", "--help"), ("mine", "--help")):
        main([*command])
        offered = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
        assert not recommended - offered, command


def test_trans_encoders_release_has_pairs_with_two_bars_between(write):
    path = write("f.txt", "a cat||the cat\none, two|three||b\n")
    assert read_pairs(path).to_list() == [
        {"sentence1": "a cat", "sentence2": "the cat"},
        {"sentence1": "one, two|three", "sentence2": "b"},
    ]
    with pytest.raises(InputError, match=r"f\.txt:2: 3 fields where the first row has 2\. .*sentence1\|\|sentence2"):
        read_pairs(write("f.txt", "a||b\na||b||c\n"))
    with pytest.raises(InputError, match=r"f\.txt: plain text has no scores"):
        read_pairs(write("f.txt", "a||b\n"), needs_score=True)
