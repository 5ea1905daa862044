"""Words of any script, and their text again."""

import pytest

from transencoder.scripts import join_words, split_words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  two  words\n", ["two", " words"]),
        ("한국어 문장", ["한국어", " 문장"]),
        ("機械学習の本、ABC です。", ["機械", "学習", "の本", "、ABC", " です", "。"]),
        ("นี้คือน้ำดื่ม", ["นี้คือ", "น้ำดื่", "ม"]),
        ("שלום עולם", ["שלום", " עולם"]),
        ("हिन्दी भाषा", ["हिन्दी", " भाषा"]),
        ("", []),
    ],
)
def test_words_of_each_script(text, expected):
    assert split_words(text) == expected


@pytest.mark.parametrize("text", ["two words", "機械学習の本、ABC です。", "ภาษาไทย ง่าย"])
def test_words_joined_are_the_text(text):
    words = split_words(text)
    assert join_words(words) == text
    assert join_words(words[1:]) == text[len(words[0]) :].removeprefix(" ")


def test_no_mark_is_parted_from_its_letter():
    assert all(word.removeprefix(" ")[0] not in "\u0e34\u0e35\u0e48\u0e49" for word in split_words("ที่นี่มีน้ำดื่มที่ดี"))
