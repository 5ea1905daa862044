"""Rows to train on: chunks and processes do not change what comes out; spans lie where the paper has them."""

import os
import shutil
import signal
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from transformers import AutoTokenizer

from transencoder.errors import InputError, RunError
from transencoder.views import Contrasts, SpanMask, Spans, Synonyms, TwoViews, WordDeletion, as_is, compare, pairs

LONG = "the washing machine stops before the drum is empty"
TEXT = " ".join(f"w{i}" for i in range(200))


def test_rows_decide_what_comes_out_not_chunks_or_processes(tmp_path, monkeypatch):
    sentences = Dataset.from_dict({"text": [f"{LONG} {i}" for i in range(50)]})
    views = {"first": Synonyms(table={"drum": ("tub", "barrel")}), "second": WordDeletion()}
    monkeypatch.setattr(pairs, "CHUNK", 7)
    monkeypatch.setattr(pairs, "get_context", lambda _: get_context("fork"))  # quick: it has imported everything
    for name, n_processes, seed in (("chunked", 1, 1), ("parallel", 2, 1), ("other", 1, 2)):
        TwoViews(**views)(sentences, tmp_path / name, seed, n_processes)
    monkeypatch.setattr(pairs, "CHUNK", 50)
    whole = TwoViews(**views)(sentences, tmp_path / "whole", 1)
    assert whole.column_names == ["sentence1", "sentence2"]
    assert whole[:] == Dataset.from_file(str(tmp_path / "chunked"))[:]
    assert (tmp_path / "chunked").read_bytes() == (tmp_path / "parallel").read_bytes()
    other = Dataset.from_file(str(tmp_path / "other"))
    assert all(whole[side][:] != other[side][:] for side in whole.column_names)


def killed(texts, randoms):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(pairs, "CHUNK", 1)
    monkeypatch.setattr(pairs, "get_context", lambda _: get_context("fork"))  # quick: it has imported everything
    sentences = Dataset.from_dict({"text": [str(i) for i in range(9)]})
    with pytest.raises(RunError, match="one of 2 processes that make views has ended: it was killed"):
        TwoViews(first=as_is, second=killed)(sentences, tmp_path / "views.arrow", 1, n_processes=2)
    assert not (tmp_path / "views.arrow").exists()


def test_after_ctrl_c_a_process_makes_no_further_chunk(monkeypatch):
    """Was: it made the next one, which with a language model took 18 s, before the command ended."""
    asked = []

    def interrupted(texts, randoms):
        asked.append(texts)
        raise KeyboardInterrupt

    monkeypatch.setattr(pairs, "_of_process", [((as_is, interrupted), 1)])
    for text in ("one", "two"):
        with pytest.raises(KeyboardInterrupt):
            pairs._make_in_process([text], 0)
    assert asked == [["one"]]


def test_what_a_seed_makes_stays():
    """Published numbers come from these bytes."""
    made = pairs._make((SpanMask(mask_token="<m>"), WordDeletion()), 7, [LONG, LONG.upper()], 0)
    assert made == (
        ["the washing machine stops befor <m>  drum is empty", "THE WASHING MACHINE STO <m> FORE THE DRUM IS EMPTY"],
        ["the washing machine before the drum is empty", "THE WASHING MACHINE STOPS BEFORE THE DRUM IS EMPTY"],
    )


def test_both_sides_draw_apart():
    mask = SpanMask(mask_token="[MASK]")
    first, second = pairs._make((mask, mask), 1, [f"{LONG} {i}" for i in range(20)], 0)
    assert first != second


@pytest.mark.parametrize("bad", [lambda texts, _: texts[1:], lambda texts, _: [" "] + texts[1:]])
def test_a_view_that_loses_a_text_is_refused_and_leaves_no_file(tmp_path, bad):
    sentences = Dataset.from_dict({"text": ["one", "two"]})
    with pytest.raises(InputError, match="one text for each"):
        TwoViews(first=as_is, second=bad)(sentences, tmp_path / "views.arrow", 1)
    assert not (tmp_path / "views.arrow").exists()


def test_contrasts_never_pair_a_row_with_itself_as_negative(tmp_path):
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


def sampled(seed: int, n_tokens: int = 200, **changes) -> list[tuple[int, int]]:
    """Return the first token of each span, and the one behind it."""
    return Spans(document_words=128, folder=Path("unread"), **changes).sample(n_tokens, np.random.default_rng(seed))


@pytest.mark.parametrize("n_words", [128, 129, 160, 200])
def test_anchors_lie_in_cells_that_are_no_neighbours_and_positives_touch_them(n_words):
    for seed in range(30):
        found = sampled(seed, n_words)
        assert len(found) == 6
        assert all(2 <= end - start <= 32 and 0 <= start and end <= n_words for start, end in found)
        assert all((end - 1) // 32 == start // 32 for start, end in (found[0], found[3]))
        assert found[3][0] // 32 - found[0][0] // 32 >= 2
        for (start, end), positives in ((found[0], found[1:3]), (found[3], found[4:6])):
            assert all(first <= end and last >= start for first, last in positives)


def test_where_positives_lie_can_be_said():
    for seed in range(20):
        anchor, *positives = sampled(seed, relation="subsumed", n_anchors=1, n_positives=3)
        assert all(anchor[0] <= start and end <= anchor[1] for start, end in positives)
        anchor, *positives = sampled(seed, relation="adjacent", n_anchors=1, n_positives=3)
        assert all(end == anchor[0] or start == anchor[1] for start, end in positives)


def test_lengths_are_those_of_the_beta_distributions():
    """Anchors: mean 2/3 of the way from the shortest to the longest span; positives: 1/3."""
    lengths = np.diff([sampled(seed) for seed in range(400)])[..., 0]
    assert lengths[:, [0, 3]].mean() == pytest.approx(2 + 30 * 2 / 3 - 0.5, abs=0.5)
    assert lengths[:, [1, 2, 4, 5]].mean() == pytest.approx(2 + 30 / 3 - 0.5, abs=0.5)


@pytest.fixture
def spans(tiny_plm):
    return partial(Spans, document_words=128, folder=Path(tiny_plm))


def test_spans_are_texts_of_as_many_tokens(spans, tiny_plm, tmp_path):
    """Of subwords: most of these words are several of the tokenizer's tokens."""
    tokenizer, text = AutoTokenizer.from_pretrained(tiny_plm), "Unheardof wordings, balo; " * 90
    rows = spans(n_samples=20)(Dataset.from_dict({"text": [text]}), tmp_path / "a.arrow", 7)
    n_tokens = len(tokenizer(text, add_special_tokens=False)["input_ids"])
    assert n_tokens > 2 * len(text.split())
    places = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    for i, row in enumerate(rows):
        drawn = spans().sample(n_tokens, np.random.default_rng((7, 0, i)))
        assert list(row.values()) == [text[places[start][0] : places[end - 1][1]] for start, end in drawn]


def test_rows_of_spans_depend_on_seed_and_document_only(spans, tmp_path):
    documents = Dataset.from_dict({"text": [TEXT, " ".join(reversed(TEXT.split())), "a " * 128]})
    make = spans(n_samples=2)
    rows = make(documents, tmp_path / "a.arrow", 7)
    again = make(documents.select(range(2)), tmp_path / "b.arrow", 7)
    other = make(documents, tmp_path / "c.arrow", 8)
    assert rows.column_names == [f"sentence{i}" for i in range(1, 7)]
    assert len(rows) == 6
    assert rows[:4] == again[:]
    assert rows[0] != rows[1]
    assert rows[:4] != other[:4]


def test_the_name_of_spans_is_their_tokenizers_content(spans, tiny_plm, tmp_path):
    copied = shutil.copytree(tiny_plm, tmp_path / "copy")
    assert repr(spans()) == repr(spans(folder=copied)) != repr(spans(n_samples=2))
    file = copied / "tokenizer.json"
    file.write_text(file.read_text().replace('"balo"', '"bazo"'))
    assert repr(spans(folder=copied)) != repr(spans())


def test_a_document_that_is_too_short_is_named(spans, tmp_path):
    documents = Dataset.from_dict({"text": ["a " * 128, "b " * 127]})
    with pytest.raises(InputError, match=r"document 2 has 127 words, but document_words is 128: 'b b b.*smaller"):
        spans()(documents, tmp_path / "a.arrow", 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_anchors": 0}, "n_anchors is 0; it must be at least 1"),
        ({"n_positives": 0}, "n_positives is 0"),
        ({"n_samples": 0}, "n_samples is 0"),
        ({"document_words": 7}, "document_words is 7; with 2 anchors it must be at least 8"),
    ],
)
def test_numbers_that_leave_no_spans_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        Spans(**changes, folder=Path("unread"))


class Fixed:
    def __init__(self, scores):
        self.scores = np.array(scores, np.float32)

    def score(self, pairs):
        return self.scores[: len(pairs)]


@pytest.mark.parametrize("block", [2, 100])
def test_distances_and_similarities_are_averaged_over_the_pairs(block, monkeypatch):
    monkeypatch.setattr(pairs, "_BLOCK_ROWS", block)
    words = [("kitten", "sitting"), ("", "abc"), ("same", "same"), ("Größe", "Grosse"), ("ab", "ba")]
    distances = [3, 3, 0, 3, 2]
    rows = Dataset.from_dict({"sentence1": [a for a, _ in words], "sentence2": [b for _, b in words]})
    found = compare(rows, {"one": Fixed([1.0, 0.5, 0.0, -0.5, 0.5]), "two": Fixed([0.25] * 5)})
    assert found.n_pairs == 5
    assert found.edit_distance == pytest.approx(np.mean(distances))
    assert found.edit_distance_std == pytest.approx(np.std(distances))
    assert found.similarity == {"one": pytest.approx(0.3), "two": pytest.approx(0.25)}


def test_equal_distances_have_no_deviation():
    rows = Dataset.from_dict({"sentence1": ["a" * 1000] * 7, "sentence2": ["b" * 1001] * 7})
    found = compare(rows, {})
    assert (found.edit_distance, found.edit_distance_std, found.similarity) == (1001.0, 0.0, {})
