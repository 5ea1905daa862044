"""Pairs made of sentences: rows, chunks and processes do not change what comes out."""

import pytest
from datasets import Dataset

from transencoder.errors import InputError
from transencoder.views import Contrasts, SpanMask, Synonyms, TwoViews, WordDeletion, as_is, pairs

LONG = "the washing machine stops before the drum is empty"


def test_rows_decide_what_comes_out_not_chunks_or_processes(tmp_path, monkeypatch):
    sentences = Dataset.from_dict({"text": [f"{LONG} {i}" for i in range(50)]})
    views = {"first": Synonyms(table={"drum": ("tub", "barrel")}), "second": WordDeletion()}
    monkeypatch.setattr(pairs, "CHUNK", 7)
    for name, n_processes, seed in (("chunked", 1, 1), ("parallel", 2, 1), ("other", 1, 2)):
        TwoViews(**views)(sentences, tmp_path / name, seed, n_processes)
    monkeypatch.setattr(pairs, "CHUNK", 50)
    whole = TwoViews(**views)(sentences, tmp_path / "whole", 1)
    assert whole.column_names == ["sentence1", "sentence2"]
    assert whole[:] == Dataset.from_file(str(tmp_path / "chunked"))[:]
    assert (tmp_path / "chunked").read_bytes() == (tmp_path / "parallel").read_bytes()
    assert whole["sentence1"][:] != Dataset.from_file(str(tmp_path / "other"))["sentence1"][:]
    assert whole["sentence2"][:] != Dataset.from_file(str(tmp_path / "other"))["sentence2"][:]


def test_what_a_seed_makes_stays():
    """Published numbers come from these bytes."""
    made = pairs._make((SpanMask(mask_token="<m>"), WordDeletion()), 7, [LONG, LONG.upper()], 0)
    assert made == (
        ["the washing machine stops befor <m>  drum is empty", "THE WASHING MACHINE STO <m> FORE THE DRUM IS EMPTY"],
        ["the washing machine before the drum is empty", "THE WASHING MACHINE STOPS BEFORE THE DRUM IS EMPTY"],
    )


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
