"""Words whatever the script, and repetitions that are left out before anything is encoded."""

import pytest
from datasets import Dataset

from transencoder.mining.corpus import distinct, plain_words, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't STOP, now: 3.5!", ["don", "t", "stop", "now", "3", "5"]),
        ("Ｆｕｌｌ ｗｉｄｔｈ ﬁne", ["full", "width", "fine"]),
        ("機械学習の本", ["機械", "械学", "学習", "習の", "の本"]),
        ("iPhone手機很好2024", ["iphone", "手機", "機很", "很好", "2024"]),
        ("本", ["本"]),
        ("한국어 문장", ["한국", "국어", "문장"]),
        ("น้ำดื่ม", ["น\u0e49\u0e4d", "\u0e49\u0e4dา", "\u0e4dาด", "าดื", "ดื่", "ื่ม"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("\u200fשלום, עולם!\u200f", ["שלום", "עולם"]),
        ("مرحبا\u060c بالعالم\u061f", ["مرحبا", "بالعالم"]),
        ("co\u00adoperate", ["cooperate"]),
        ("Привет, МИР", ["привет", "мир"]),
    ],
)
def test_terms_of_each_script(text, expected):
    assert terms(text) == expected


def test_plain_words_set_aside_case_punctuation_spacing_and_form():
    assert plain_words("  “Ｈello”,\tWORLD…\u200b") == plain_words("hello world")
    assert plain_words("a-b") == "a b" != plain_words("ab")
    assert plain_words("café") == plain_words("cafe\u0301") != plain_words("cafe")


def test_a_text_without_letters_stays_itself_and_differs_from_others():
    assert plain_words("?!") == "?!" != plain_words("...")
    assert terms("?!") == ["?!"]


def test_the_first_of_equal_and_of_alike_sentences_stays_in_order(monkeypatch):
    monkeypatch.setattr("transencoder.mining.corpus._BLOCK_ROWS", 3)
    texts = ["one two", "three", "One, two!", "three", "three", "four", "two one"]
    found = distinct(Dataset.from_dict({"text": texts}))
    assert found.texts["text"][:] == ["one two", "three", "four", "two one"]
    assert (found.n_exact, found.n_alike, len(found)) == (2, 1, 4)
    assert found.n_characters.tolist() == [7, 5, 4, 7]


def test_without_repetitions_the_data_set_is_itself():
    texts = Dataset.from_dict({"text": ["a", "b"]})
    assert distinct(texts).texts is texts
