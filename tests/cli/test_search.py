"""`search` and `duplicates` from files to files, as Python does it, and what they refuse before anything is loaded."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from transencoder.search import open_index

CORPUS = ["balo kama dalo", "gelo felo", "lelo balo", "rima kilo"]


@pytest.fixture
def files(tmp_path, tiny_bi_encoder, done):
    """A corpus with ids, its index, and a corpus of plain text."""
    rows = [{"key": f"d{number}", "body": text} for number, text in enumerate(CORPUS)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS) + "\n")
    typed = ("--model", tiny_bi_encoder, "--device", "cpu", "--output", "index")
    out = done("search", "build", "corpus.jsonl", "--id-column", "key", "--column", "body", *typed)
    assert out == "index: 4 documents, 32 dimensions in float32\n"
    return tmp_path


def cells(out):
    return [line.split("\t") for line in out.splitlines()]


def test_queries_come_as_arguments_as_a_file_and_on_stdin(done, files, monkeypatch):
    queries = ["lelo balo", "felo"]
    out = done("search", "query", "index", *queries, "--top-k", 2, "--device", "cpu")
    header, *rows = cells(out)
    assert header == ["query", "rank", "score", "id", "document"]
    assert [(row[0], row[1]) for row in rows] == [(query, rank) for query in queries for rank in ("1", "2")]
    assert rows[0][3:] == ["d2", "lelo balo"]
    found = open_index("index", device="cpu").search(queries, 2)
    assert [row[3] for row in rows] == [hit.id for hits in found for hit in hits]
    (files / "queries.tsv").write_text("ask\tmore\n" + "".join(f"{query}\tx\n" for query in queries))
    typed = ("search", "query", "index", "--top-k", 2, "--device", "cpu", "--queries")
    assert done(*typed, "queries.tsv", "--columns", "ask") == out
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("\n".join(queries).encode())))
    assert done(*typed, "-") == out
    done(*typed, "queries.tsv", "--column", "ask", "--output", "found.parquet")
    table = pq.read_table("found.parquet").to_pylist()
    assert [[str(row[name]) for name in ("query", "rank", "id", "document")] for row in table] == [
        [row[0], row[1], *row[3:]] for row in rows
    ]


def test_a_cross_encoder_ranks_what_is_found(done, refused, files, cross, tiny_bi_encoder):
    typed = ("search", "query", "index", "balo", "--device", "cpu", "--json", "--rerank")
    rows = [json.loads(line) for line in done(*typed, cross, "--candidates", 3, "--top-k", 3).splitlines()]
    assert list(rows[0]) == ["query", "rank", "score", "cosine", "id", "document"]
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    assert all(0 < row["score"] < 1 for row in rows) and len(rows) == 3
    refused("top_k is 10, but 3 candidates", *typed, cross, "--candidates", 3)
    refused(f"--rerank is {tiny_bi_encoder}, which is a bi-encoder", *typed, tiny_bi_encoder)
    said = "is a cross-encoder, which gives no embeddings"
    refused(said, "search", "build", "corpus.txt", "--model", cross, "--output", "other")


def test_labelled_queries_measure_an_index(done, files, cross):
    (files / "relevant.tsv").write_text("query\tdocument\tscore\nlelo balo\tlelo balo\t1\nlelo balo\tgelo felo\t0\n")
    command = ("search", "evaluate", "index", "--device", "cpu", "--relevance")
    found = json.loads(done(*command, "relevant.tsv", "--json", "--rerank", cross))
    assert found["n_queries"] == 1 and set(found["scores"]) == {"bi-encoder", "re-ranked"}
    assert found["scores"]["bi-encoder"]["mrr_at_10"] == found["scores"]["bi-encoder"]["recall_at_1"] == 100
    out = done(*command, "relevant.tsv")
    assert "ndcg_at_10" in out and "100.00" in out and "re-ranked" not in out
    (files / "ids.tsv").write_text("query-id\tcorpus-id\nq1\td2\n")
    (files / "queries.tsv").write_text("number\twords\nq1\tlelo balo\n")
    by_id = ("ids.tsv", "--queries", "queries.tsv", "--query-columns", "number", "words", "--json")
    assert json.loads(done(*command, *by_id))["scores"]["bi-encoder"]["mrr_at_10"] == 100


def test_documents_with_line_ends_need_another_format(done, refused, files, tiny_bi_encoder):
    (files / "long.jsonl").write_text(json.dumps({"text": "balo\nkama"}) + "\n")
    done("search", "build", "long.jsonl", "--model", tiny_bi_encoder, "--output", "long")
    query = ("search", "query", "long", "balo", "--device", "cpu")
    refused("have tabs or line ends, which TSV cannot hold. Give --json", *query)
    assert json.loads(done(*query, "--json"))["document"] == "balo\nkama"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("query", "index"), "give queries as arguments, or a file of them as --queries"),
        (("query", "index", "x", "--queries", "a.txt"), "one of the two"),
        (("query", "index", "x", "--column", "a"), "are for --queries"),
        (("query", "index", "x", " "), "a query is ' '"),
        (("query", "index", "x", "--output", "a.txt"), "Its name must end in .tsv"),
        (("query", "index", "x", "--output", "a.tsv", "--json"), "--json is for stdout"),
        (("query", "index", "x"), "index is no index"),
        (("build", "a.txt", "--model", "x", "--output", "no/index"), "there is no folder no"),
        (("build", "a.txt", "--model", "x", "--output", "index"), "a.txt: no such file"),
        (("evaluate", "i", "--relevance", "a.tsv", "--query-columns", "a", "b"), "--query-columns is for --queries"),
        (("evaluate", "index", "--relevance", "a.tsv"), "a.tsv: no such file"),
    ],
)
def test_search_refuses_before_a_model_is_loaded(typed, message, refused, monkeypatch):
    monkeypatch.setattr("transencoder.search.load_embedder", None)
    refused(message, "search", *typed)


def test_an_interrupted_build_says_where_it_goes_on(run, files, monkeypatch, tiny_bi_encoder):
    def stop(**_):
        Path("new").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr("transencoder.search.load_embedder", stop)
    code, _, err = run("search", "build", "corpus.txt", "--model", tiny_bi_encoder, "--output", "new")
    assert code == 130 and "run the same command again: it goes on from new" in err


def test_duplicates_are_written_and_left_out(done, files, tiny_bi_encoder):
    (files / "twice.txt").write_text("\n".join([*CORPUS, CORPUS[1]]) + "\n")
    typed = ("duplicates", "twice.txt", "--model", tiny_bi_encoder, "--device", "cpu", "--output")
    out = done(*typed, "clusters.tsv", "--kept", "kept.jsonl", "--threshold", "1.0")
    assert cells((files / "clusters.tsv").read_text()) == [
        ["cluster", "score", "number", "sentence"],
        ["1", "1.0", "2", CORPUS[1]],
        ["1", "1.0", "5", CORPUS[1]],
    ]
    assert [json.loads(line)["text"] for line in (files / "kept.jsonl").read_text().splitlines()] == CORPUS
    assert "clusters.tsv: 1 clusters; 1 of 5 sentences repeat another" in out
    assert "threshold 1.000, as given" in out and "score with the nearest" in out
    assert cells(done(*typed, "-"))[0][0] == "cluster"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("a.txt", "--output", "b.tsv", "--threshold", "2"), "--threshold is 2.0; give a number above 0 and at most 1"),
        (("a.txt", "--output", "b.txt"), "Its name must end in .tsv"),
        (("a.txt", "--output", "b.tsv", "--kept", "no/c.tsv"), "there is no folder no"),
        (("a.txt", "--output", "b.tsv"), "a.txt: no such file"),
    ],
)
def test_duplicates_refuses_before_a_model_is_loaded(typed, message, refused):
    refused(message, "duplicates", *typed, "--model", "x")
