"""Spans of documents: how long they are, where they lie, what is refused."""

import numpy as np
import pytest
from datasets import Dataset

from transencoder.errors import InputError
from transencoder.scripts import split_words
from transencoder.views import Spans

TEXT = " ".join(f"w{i}" for i in range(200))
WORDS = split_words(TEXT)


def places(spans: list[str]) -> list[tuple[int, int]]:
    """First and last word of each, plus one."""
    numbers = [[int(word[1:]) for word in span.split()] for span in spans]
    assert all(each == list(range(each[0], each[-1] + 1)) for each in numbers)
    return [(each[0], each[-1] + 1) for each in numbers]


def sampled(seed: int, **changes) -> list[tuple[int, int]]:
    return places(Spans(document_words=128, **changes).sample(WORDS, np.random.default_rng(seed)))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("n_words", [128, 129, 160, 200])
def test_anchors_lie_in_cells_that_are_no_neighbours(seed, n_words):
    spans = Spans(document_words=128).sample(WORDS[:n_words], np.random.default_rng(seed))
    found = places(spans)
    assert len(found) == 6
    assert all(2 <= end - start <= 32 and 0 <= start and end <= n_words for start, end in found)
    (first, first_end), (second, second_end) = found[0], found[3]
    assert second // 32 - first // 32 >= 2
    assert [(end - 1) // 32 - start // 32 for start, end in ((first, first_end), (second, second_end))] == [0, 0]


@pytest.mark.parametrize("seed", range(30))
def test_positives_touch_their_anchor(seed):
    found = sampled(seed)
    for (start, end), positives in ((found[0], found[1:3]), (found[3], found[4:6])):
        assert all(first <= end and last >= start for first, last in positives)


@pytest.mark.parametrize("seed", range(20))
def test_where_positives_lie_can_be_said(seed):
    anchor, *positives = sampled(seed, relation="subsumed", n_anchors=1, n_positives=3)
    assert all(anchor[0] <= start and end <= anchor[1] for start, end in positives)
    anchor, *positives = sampled(seed, relation="adjacent", n_anchors=1, n_positives=3)
    assert all(end == anchor[0] or start == anchor[1] for start, end in positives)


def test_lengths_are_those_of_the_beta_distributions():
    """Anchors: mean 2/3 of the way from the shortest to the longest span; positives: 1/3."""
    found = [sampled(seed) for seed in range(400)]
    lengths = np.array([[end - start for start, end in spans] for spans in found])
    assert lengths[:, [0, 3]].mean() == pytest.approx(2 + 30 * 2 / 3 - 0.5, abs=0.5)
    assert lengths[:, [1, 2, 4, 5]].mean() == pytest.approx(2 + 30 / 3 - 0.5, abs=0.5)


def test_a_script_without_spaces_has_words_too():
    text = "".join(chr(0x4E00 + i) for i in range(256))
    spans = Spans(document_words=128).sample(split_words(text), np.random.default_rng(0))
    assert len(spans) == 6
    assert all(span in text and 4 <= len(span) <= 64 for span in spans)


def test_rows_depend_on_seed_and_document_only(tmp_path):
    documents = Dataset.from_dict({"text": [TEXT, " ".join(reversed(TEXT.split())), "a " * 128]})
    make = Spans(document_words=128, n_samples=2)
    rows = make(documents, tmp_path / "a.arrow", 7)
    again = make(documents.select(range(2)), tmp_path / "b.arrow", 7)
    other = make(documents, tmp_path / "c.arrow", 8)
    assert rows.column_names == [f"sentence{i}" for i in range(1, 7)]
    assert len(rows) == 6
    assert rows[:4] == again[:]
    assert rows[0] != rows[1]
    assert rows[:4] != other[:4]


def test_a_document_that_is_too_short_is_named(tmp_path):
    documents = Dataset.from_dict({"text": ["a " * 128, "b " * 127]})
    with pytest.raises(InputError, match=r"document 2 has 127 words, but document_words is 128: 'b b b.*smaller"):
        Spans(document_words=128)(documents, tmp_path / "a.arrow", 0)


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
        Spans(**changes)
