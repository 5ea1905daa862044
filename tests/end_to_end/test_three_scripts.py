"""A small corpus in Latin, Hebrew and Han: views, mining, training, the report, search, duplicates."""

import csv
import itertools
import json
import random
from pathlib import Path

import pytest
from transformers import BertConfig, BertModel, BertTokenizer

from transencoder.cli import main

SENTENCES = {
    "Latin": ("{} {} {}.", ("la gata", "mi tía", "el niño", "un pájaro"), ("bebe", "compra", "pide"), ("leche", "té")),
    "Hebrew": ("{} {} {}.", ("החתול", "דודה שלי", "הילד", "ציפור"), ("שותה", "קונה", "מבקשת"), ("חלב", "תה")),
    "Han": ("{}{}{}。", ("貓咪", "阿姨", "小孩子", "一隻鳥"), ("想要喝", "去買了", "請求"), ("牛奶", "綠茶", "清水")),
}
"""By script: how a sentence is put together, and its parts."""


@pytest.fixture(scope="module")
def corpus():
    """Sentences by script, all in one random order."""
    made = [
        (script, form.format(*parts))
        for script, (form, *lists) in SENTENCES.items()
        for parts in itertools.product(*lists)
    ]
    random.Random(0).shuffle(made)
    return made


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory):
    """Folder of a random BERT whose word pieces are the corpus's words, or characters where there are no spaces."""
    folder = tmp_path_factory.mktemp("model")
    words = {word for _, text in corpus for word in text.rstrip(".。").split()}
    characters = {character for _, text in corpus for character in text}
    pieces = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(characters), *sorted(words)])
    tokenizer = BertTokenizer(
        vocab={piece: i for i, piece in enumerate(pieces)}, do_lower_case=False, model_max_length=64
    )
    assert not any("[UNK]" in tokenizer.tokenize(text) for _, text in corpus)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(pieces), max_position_embeddings=64, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def run(monkeypatch, capsys, tmp_path, corpus):
    """Calls a command beside the corpus, `corpus.txt`; returns what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))
    Path("corpus.txt").write_text("".join(f"{text}\n" for _, text in corpus))

    def call(*arguments):
        code = main([*map(str, arguments), "--quiet"])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    return call


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_words_are_deleted_in_each(run, corpus):
    run("views", "--sentences", "corpus.txt", "--second", "word-deletion", "--share", 0.4, "--output", "views.tsv")
    rows = rows_of("views.tsv")
    assert [row["sentence1"] for row in rows] == [text for _, text in corpus]
    for script in SENTENCES:
        mine = [row for row, (other, _) in zip(rows, corpus, strict=True) if other == script]
        assert 0.6 * len(mine) < sum(len(row["sentence2"]) < len(row["sentence1"]) for row in mine)
        assert all(row["sentence2"] and set(row["sentence2"]) <= set(row["sentence1"]) for row in mine)


def test_sentences_become_models_and_a_report(run, corpus, model):
    small = "epochs=1 batch_size=16 learning_rate=1e-3 eval_steps=50".split()
    settings = [
        f"--{form}.{each.replace('_', '-').replace('=', ' ')}".split() for form in ("bi", "cross") for each in small
    ]
    run(
        *("train", "trans-encoder", "--sentences", "corpus.txt", "--n-pairs", 60, "--start", model, "--cycles", 1),
        *("--output", "run", "--device", "cpu", "--precision", "fp32", *itertools.chain(*settings)),
    )
    result = json.loads(Path("run/result.json").read_text("utf-8"))
    mined = result["data"]["pairs"]["mined"]
    assert mined["sentences"]["rows"] == len(corpus) and sum(mined["histogram"]["pairs"]) == 60
    assert set(result["texts"]["letters"]) == set(SENTENCES)
    page = Path("run/report.html").read_text("utf-8")
    assert all(f"<td>{script}</td>" in page or f">{script}<" in page for script in SENTENCES)
    shown = [text for _, text in corpus if f'<p dir="auto" lang="">{text}</p>' in page]
    assert len(shown) > 20 and "\ufffd" not in page


def test_each_sentence_finds_itself_and_its_copy(run, corpus, model):
    run("search", "build", "corpus.txt", "--model", model, "--device", "cpu", "--output", "index")
    some = [next(text for script, text in corpus if script == name) for name in SENTENCES]
    found = [json.loads(line) for line in run("search", "query", "index", *some, "--top-k", 1, "--json").splitlines()]
    assert [(hit["query"], hit["document"]) for hit in found] == list(zip(some, some, strict=True))

    with open("corpus.txt", "a", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in some)
    run("duplicates", "corpus.txt", "--model", model, "--threshold", 0.99999, "--output", "clusters.tsv")
    sentences = [row["sentence"] for row in rows_of("clusters.tsv")]
    assert sorted(sentences) == sorted(2 * some)
