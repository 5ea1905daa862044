"""Views: what each does to a text, and that rows, chunks and processes do not change what comes out."""

import random

import pytest
from datasets import Dataset

from transencoder import views
from transencoder.errors import InputError
from transencoder.views import Contrasts, SpanMask, Synonyms, TwoViews, WordDeletion, as_is

LONG = "the washing machine stops before the drum is empty"


def one(view, text, seed=0):
    (made,) = view([text], [random.Random(seed)])
    return made


def test_a_span_of_five_characters_is_masked_where_it_stands():
    found = set()
    for seed in range(300):
        before, _, after = one(SpanMask(mask_token="<m>"), LONG, seed).partition(" <m> ")
        assert LONG.startswith(before)
        assert LONG.endswith(after)
        assert len(before) + len(after) == len(LONG) - 5
        found.add(len(before))
    assert found == set(range(len(LONG) - 4))


def test_short_texts_keep_all_their_characters():
    assert one(SpanMask(mask_token="[MASK]"), LONG[:29]) == LONG[:29]
    assert "[MASK]" in one(SpanMask(mask_token="[MASK]"), LONG[:30])
    assert one(SpanMask(mask_token="[MASK]", min_characters=0), "abcd") == "abcd"


def test_words_go_in_their_share_and_one_stays():
    kept = [one(WordDeletion(share=0.3), LONG, seed).split() for seed in range(400)]
    for each in kept:
        left = iter(LONG.split())
        assert all(word in left for word in each), "a part of the text, in its order"
    # one of nine words always stays
    assert sum(map(len, kept)) / 400 / 9 == pytest.approx(0.7 + 0.3 / 9, abs=0.02)
    assert {len(one(WordDeletion(share=0.99), "on off", seed).split()) for seed in range(50)} == {1}
    assert one(WordDeletion(share=0.99), "off") == "off"
    with pytest.raises(InputError, match=r"share is 1.0.*below 1"):
        WordDeletion(share=1.0)


def test_one_word_that_has_synonyms_is_replaced():
    view = Synonyms(table={"machine": ("appliance", "device"), "stops": ("halts",)})
    found = {one(view, "The machine stops.", seed) for seed in range(50)}
    assert found == {"The appliance stops.", "The device stops.", "The machine halts."}
    assert one(view, "Machine?") in {"Appliance?", "Device?"}
    assert one(view, "Nothing here") == "Nothing here"


def test_rows_decide_what_comes_out_not_chunks_or_processes(tmp_path, monkeypatch):
    sentences = Dataset.from_dict({"text": [f"{LONG} {i}" for i in range(50)]})
    mask = SpanMask(mask_token="[MASK]")
    whole = TwoViews(first=as_is, second=mask)(sentences, tmp_path / "whole.arrow", 1)
    monkeypatch.setattr(views, "_CHUNK", 7)
    chunked = TwoViews(first=as_is, second=mask)(sentences, tmp_path / "chunked.arrow", 1)
    parallel = TwoViews(first=as_is, second=mask)(sentences, tmp_path / "parallel.arrow", 1, n_processes=2)
    other = TwoViews(first=as_is, second=mask)(sentences, tmp_path / "other.arrow", 2)
    assert whole.column_names == ["sentence1", "sentence2"]
    assert whole["sentence1"][:] == sentences["text"][:]
    assert whole["sentence2"][:] == chunked["sentence2"][:] == parallel["sentence2"][:]
    assert whole["sentence2"][:] != other["sentence2"][:]


def test_both_sides_draw_apart(tmp_path):
    sentences = Dataset.from_dict({"text": [f"{LONG} {i}" for i in range(20)]})
    mask = SpanMask(mask_token="[MASK]")
    made = TwoViews(first=mask, second=mask)(sentences, tmp_path / "views.arrow", 1)
    assert made["sentence1"][:] != made["sentence2"][:]


@pytest.mark.parametrize("bad", [lambda texts, _: texts[1:], lambda texts, _: [" "] + texts[1:]])
def test_a_view_that_loses_a_text_is_refused_and_leaves_no_file(tmp_path, bad):
    sentences = Dataset.from_dict({"text": ["one", "two"]})
    with pytest.raises(InputError, match="one text for each"):
        TwoViews(first=as_is, second=bad)(sentences, tmp_path / "views.arrow", 1)
    assert not (tmp_path / "views.arrow").exists()


def test_contrasts_never_pair_a_row_with_itself_as_negative(tmp_path, monkeypatch):
    sentences = Dataset.from_dict({"text": [str(i) for i in range(5)]})
    made = Contrasts(n_negatives=40)(sentences, tmp_path / "a.arrow", 1)
    assert len(made) == 5 * 41
    assert [row["sentence1"] for row in made if row["label"] == 1] == sentences["text"][:]
    assert all((row["sentence1"] == row["sentence2"]) == (row["label"] == 1) for row in made)
    others = {(row["sentence1"], row["sentence2"]) for row in made if row["label"] == 0}
    assert len(others) == 5 * 4
    assert Contrasts(n_negatives=40)(sentences, tmp_path / "b.arrow", 2)["sentence2"][:] != made["sentence2"][:]
    with pytest.raises(InputError, match="at least 2"):
        Contrasts()(sentences.select([0]), tmp_path / "c.arrow", 1)


def test_a_makers_name_says_what_it_does_and_no_address():
    maker = TwoViews(first=as_is, second=SpanMask(mask_token="[MASK]"))
    assert repr(maker) == "TwoViews(as_is, SpanMask(mask_token='[MASK]', n_characters=5, min_characters=30))"
    assert repr(Contrasts(n_negatives=3)) == "Contrasts(n_negatives=3)"
