"""Starting encoders: which texts are trained on, and what pairs are made of them."""

from pathlib import Path

import pytest
from datasets import Dataset

from transencoder import read_pairs, train
from transencoder.errors import InputError
from transencoder.pairs import read_sentences
from transencoder.training import plan
from transencoder.training.data import read_text_data

WORDS = [f"{first}a{last}" for first in "bdfgklmn" for last in ("lo", "ma")]


def test_mirror_bert_masks_the_second_view_with_the_tokenizers_own_token(tiny_start):
    run = train(tiny_start("mirror-bert", dev=None, tests=())).folder
    (path,) = run.glob("stages/pairs-*/pairs.arrow")
    views = Dataset.from_file(str(path))
    texts = read_sentences(tiny_start("mirror-bert").sentences)["text"][:]
    assert views["sentence1"][:] == texts
    assert all(
        (" [MASK] " in masked) == (len(text) >= 30) for text, masked in zip(texts, views["sentence2"], strict=True)
    )


def test_contrasts_are_the_sentence_itself_and_pairs_of_others(tiny_start):
    run = train(tiny_start("contrastive-tension", dev=None, tests=(), n_negatives=3)).folder
    (path,) = run.glob("stages/pairs-*/pairs.arrow")
    rows = Dataset.from_file(str(path))
    texts = read_sentences(tiny_start("simcse").sentences)["text"][:]
    assert len(rows) == 4 * len(texts)
    assert [row["sentence1"] for row in rows if row["label"]] == texts
    assert all((row["sentence1"] == row["sentence2"]) == bool(row["label"]) for row in rows)


def test_given_pairs_are_the_two_views(tiny_start, tiny_files):
    trained = train(tiny_start("simcse", sentences=str(tiny_files / "pairs.tsv"), columns=("sentence1", "sentence2")))
    assert "pairs" not in {stage["name"] for stage in trained.result["stages"]}
    assert trained.result["data"]["pairs"]["rows"] == 96
    report = (trained.folder / "report.md").read_text()
    (line,) = (line for line in report.splitlines() if "training pairs" in line and "96 rows" in line)
    assert "unlabelled" in line
    with pytest.raises(InputError, match="makes its pairs itself"):
        tiny_start("contrastive-tension", columns=("sentence1", "sentence2"))
    with pytest.raises(InputError, match="columns names 3 columns"):
        tiny_start("simcse", columns=("a", "b", "c"))


def test_the_card_of_given_pairs_does_not_speak_of_dropout(tiny_start, tiny_files):
    trained = train(tiny_start("simcse", sentences=str(tiny_files / "pairs.tsv"), columns=("sentence1", "sentence2")))
    assert "contrastive tuning on pairs" in (trained.folder / "bi-encoder" / "README.md").read_text()
    assert "dropout changed it" not in trained.result["about"]


def test_test_sentences_can_be_left_out(tiny_start, tiny_files, tiny_pairs, tmp_path):
    held_out = read_pairs(str(tiny_files / "test.tsv"))["sentence1"][:3]
    path = tmp_path / "more.txt"
    path.write_text("\n".join([*held_out, *tiny_pairs["sentence1"][:16]]) + "\n")
    kept = train(tiny_start("simcse", sentences=str(path), dev=None, exclude_test_sentences=True))
    assert kept.result["data"]["sentences"]["transductive"] is False
    assert kept.result["data"]["sentences"]["excluded_rows"] >= 3
    assert "were left out of training (inductive)" in (kept.folder / "report.md").read_text()


def test_so_many_sentences_are_left_when_those_of_the_tests_are_out(tiny_start, tiny_files, tiny_pairs, tmp_path):
    held_out = read_pairs(str(tiny_files / "test.tsv"))["sentence1"][:]
    path = tmp_path / "more.txt"
    path.write_text("\n".join([*held_out, *tiny_pairs["sentence1"][:30]]) + "\n")
    kept = train(tiny_start("simcse", sentences=str(path), dev=None, exclude_test_sentences=True, n_sentences=20))
    assert kept.result["data"]["sentences"]["rows"] == 20


def test_only_sentences_that_were_drawn_make_a_run_transductive(tiny_start, tiny_files, tmp_path):
    """Was: a test sentence anywhere in the file did."""
    held_out = read_pairs(str(tiny_files / "test.tsv"))["sentence1"][0]
    path = tmp_path / "more.txt"
    path.write_text("\n".join([held_out, *(f"balo dama {word} felo" for word in WORDS)]) + "\n")
    records = [
        read_text_data(config, config.rows.text, None).record
        for n in (2, 1 + len(WORDS))
        for config in [tiny_start("simcse", sentences=str(path), dev=None, n_sentences=n, seed=1)]
    ]
    assert [record["transductive"] for record in records] == [False, True]
    assert [record["transductive_rows"] for record in records] == [0, 1]


def test_so_many_sentences_can_be_drawn(tiny_start, weights):
    keep = {"tests": (), "dev": None}
    first, again, other = (train(tiny_start("simcse", n_sentences=40, seed=seed, **keep)) for seed in (1, 1, 2))
    assert weights(first.folder) == weights(again.folder)
    records = [run.result["data"]["sentences"] for run in (first, again, other)]
    assert [(record["rows"], record["drawn_from"]) for record in records] == [(40, 96)] * 3
    assert records[0]["fingerprint"] == records[1]["fingerprint"] != records[2]["fingerprint"]
    assert "40 rows drawn from the 96 of" in (first.folder / "report.md").read_text()
    with pytest.raises(InputError, match="n_sentences is 97, but .* has 96; give at most that"):
        train(tiny_start("simcse", n_sentences=97, **keep))
    for name in ("simcse", "contrastive-tension"):
        with pytest.raises(InputError, match="of which n_sentences takes 1: there must be at least 2"):
            plan(tiny_start(name, n_sentences=1, **keep))
    with pytest.raises(InputError, match="n_sentences is 0; it must be at least 1"):
        tiny_start("simcse", n_sentences=0)


def test_documents_that_are_too_short_are_refused_or_left_out(tiny_start, sentences, documents, tmp_path):
    with pytest.raises(InputError, match=r"96 of 96 documents have fewer than document_words, 64; the first .* longer"):
        plan(tiny_start("declutr", documents=sentences, document_words=64))
    path = tmp_path / "mixed.txt"
    path.write_text("balo dama\n" + Path(documents).read_text())
    with pytest.raises(
        InputError, match="1 of 33 documents have fewer .* first is document 1, with 2, the shortest has 2"
    ):
        train(tiny_start("declutr", documents=str(path)))
    kept = train(tiny_start("declutr", documents=str(path), skip_bad_rows=True))
    assert (kept.result["data"]["documents"]["rows"], kept.result["data"]["documents"]["short_rows"]) == (32, 1)
    assert "1 document of too few words were left out" in (kept.folder / "report.md").read_text()


def test_one_sentence_has_no_negatives(tiny_start, tmp_path):
    (tmp_path / "one.txt").write_text("balo dama felo\n")
    with pytest.raises(InputError, match="of 1 row: there must be at least 2"):
        train(tiny_start("simcse", sentences=str(tmp_path / "one.txt")))
