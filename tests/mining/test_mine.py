"""Mining from end to end: sentences in, pairs and their record out."""

import numpy as np
import pytest
from datasets import Dataset

import transencoder
from tests.rounding import model_rounding
from transencoder import mine
from transencoder.encoders import load_bi
from transencoder.errors import InputError
from transencoder.mining import default_n_pairs
from transencoder.scorers import BiScorer

SCRIPTS = [
    *(f"{first}{second}機械{last}" for first in "東西南北" for second in "山川森海" for last in ("学習", "翻訳")),
    *(f"{first} {second} في البيت" for first in ("الولد", "البنت", "الرجل") for second in ("يقرأ", "يكتب", "ينام")),
    *(f"the {first} {second} at home" for first in ("boy", "girl", "man") for second in ("reads", "writes", "sleeps")),
]


@pytest.fixture(scope="module")
def sentences(tiny_pairs):
    texts = [*tiny_pairs["sentence1"][:], *tiny_pairs["sentence2"][:]]
    return Dataset.from_dict({"text": [*texts, texts[0], texts[1].upper() + "!"]})


@pytest.fixture(scope="module")
def options(tiny_bi_encoder, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("cache"))
    return {"start": tiny_bi_encoder, "device": "cpu", "precision": "fp32", "cache_folder": folder}


@pytest.fixture(scope="module")
def mined(sentences, options):
    return mine(sentences, **options, n_pairs=300, max_pairs_per_sentence=4)


def as_sets(mined):
    return [frozenset(pair) for pair in zip(mined.pairs["sentence1"], mined.pairs["sentence2"], strict=True)]


def test_pairs_are_of_two_sentences_once(mined, sentences):
    pairs = as_sets(mined)
    assert len(pairs) == len(set(pairs)) == 300
    assert all(len(pair) == 2 for pair in pairs)
    assert set.union(*map(set, pairs)) <= set(sentences["text"])


def test_no_sentence_is_in_more_pairs_than_asked(mined):
    texts = [*mined.pairs["sentence1"], *mined.pairs["sentence2"]]
    assert max(map(texts.count, set(texts))) <= 4


def test_scores_are_those_of_the_start(mined, options):
    model = load_bi(options["start"], device="cpu")
    expected = BiScorer(model, precision="fp32").score(mined.pairs)
    np.testing.assert_allclose(mined.scores, expected, rtol=0, atol=model_rounding(model))


def test_the_record_counts_what_there_is(mined, sentences):
    record = mined.record
    assert record["sentences"]["rows"] == len(sentences) == 402
    assert record["sentences"]["exact_duplicates"] >= 1 and record["sentences"]["near_duplicates"] >= 1
    mix, histogram = record["mix"], record["histogram"]
    assert list(mix) == ["neighbours", "bm25", "random"]
    for what in ("candidates", "pairs"):
        assert sum(histogram[what]) == sum(source[what] for source in mix.values())
    assert sum(histogram["pairs"]) == 300
    assert all(source["pairs"] for source in mix.values())
    assert len(set(mined.pairs["sentence1"]) | set(mined.pairs["sentence2"])) == record["paired_sentences"]
    counts, _ = np.histogram(mined.scores.astype(float), record["histogram"]["edges"])
    assert np.abs(counts - histogram["pairs"]).max() <= 1
    assert record["exact_search"] and "documents" not in record


def test_as_many_pairs_are_drawn_from_all_strata_that_have_them(mined):
    counts = np.array(mined.record["histogram"]["pairs"])
    there = np.array(mined.record["histogram"]["candidates"])
    is_plenty = there > 40
    assert is_plenty.sum() > 10 and np.ptp(there) > 1000
    assert np.ptp(counts[is_plenty]) <= 1 and (counts <= counts[is_plenty].max()).all()


def test_the_same_seed_gives_the_same_pairs_and_a_file_is_a_data_set(mined, sentences, options, tmp_path):
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(sentences["text"]) + "\n")
    again = mine(path, **options, n_pairs=300, max_pairs_per_sentence=4)
    assert again.pairs[:] == mined.pairs[:] and again.record == mined.record
    other = mine(path, **options, n_pairs=300, max_pairs_per_sentence=4, seed=7)
    assert set(as_sets(other)) != set(as_sets(mined))


def test_nothing_is_left_behind_but_the_pairs(mined, options, tmp_path):
    folder = tmp_path / "cache"
    found = mine(Dataset.from_dict({"text": ["balo", "bama", "dima"]}), **options | {"cache_folder": str(folder)})
    assert [path.suffix for path in folder.rglob("*") if path.is_file()] == [".arrow"]
    assert len(found.pairs) == 3


def test_three_scripts_go_end_to_end(options):
    found = mine(Dataset.from_dict({"text": SCRIPTS}), **options)
    assert found.record["paired_sentences"] == len(set(SCRIPTS))
    both = {kind: 0 for kind in ("機械", "البيت", "home")}
    for first, second in zip(found.pairs["sentence1"], found.pairs["sentence2"], strict=True):
        for kind in both:
            both[kind] += kind in first and kind in second
    assert min(both.values()) > 0
    assert found.record["mix"]["bm25"]["candidates"] > 0


def test_documents_are_the_second_texts(options, tiny_pairs):
    queries, documents = tiny_pairs["sentence1"][:30], [*tiny_pairs["sentence2"][:50], tiny_pairs["sentence1"][0]]
    tables = [Dataset.from_dict({"text": texts}) for texts in (queries, documents)]
    found = mine(tables[0], **options, documents=tables[1], n_pairs=100)
    assert set(found.pairs["sentence1"]) <= set(queries) and set(found.pairs["sentence2"]) <= set(documents)
    assert all(len(pair) == 2 for pair in as_sets(found)), "no document that is the query itself"
    assert found.record["documents"]["rows"] == 51
    assert len(found.pairs) == 100


@pytest.mark.parametrize("document_prompt", [None, "balo: "])
def test_queries_and_documents_are_read_with_their_prompts(document_prompt, options, tiny_pairs):
    tables = [Dataset.from_dict({"text": tiny_pairs[side][:40]}) for side in ("sentence1", "sentence2")]
    prompts = {"prompt": "kama dima: ", "document_prompt": document_prompt}
    found = mine(tables[0], **options, documents=tables[1], n_pairs=100, **prompts)
    model = load_bi(options["start"], device="cpu")
    expected = BiScorer(model, precision="fp32", **prompts).score(found.pairs)
    np.testing.assert_allclose(found.scores, expected, rtol=0, atol=model_rounding(model))
    assert np.abs(expected - BiScorer(model, precision="fp32").score(found.pairs)).max() > 1e-3


def test_fewer_pairs_than_wanted_are_told(options, caplog, monkeypatch):
    monkeypatch.setattr("transencoder.mining.candidates.EXACT_UP_TO", 2)
    found = mine(Dataset.from_dict({"text": ["balo", "bama", "dima"]}), **options, n_pairs=10)
    assert len(found.pairs) == 3
    assert "10 pairs were wanted, 3 are there" in caplog.text
    assert not found.record["exact_search"]


@pytest.mark.parametrize(
    ("texts", "changes", "message"),
    [
        (["balo", "Balo!"], {}, "no pair can be made of 1 distinct sentence,"),
        (["balo", "bama"], {"n_pairs": 0}, "n_pairs is 0; it must be at least 1"),
        (["balo", "bama"], {"max_pairs_per_sentence": 0}, "max_pairs_per_sentence is 0"),
        (["balo", " "], {}, "only white space"),
        (["balo", "bama"], {"document_prompt": "x "}, "document_prompt is 'x ', and there are no documents"),
    ],
)
def test_what_cannot_be_mined_is_refused(texts, changes, message, options):
    with pytest.raises(InputError, match=message):
        mine(Dataset.from_dict({"text": texts}), **options | changes)


def test_a_start_that_overflows_is_named(options, monkeypatch):
    monkeypatch.setattr(BiScorer, "embed_into", lambda self, embeddings, tokens: embeddings.fill(np.nan))
    with pytest.raises(InputError, match="embedding of 'balo' is not finite"):
        mine(Dataset.from_dict({"text": ["balo", "bama"]}), **options)


@pytest.mark.parametrize(
    ("n_sentences", "n_pairs"), [(3, 15), (2000, 10_000), (5000, 10_000), (20_000, 40_000), (10**6, 50_000)]
)
def test_so_many_pairs_unless_told_otherwise(n_sentences, n_pairs):
    assert default_n_pairs(n_sentences) == n_pairs


def test_the_package_has_it():
    assert transencoder.mine is mine and {"mine", "Mined"} <= set(transencoder.__all__)
