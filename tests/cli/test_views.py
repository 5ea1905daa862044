"""`views`: what it writes, what it compares, what it refuses; and that what is written can be trained on."""

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from transencoder.encoders import load_bi
from transencoder.pairs import read_pairs
from transencoder.scorers import BiScorer
from transencoder.views import SpanMask, TwoViews, as_is, compare

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "starts.md"


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSENCODER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRANSENCODER_DATA", raising=False)


@pytest.fixture
def sentences(tmp_path, tiny_sentences):
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(tiny_sentences["text"]) + "\n")
    return path


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


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "parquet"])
def test_views_are_written_as_in_python_in_the_format_of_the_name(ending, run, sentences, tmp_path, tiny_sentences):
    output = tmp_path / f"views.{ending}"
    typed = ("--mask-token", "<m>", "--seed", 5, "--output", output)
    code, out, err = run("views", "--sentences", sentences, "--second", "span-mask", *typed)
    assert code == 0, err
    assert out == f"{output}: 96 pairs, sentence1 as-is, sentence2 span-mask\n"
    made = TwoViews(first=as_is, second=SpanMask(mask_token="<m>"))(tiny_sentences, tmp_path / "api.arrow", 5)
    assert read_rows(output) == list(zip(made["sentence1"], made["sentence2"], strict=True))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert not list((tmp_path / "cache" / "rows").glob("views-*"))


def test_processes_write_the_same_bytes(run, sentences, tmp_path, monkeypatch):
    monkeypatch.setattr("transencoder.views.pairs.CHUNK", 7)
    typed = ("views", "--sentences", sentences, "--first", "span-mask", "--second", "word-deletion", "--share", 0.5)
    for n_processes in (1, 2):
        assert run(*typed, "--processes", n_processes, "--output", tmp_path / f"{n_processes}.tsv")[0] == 0
    assert (tmp_path / "1.tsv").read_bytes() == (tmp_path / "2.tsv").read_bytes()
    assert all(first != second for first, second in read_rows(tmp_path / "1.tsv"))


def test_synonyms_models_and_files_make_views(run, sentences, tmp_path, tiny_sentences, tiny_plm, monkeypatch):
    words = sorted({word for text in tiny_sentences["text"] for word in text.split()})
    (tmp_path / "synonyms.tsv").write_text("".join(f"{word}\tother\n" for word in words))
    for name in ("first", "second"):
        rows = [{"text": text, "translation": f"{name} {text}"} for text in tiny_sentences["text"]]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    base = ("views", "--sentences", sentences, "--output", tmp_path / "views.tsv")
    assert run(*base, "--second", "synonyms", "--synonyms", tmp_path / "synonyms.tsv")[0] == 0
    assert all(second.split().count("other") == 1 for _, second in read_rows(tmp_path / "views.tsv"))
    assert run(*base, "--second", "mlm", "--mlm", tiny_plm, "--share", 0.01, "--device", "cpu")[0] == 0
    for first, second in read_rows(tmp_path / "views.tsv"):
        assert sum(a != b for a, b in zip(first.split(), second.split(), strict=True)) == 1
    files = ("--translations", tmp_path / "first.jsonl", tmp_path / "second.jsonl")
    assert run(*base, "--first", "back-translation", "--second", "back-translation", *files)[0] == 0
    expected = [(f"first {text}", f"second {text}") for text in tiny_sentences["text"]]
    assert read_rows(tmp_path / "views.tsv") == expected
    assert run(*base, "--second", "back-translation", *files[:2])[0] == 0
    assert [second for _, second in read_rows(tmp_path / "views.tsv")] == [first for first, _ in expected]


def test_two_models_translate_there_and_back(run, sentences, tmp_path, tiny_plm, monkeypatch):
    made = []

    def translate(self, texts):
        made.append((self.folder.name, self.n_beams, self.device))
        return [f"{self.folder.name} {text}" for text in texts]

    monkeypatch.setattr("transencoder.views.Translator.__call__", translate)
    monkeypatch.setattr("transencoder.encoders.fetch", lambda name, **_: Path(name))
    models = ("--translate", "to-german", "--translate-back", "to-english", "--beams", 4, "--device", "cpu")
    typed = ("--second", "back-translation", *models, "--output", "views.tsv")
    code, _, err = run("views", "--sentences", sentences, *typed)
    assert code == 0, err
    assert made == [("to-german", 4, "cpu"), ("to-english", 4, "cpu")]
    assert all(second == f"to-english to-german {first}" for first, second in read_rows(tmp_path / "views.tsv"))


def test_kinds_are_compared_with_the_sentence_as_in_table_5(run, sentences, tiny_bi_encoder, tiny_sentences, tmp_path):
    kinds = ("as-is", "span-mask", "word-deletion")
    typed = ("views", "--sentences", sentences, "--second", *kinds, "--stats", "--model", tiny_bi_encoder)
    code, out, err = run(*typed, "--json", "--device", "cpu")
    assert code == 0, err
    found = json.loads(out)
    assert tuple(found) == kinds
    assert found["as-is"]["edit_distance"] == 0
    assert found["as-is"]["similarity"][tiny_bi_encoder] == pytest.approx(1)
    made = TwoViews(first=as_is, second=SpanMask(mask_token="[MASK]"))(tiny_sentences, tmp_path / "api.arrow", 2021)
    scorer = BiScorer(load_bi(Path(tiny_bi_encoder), device="cpu"))
    expected = compare(made, {tiny_bi_encoder: scorer})
    assert found["span-mask"]["edit_distance"] == expected.edit_distance > 5
    assert found["span-mask"]["edit_distance_std"] == expected.edit_distance_std
    assert found["span-mask"]["similarity"] == pytest.approx(expected.similarity)
    table = run(*typed, "--device", "cpu")[1]
    assert f"{expected.edit_distance:.2f} ± {expected.edit_distance_std:.2f}" in table
    assert f"{expected.similarity[tiny_bi_encoder]:.3f}" in table
    assert "against as-is" in table
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tsv"] == []


def test_given_columns_are_compared(run, tmp_path):
    path = tmp_path / "views.csv"
    path.write_text("id,german,french\n1,abc,abd\n2,a,abcd\n")
    code, out, err = run("views", "--pairs", path, "--columns", "german", "french", "--stats", "--json")
    assert code == 0, err
    assert json.loads(out) == {
        str(path): {"n_pairs": 2, "edit_distance": 2.0, "edit_distance_std": 1.0, "similarity": {}}
    }


def test_what_is_written_is_compared_too(run, sentences, tmp_path):
    typed = ("--second", "word-deletion", "--output", tmp_path / "views.tsv", "--stats")
    _, out, _ = run("views", "--sentences", sentences, *typed)
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
def test_what_does_not_go_together_is_refused_and_nothing_is_written(typed, message, run, sentences, tmp_path):
    code, out, err = run("views", "--sentences", sentences, *typed.split())
    assert (code, out) == (2, "")
    assert message in err
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(("v.", ".v"))]


def test_pairs_are_compared_and_not_made_again(run):
    for typed in ("", "--stats --second as-is", "--stats --output v.tsv"):
        code, _, err = run("views", "--pairs", "p.tsv", *typed.split())
        assert code == 2 and "--pairs are views already; --stats compares them" in err


@pytest.mark.parametrize("option", ["--sentences", "--synonyms", "--translations"])
def test_no_file_that_is_read_is_overwritten(option, run, sentences, tmp_path):
    kind = {"--synonyms": "synonyms", "--translations": "back-translation"}.get(option, "as-is")
    path = tmp_path / "read.tsv"
    path.write_text("balo\tbama\n")
    typed = () if option == "--sentences" else ("--sentences", sentences)
    code, _, err = run("views", *typed, option, path, "--second", kind, "--output", path)
    assert code == 2 and "which is the file that is read" in err
    assert path.read_text() == "balo\tbama\n"


def test_a_text_that_tsv_cannot_hold_is_refused_before_the_work(run, tmp_path, monkeypatch):
    (tmp_path / "tabs.jsonl").write_text('{"text": "one\\ttwo"}\n')
    monkeypatch.setattr("transencoder.views.TwoViews.__call__", lambda *_: pytest.fail("views were made"))
    code, _, err = run("views", "--sentences", "tabs.jsonl", "--second", "as-is", "--output", "v.tsv")
    assert code == 2 and "holds a tab or a line end" in err


def test_a_bad_view_leaves_no_file(run, sentences, tmp_path):
    (tmp_path / "few.tsv").write_text("some text\tits translation\n")
    typed = ("--second", "back-translation", "--translations", "few.tsv", "--output", "v.tsv")
    code, _, err = run("views", "--sentences", sentences, *typed)
    assert code == 2 and "few.tsv has no back-translation of" in err
    assert not (tmp_path / "v.tsv").exists()


def test_the_guides_commands_make_views_and_train_on_them(run, sentences, tmp_path, tiny_plm):
    """The two commands of docs/starts.md, with a tiny model and a few steps."""
    lines = [line for line in GUIDE.read_text().splitlines() if "views.tsv" in line and line.startswith("transencoder")]
    make, train, *_ = (shlex.split(line.replace("bert-base-uncased", tiny_plm))[1:] for line in lines)
    assert make[0] == "views" and train[:2] == ["train", "simcse"]
    assert run(*make, "--device", "cpu")[0] == 0
    few = ("--fit.batch-size", 16, "--fit.max-length", 16, "--device", "cpu", "--precision", "fp32")
    code, out, err = run(*train, *few)
    assert code == 0, err
    record = json.loads((tmp_path / "runs" / "start" / "result.json").read_text())
    assert record["data"]["pairs"]["rows"] == 96
    assert record["data"]["pairs"]["source"] == "views.tsv"
    embeddings = load_bi(tmp_path / "runs" / "start" / "bi-encoder", device="cpu").encode(["balo bama", "dalo"])
    assert np.isfinite(embeddings).all()
