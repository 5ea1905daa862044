"""`mine`: what it writes and shows, and what it refuses before it starts."""

import csv
import json

import pytest
from datasets import Dataset

from transencoder import mine, read_pairs


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRANSENCODER_DATA", raising=False)


@pytest.fixture
def sentences(tmp_path, tiny_pairs):
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(tiny_pairs["sentence1"][:80]) + "\n")
    return path


def rows_of(path):
    rows = list(csv.reader(path.read_text().splitlines(), delimiter="\t"))
    assert rows[0] == ["sentence1", "sentence2"]
    return [tuple(row) for row in rows[1:]]


def test_what_is_written_is_what_python_mines(run, sentences, tiny_bi_encoder, tmp_path):
    output, typed = tmp_path / "pairs.tsv", ("--start", tiny_bi_encoder, "--device", "cpu", "--n-pairs", 50)
    code, out, err = run("mine", sentences, "--output", output, *typed, "--max-pairs-per-sentence", 3, "--seed", 5)
    assert code == 0, err
    made = mine(sentences, tiny_bi_encoder, device="cpu", n_pairs=50, max_pairs_per_sentence=3, seed=5)
    assert rows_of(output) == list(zip(made.pairs["sentence1"], made.pairs["sentence2"], strict=True))
    assert out.startswith(f"{output}: 50 pairs of ") and "80 sentences read" in out
    assert "| rare words in common (BM25) |" in out and "█" in out
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert len(read_pairs(output)) == 50


def test_the_record_is_printed_as_json(run, sentences, tiny_bi_encoder, tmp_path):
    typed = ("--start", tiny_bi_encoder, "--device", "cpu", "--n-pairs", 50, "--json")
    code, out, _ = run("mine", sentences, "--output", tmp_path / "pairs.jsonl", *typed)
    record = json.loads(out)
    assert code == 0 and sum(record["histogram"]["pairs"]) == 50
    assert {source: counts["pairs"] > 0 for source, counts in record["mix"].items()} == dict.fromkeys(
        ("neighbours", "bm25", "random"), True
    )


def test_pairs_of_queries_and_documents_go_to_stdout(run, sentences, tiny_pairs, tiny_bi_encoder, tmp_path):
    documents = tmp_path / "documents.jsonl"
    Dataset.from_dict({"text": tiny_pairs["sentence2"][:40]}).to_json(documents)
    typed = ("--documents", documents, "--start", tiny_bi_encoder, "--device", "cpu", "--n-pairs", 30, "--quiet")
    code, out, _ = run("mine", sentences, "--output", "-", *typed)
    rows = [line.split("\t") for line in out.splitlines()[1:]]
    assert code == 0 and len(rows) == 30
    assert {second for _, second in rows} <= set(tiny_pairs["sentence2"][:40])
    prompts = ("--prompt", "kama: ", "--document-prompt", "")
    with_prompts = run("mine", sentences, "--output", "-", *typed, *prompts)[1]
    options = {"device": "cpu", "n_pairs": 30, "prompt": "kama: ", "document_prompt": ""}
    made = mine(sentences, tiny_bi_encoder, documents=documents, **options).pairs
    assert with_prompts != out
    assert with_prompts.splitlines()[1:] == ["\t".join(row.values()) for row in made]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("--output", "sentences.txt"), "--output is 'sentences.txt', which is the file that is read"),
        (("--output", "pairs.xlsx"), "--output is 'pairs.xlsx'. Its name must end in .tsv"),
        (("--output", "no/pairs.tsv"), "there is no folder no"),
        (("--output", "p.tsv", "--n-pairs", "0"), "n_pairs is 0; it must be at least 1"),
        (("--output", "p.tsv", "--documents", "sentences.txt"), "--documents are SENTENCES"),
        (("--output", "-", "--json"), "both go to stdout"),
        (("--output", "p.tsv", "--document-prompt", "x "), "--document-prompt is for --documents. Give both"),
        (("--output", "p.tsv", "--documents", "d.txt", "--bad-rows-file", "b.tsv"), "--bad-rows-file is for one file"),
        (("--output", "p.tsv", "--pairs", "5"), "--pairs is not an option of transencoder mine; the nearest is"),
    ],
)
def test_wrong_input_is_refused_before_the_start_is_looked_for(run, sentences, typed, message, tmp_path):
    code, out, err = run("mine", "sentences.txt", "--start", "nowhere", *typed)
    assert (code, out) == (2, "") and message in err
    assert not (tmp_path / "p.tsv").exists()


def test_a_missing_file_or_start_is_named(run, sentences, tiny_bi_encoder):
    code, _, err = run("mine", "nothing.txt", "--output", "p.tsv", "--start", tiny_bi_encoder, "--device", "cpu")
    assert code == 2 and "nothing.txt: no such file" in err
    assert run("mine", sentences, "--output", "p.tsv")[0] == 2


def test_a_tab_in_a_sentence_is_told_before_anything_is_encoded(run, tmp_path, tiny_bi_encoder):
    (tmp_path / "tabs.jsonl").write_text('{"text": "one\\ttwo"}\n{"text": "three"}\n')
    code, _, err = run("mine", "tabs.jsonl", "--output", "p.tsv", "--start", tiny_bi_encoder, "--device", "cpu")
    assert code == 2 and "holds a tab or a line end" in err
