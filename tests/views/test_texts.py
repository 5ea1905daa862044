"""What each view that needs the text alone does to it."""

import random

import pytest

from transencoder.errors import InputError
from transencoder.views import SpanMask, Synonyms, WordDeletion

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


def test_words_go_where_a_script_sets_no_spaces():
    text = "機械学習の本を読んだ人は多い。"
    made = [one(WordDeletion(share=0.3), text, seed) for seed in range(50)]
    assert all(1 < len(each) <= len(text) and not set(each) - set(text) for each in made)
    assert len(set(made)) > 20 and not any(" " in each for each in made)


def test_one_word_that_has_synonyms_is_replaced():
    view = Synonyms(table={"machine": ("appliance", "device"), "stops": ("halts",)})
    found = {one(view, "The machine stops.", seed) for seed in range(50)}
    assert found == {"The appliance stops.", "The device stops.", "The machine halts."}
    assert one(view, "Machine?") in {"Appliance?", "Device?"}
    assert one(view, "Nothing here") == "Nothing here"


def test_synonyms_are_named_by_what_they_are_and_not_by_all_their_words():
    table = {"machine": ("appliance",), "stops": ("halts",)}
    name = repr(Synonyms(table=table))
    assert name.startswith("Synonyms(2 words, ")
    assert name == repr(Synonyms(table=dict(reversed(table.items()))))
    assert name != repr(Synonyms(table={"machine": ("appliance",), "stops": ("ends",)}))
