"""`pairs`, `mine` and `views`: what they write, show and compare, and what they refuse before they start."""

import csv
import gzip
import io
import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from transencoder import BiScorer, mine, read_pairs
from transencoder.encoders import load_bi
from transencoder.views import SpanMask, TwoViews, as_is, compare

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "starts.md"


def read_rows(path):
    """`sentence1` and `sentence2` of each row of any format, with the file's header checked."""
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        rows = list(csv.DictReader(path.read_text().splitlines(), delimiter="\t" if path.suffix == ".tsv" else ","))
    assert all(list(row) == ["sentence1", "sentence2"] for row in rows)
    return [(row["sentence1"], row["sentence2"]) for row in rows]


def rows_of(pairs):
    return list(zip(pairs["sentence1"], pairs["sentence2"], strict=True))


def unfinished(folder):
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def test_pairs_writes_a_tasks_pairs_and_says_counts(done, refused, tmp_path):
    rows = [
        {"sentence1": "a", "sentence2": "b", "score": 1.0},
        {"sentence1": "a", "sentence2": "c", "score": 2.0},
    ]
    folder = tmp_path / "data" / "mteb" / "stsbenchmark-sts"
    folder.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        (folder / f"{split}.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    command = ("pairs", "stsb", "--data-dir", tmp_path / "data", "--output")
    assert done(*command, "pairs.tsv").startswith("pairs.tsv: 2 pairs of stsb")
    assert Path("pairs.tsv").read_text() == done(*command, "-") == "sentence1\tsentence2\na\tb\na\tc\n"
    refused("no unlabelled pair is left", *command, "pairs.tsv", "--exclude-test-sentences")
    refused("Its name must end in", "pairs", "stsb", "--data-dir", tmp_path / "nowhere", "--output", "pairs.xls")


@pytest.fixture
def mined_from(tiny_pairs, tiny_bi_encoder):
    """A file of 80 sentences, and the options that mine some pairs from it in a second."""
    Path("eighty.txt").write_text("\n".join(tiny_pairs["sentence1"][:80]) + "\n")
    return ("mine", "eighty.txt", "--start", tiny_bi_encoder, "--device", "cpu")


def test_mined_pairs_are_those_that_python_mines(done, mined_from, tiny_bi_encoder, tmp_path):
    output = tmp_path / "pairs.tsv"
    out = done(*mined_from, "--output", output, "--n-pairs", 50, "--max-pairs-per-sentence", 3, "--seed", 5)
    made = mine("eighty.txt", tiny_bi_encoder, device="cpu", n_pairs=50, max_pairs_per_sentence=3, seed=5)
    assert read_rows(output) == rows_of(made.pairs)
    assert out.startswith(f"{output}: 50 pairs of ") and "80 sentences read" in out
    assert "| rare words in common (BM25) |" in out and "█" in out
    assert not unfinished(tmp_path)
    assert len(read_pairs(output)) == 50


def test_the_record_is_printed_as_json(done, mined_from):
    record = json.loads(done(*mined_from, "--output", "pairs.jsonl", "--n-pairs", 50, "--json"))
    assert sum(record["histogram"]["pairs"]) == 50
    assert {source: counts["pairs"] > 0 for source, counts in record["mix"].items()} == dict.fromkeys(
        ("neighbours", "bm25", "random"), True
    )


def test_pairs_of_queries_and_documents_go_to_stdout(done, mined_from, tiny_pairs, tiny_bi_encoder, tmp_path):
    documents = tmp_path / "documents.jsonl"
    Dataset.from_dict({"text": tiny_pairs["sentence2"][:40]}).to_json(documents)
    typed = (*mined_from, "--output", "-", "--documents", documents, "--n-pairs", 30, "--quiet")
    out = done(*typed)
    rows = [line.split("\t") for line in out.splitlines()[1:]]
    assert len(rows) == 30 and {second for _, second in rows} <= set(tiny_pairs["sentence2"][:40])
    with_prompts = done(*typed, "--prompt", "kama: ", "--document-prompt", "")
    options = {"device": "cpu", "n_pairs": 30, "prompt": "kama: ", "document_prompt": ""}
    made = mine("eighty.txt", tiny_bi_encoder, documents=documents, **options).pairs
    assert with_prompts != out
    assert with_prompts.splitlines()[1:] == ["\t".join(row) for row in rows_of(made)]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--output sentences.txt", "--output is 'sentences.txt', which is the file that is read"),
        ("--output pairs.xlsx", "--output is 'pairs.xlsx'. Its name must end in .tsv"),
        ("--output no/pairs.tsv", "there is no folder no"),
        ("--output p.tsv --n-pairs 0", "n_pairs is 0; it must be at least 1"),
        ("--output p.tsv --documents sentences.txt", "--documents are SENTENCES"),
        ("--output - --json", "both go to stdout"),
        ("--output p.tsv --document-prompt x", "--document-prompt is for --documents. Give both"),
        ("--output p.tsv --document-column x", "--document-column is for --documents. Give both"),
        ("--output p.tsv --documents d.txt --bad-rows-file b.tsv", "--bad-rows-file is for one file"),
        ("--output p.tsv --pairs 5", "--pairs is not an option of transencoder mine; the nearest is"),
        ("", "the following arguments are required: --output"),
        ("--ouput p.tsv", "--ouput is not an option of transencoder mine; the nearest is --output"),
        ("--n-pairs=1 -- -", "the following arguments are required: --output"),
    ],
)
def test_wrong_input_is_refused_before_the_start_is_looked_for(refused, sentences, typed, message):
    refused(message, "mine", "sentences.txt", "--start", "nowhere", *typed.split())
    assert not Path("p.tsv").exists()


def test_a_missing_file_and_a_tab_in_a_sentence_are_told_before_anything_is_encoded(refused, tiny_bi_encoder):
    Path("tabs.jsonl").write_text('{"text": "one\\ttwo"}\n{"text": "three"}\n')
    typed = ("--output", "p.tsv", "--start", tiny_bi_encoder, "--device", "cpu")
    refused("nothing.txt: no such file", "mine", "nothing.txt", *typed)
    refused("holds a tab or a line end", "mine", "tabs.jsonl", *typed)


@pytest.mark.parametrize(("ending", "n_processes"), [("tsv", 1), ("csv", 1), ("jsonl", 1), ("parquet", 2)])
def test_views_are_written_as_in_python_in_the_format_of_the_name(
    ending, n_processes, done, sentences, tmp_path, tiny_sentences, monkeypatch
):
    monkeypatch.setattr("transencoder.views.pairs.CHUNK", 30)
    output = tmp_path / f"views.{ending}"
    typed = ("--mask-token", "<m>", "--seed", 5, "--processes", n_processes, "--output", output)
    out = done("views", "--sentences", sentences, "--second", "span-mask", *typed)
    assert out == f"{output}: 96 pairs, sentence1 as-is, sentence2 span-mask\n"
    made = TwoViews(first=as_is, second=SpanMask(mask_token="<m>"))(tiny_sentences, tmp_path / "api.arrow", 5)
    assert read_rows(output) == rows_of(made)
    assert not unfinished(tmp_path)
    assert not list((tmp_path / "cache" / "rows").glob("views-*"))


def test_stdin_has_one_sentence_a_line(done, monkeypatch):
    """Was: read as a table, in which a first line of a known name is a header."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"text\nmore text\n")))
    out = done("views", "--sentences", "-", "--second", "as-is", "--output", "-")
    assert out == "sentence1\tsentence2\ntext\ttext\nmore text\tmore text\n"


def test_synonyms_models_and_files_make_views(done, sentences, tmp_path, tiny_sentences, tiny_plm):
    words = sorted({word for text in tiny_sentences["text"] for word in text.split()})
    (tmp_path / "synonyms.tsv").write_text("".join(f"{word}\tother\n" for word in words))
    for name in ("first", "second"):
        rows = [{"text": text, "translation": f"{name} {text}"} for text in tiny_sentences["text"]]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def made(*typed):
        done("views", "--sentences", sentences, "--output", tmp_path / "views.tsv", *typed)
        return read_rows(tmp_path / "views.tsv")

    views = made("--second", "synonyms", "--synonyms", tmp_path / "synonyms.tsv")
    assert all(second.split().count("other") == 1 for _, second in views)
    for first, second in made("--second", "mlm", "--mlm", tiny_plm, "--share", 0.01, "--device", "cpu"):
        assert sum(a != b for a, b in zip(first.split(), second.split(), strict=True)) == 1
    files = ("--translations", tmp_path / "first.jsonl", tmp_path / "second.jsonl")
    expected = [(f"first {text}", f"second {text}") for text in tiny_sentences["text"]]
    assert made("--first", "back-translation", "--second", "back-translation", *files) == expected
    assert [second for _, second in made("--second", "back-translation", *files[:2])] == [one for one, _ in expected]


def test_two_models_translate_there_and_back(done, sentences, tmp_path, monkeypatch):
    made = []

    def translate(self, texts):
        made.append((self.folder.name, self.n_beams, self.device))
        return [f"{self.folder.name} {text}" for text in texts]

    monkeypatch.setattr("transencoder.views.Translator.__call__", translate)
    monkeypatch.setattr("transencoder.encoders.fetch", lambda name, **_: Path(name))
    models = ("--translate", "to-german", "--translate-back", "to-english", "--beams", 4, "--device", "cpu")
    done("views", "--sentences", sentences, "--second", "back-translation", *models, "--output", "views.tsv")
    assert made == [("to-german", 4, "cpu"), ("to-english", 4, "cpu")]
    assert all(second == f"to-english to-german {first}" for first, second in read_rows(tmp_path / "views.tsv"))


def test_kinds_are_compared_with_the_sentence_as_in_table_5(done, sentences, tiny_bi_encoder, tiny_sentences, tmp_path):
    kinds = ("as-is", "span-mask", "word-deletion")
    typed = ("views", "--sentences", sentences, "--second", *kinds, "--stats", "--model", tiny_bi_encoder)
    found = json.loads(done(*typed, "--json", "--device", "cpu"))
    assert tuple(found) == kinds
    assert found["as-is"]["edit_distance"] == 0
    assert found["as-is"]["similarity"][tiny_bi_encoder] == pytest.approx(1)
    made = TwoViews(first=as_is, second=SpanMask(mask_token="[MASK]"))(tiny_sentences, tmp_path / "api.arrow", 2021)
    scorer = BiScorer(load_bi(Path(tiny_bi_encoder), device="cpu"))
    expected = compare(made, {tiny_bi_encoder: scorer})
    assert found["span-mask"]["edit_distance"] == expected.edit_distance > 5
    assert found["span-mask"]["edit_distance_std"] == expected.edit_distance_std
    assert found["span-mask"]["similarity"] == pytest.approx(expected.similarity)
    table = done(*typed, "--device", "cpu")
    assert f"{expected.edit_distance:.2f} ± {expected.edit_distance_std:.2f}" in table
    assert f"{expected.similarity[tiny_bi_encoder]:.3f}" in table
    assert "against as-is" in table
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tsv"] == []


def test_given_columns_are_compared(done, tmp_path):
    path = tmp_path / "views.csv"
    path.write_text("id,german,french\n1,abc,abd\n2,a,abcd\n")
    found = json.loads(done("views", "--pairs", path, "--columns", "german", "french", "--stats", "--json"))
    assert found == {str(path): {"n_pairs": 2, "edit_distance": 2.0, "edit_distance_std": 1.0, "similarity": {}}}


def test_what_is_written_is_compared_too(done, sentences, tmp_path):
    typed = ("--second", "word-deletion", "--output", tmp_path / "views.tsv", "--stats")
    out = done("views", "--sentences", sentences, *typed)
    assert out.startswith(f"{tmp_path / 'views.tsv'}: 96 pairs, sentence1 as-is, sentence2 word-deletion\n")
    by_file = compare(read_pairs(tmp_path / "views.tsv"), {})
    assert f"{by_file.edit_distance:.2f} ± {by_file.edit_distance_std:.2f}" in out


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--second mlm --output v.tsv", "the view mlm needs --mlm"),
        ("--second synonyms --output v.tsv", "the view synonyms needs --synonyms"),
        ("--second synonyms --synonyms none.tsv --output v.tsv", "none.tsv: there is no such file"),
        ("--second back-translation --output v.tsv", "needs either --translations, a file, or --translate and"),
        ("--second back-translation --translate m --output v.tsv", "needs either --translations"),
        ("--second back-translation --translate m --translate-back n --translations f --output v.tsv", "needs either"),
        ("--second back-translation --translations f g --output v.tsv", "--translations has 2 values for 1"),
        ("--second back-translation --translations few.tsv --output v.tsv", "few.tsv has no back-translation of"),
        ("--second word-deletion --mlm m --output v.tsv", "--mlm is for mlm, which is not among the views"),
        ("--second span-mask --share 0.1 --output v.tsv", "--share is for word-deletion and mlm"),
        ("--second word-deletion --share 1.5 --output v.tsv", "share is 1.5"),
        ("--second paraphrase --output v.tsv", "invalid choice: 'paraphrase'"),
        ("--output v.tsv", "--second is missing"),
        ("--second as-is", "there is nothing to do"),
        ("--second as-is span-mask --output v.tsv", "--second has 2 kinds, and --output takes one"),
        ("--second as-is --output v.tsv --json", "--model and --json are for --stats"),
        ("--second as-is --output - --stats", "both go to stdout"),
        ("--second as-is --output v.txt", "Its name must end in .tsv or"),
        ("--second as-is --output v.tsv --processes 0", "--processes is 0"),
        ("--second as-is --output v.tsv --columns a b", "--columns has 2 names. Give 1"),
        ("--second as-is --output v.tsv --pairs p.tsv", "not allowed with argument"),
    ],
)
def test_what_does_not_go_together_is_refused_and_nothing_is_written(typed, message, refused, sentences, tmp_path):
    Path("few.tsv").write_text("some text\tits translation\n")
    refused(message, "views", "--sentences", sentences, *typed.split())
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(("v.", ".v"))]


@pytest.mark.parametrize("typed", ["", "--stats --second as-is", "--stats --output v.tsv"])
def test_pairs_are_compared_and_not_made_again(typed, refused):
    refused("--pairs are views already; --stats compares them", "views", "--pairs", "p.tsv", *typed.split())


@pytest.mark.parametrize("option", ["--sentences", "--synonyms", "--translations"])
def test_no_file_that_is_read_is_overwritten(option, refused, sentences, tmp_path):
    kind = {"--synonyms": "synonyms", "--translations": "back-translation"}.get(option, "as-is")
    path = tmp_path / "read.tsv"
    path.write_text("balo\tbama\n")
    typed = () if option == "--sentences" else ("--sentences", sentences)
    refused("which is the file that is read", "views", *typed, option, path, "--second", kind, "--output", path)
    assert path.read_text() == "balo\tbama\n"


def test_a_text_that_tsv_cannot_hold_is_refused_before_the_work(refused, monkeypatch):
    Path("tabs.jsonl").write_text('{"text": "one\\ttwo"}\n')
    monkeypatch.setattr("transencoder.views.TwoViews.__call__", lambda *_: pytest.fail("views were made"))
    typed = ("--sentences", "tabs.jsonl", "--second", "as-is", "--output", "v.tsv")
    refused("holds a tab or a line end", "views", *typed)


def test_the_guides_commands_make_views_and_train_on_them(done, sentences, tmp_path, tiny_plm):
    """The two commands of docs/starts.md, with a tiny model and a few steps."""
    lines = [line for line in GUIDE.read_text().splitlines() if "views.tsv" in line and line.startswith("transencoder")]
    make, train, *_ = (shlex.split(line.replace("bert-base-uncased", tiny_plm))[1:] for line in lines)
    assert make[0] == "views" and train[:2] == ["train", "simcse"]
    done(*make, "--device", "cpu")
    done(*train, "--fit.batch-size", 16, "--fit.max-length", 16, "--device", "cpu", "--precision", "fp32")
    record = json.loads((tmp_path / "runs" / "start" / "result.json").read_text())
    assert record["data"]["pairs"]["rows"] == 96
    assert record["data"]["pairs"]["source"] == "views.tsv"
    embeddings = load_bi(tmp_path / "runs" / "start" / "bi-encoder", device="cpu").encode(["balo bama", "dalo"])
    assert np.isfinite(embeddings).all()
