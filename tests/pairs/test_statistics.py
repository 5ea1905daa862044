"""A training text in numbers."""

from datasets import Dataset

from transencoder.pairs import text_statistics


def test_pairs_are_counted_text_by_text():
    rows = Dataset.from_dict(
        {
            "sentence1": ["a b", "a b", "ab", "x"],
            "sentence2": ["c", "c", "ab", "a b"],
            "label": [0.1, 0.2, 0.3, 0.4],
        }
    )
    found = text_statistics(rows)
    assert (found["rows"], found["texts"], found["distinct_texts"]) == (4, 8, 4)
    assert (found["most_repeated"], found["repeated_rows"], found["same_text_rows"]) == (3, 1, 1)
    assert (found["characters"], found["longest"], found["median_length"]) == (16, 3, 2.0)
    assert found["letters"] == {"Latin": 13} and found["other_characters"] == 3


def test_pairs_in_the_other_order_are_no_repetition():
    assert text_statistics(Dataset.from_dict({"sentence1": ["a", "b"], "sentence2": ["b", "a"]}))["repeated_rows"] == 0


def test_scripts_are_those_of_unicode():
    found = text_statistics(Dataset.from_dict({"text": ["Γειά 123", "שלום", "क़ा", "東京タワー", "naïve 👋"]}))
    assert found["letters"] == {"Latin": 5, "Greek": 4, "Hebrew": 4, "Devanagari": 3, "Han": 2, "Katakana": 2}
    assert sum(found["letters"].values()) + found["other_characters"] == found["characters"]


def test_every_text_is_in_the_histogram():
    lengths = [*range(1, 300), 5000, 100_000]
    found = text_statistics(Dataset.from_dict({"text": ["x" * length for length in lengths]}))
    assert sum(found["length_counts"]) == len(lengths)
    assert len(found["length_edges"]) == len(found["length_counts"]) + 1
    assert found["longest"] == 100_000
    assert found["length_counts"][-1] == 2  # the last one has all longer texts


def test_no_text_at_all():
    found = text_statistics(Dataset.from_dict({"text": []}))
    assert found["texts"] == found["longest"] == sum(found["length_counts"]) == 0
