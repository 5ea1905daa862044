"""What each view does to a text; synonyms from two columns and from WordNet's files."""

import random

import pytest

from transencoder.errors import InputError
from transencoder.views import SpanMask, Synonyms, WordDeletion, read_synonyms

LONG = "the washing machine stops before the drum is empty"
LICENCE = "  1 This software and database is being provided to you, the LICENSEE, by  \n"
FILES = {
    "data.noun": "02958343 06 n 05 car 0 auto 0 automobile 0 machine 6 motor_vehicle 0 003 @ 03791235 n 0000 "
    "#m 04576211 n 0000 ~ 02701002 n 0000 | a motor vehicle with four wheels  \n"
    "02959942 06 n 02 car 2 railcar 0 000 | a wheeled vehicle adapted to rails  \n",
    "data.verb": "00004227 29 v 03 take_a_breath 0 breathe 0 respire 1 000 01 + 02 00 | draw air  \n",
    "data.adj": "00005839 00 s 02 galore(ip) 0 abounding 0 001 & 00005473 a 0000 | existing in abundance  \n",
    "data.adv": "00003483 02 r 0a a 0 b 0 c 0 d 0 e 0 f 0 g 0 h 0 i 0 J 0 000 | ten lemmas  \n",
}


def one(view, text, seed=0):
    (made,) = view([text], [random.Random(seed)])
    return made


@pytest.mark.parametrize("text", [LONG, "abcde" * 8])
def test_a_span_of_five_characters_is_masked_where_it_stands(text):
    """The released code masks the first place that has the same characters."""
    found = set()
    for seed in range(300):
        before, _, after = one(SpanMask(mask_token="<m>"), text, seed).partition(" <m> ")
        assert text.startswith(before)
        assert text.endswith(after)
        assert len(before) + len(after) == len(text) - 5
        found.add(len(before))
    assert found == set(range(len(text) - 4))


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


@pytest.fixture
def wordnet(tmp_path):
    folder = tmp_path / "dict"
    folder.mkdir()
    for name, lines in FILES.items():
        (folder / name).write_text(LICENCE + lines)
    return folder


@pytest.fixture
def columns(tmp_path):
    def write(text):
        path = tmp_path / "synonyms.tsv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_two_columns_keep_their_order_and_count_repeated_lines_once(columns):
    text = "\ufeffWasher\twashing machine\r\nstops\thalts\nwasher\tappliance\nstops\thalts\nstops\tStops\n"
    assert read_synonyms(columns(text)) == {"washer": ("washing machine", "appliance"), "stops": ("halts",)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nalone\n", r"synonyms.tsv:2: not a word and a synonym. Read: 'alone'. Each line is word<TAB>synonym"),
        ("a\tb\tc\n", r"synonyms.tsv:1: not a word and a synonym"),
        ("a\tb\n\nc\td\n", r"synonyms.tsv:2: not a word and a synonym"),
        ("a\t \n", r"synonyms.tsv:1: not a word and a synonym"),
        ("washing machine\twasher\n", r"synonyms.tsv:1: 'washing machine' is not one word"),
        (b"a\tb\n\xff\tc\n", r"synonyms.tsv:2: not UTF-8"),
        ("a\tA\n", r"synonyms.tsv: no synonyms"),
        ("", r"synonyms.tsv: no synonyms"),
    ],
)
def test_a_bad_line_is_named(columns, text, message):
    with pytest.raises(InputError, match=message):
        read_synonyms(columns(text))


def test_wordnets_synsets_give_their_other_single_words(wordnet):
    table = read_synonyms(str(wordnet))
    assert table["car"] == ("auto", "automobile", "machine", "railcar")
    assert table["auto"] == ("car", "automobile", "machine")
    assert table["respire"] == ("breathe",)
    assert table["galore"] == ("abounding",)
    assert table["j"] == tuple("abcdefghi")
    assert table["a"] == (*"bcdefghi", "J")
    assert not any("_" in word for word in [*table, *sum(table.values(), ())])


def test_what_is_no_wordnet_is_refused(wordnet, tmp_path):
    (wordnet / "data.adv").rename(tmp_path / "data.adv")
    with pytest.raises(InputError, match=r"dict: there is no data.adv.*folder with WordNet's data.noun"):
        read_synonyms(wordnet)
    with pytest.raises(InputError, match=r"none: there is no such file or folder"):
        read_synonyms(tmp_path / "none")


@pytest.mark.parametrize(
    "line",
    [
        "car auto automobile",
        "02958343 06 x 01 car 0 000 | gloss",
        "02958343 06 n 03 car 0 auto 0 000 | gloss",
        "02958343 06 n zz car 0 000 | gloss",
        "02958343 06 n 01 car",
        "",
    ],
)
def test_a_line_that_is_no_synset_is_named(wordnet, line):
    with (wordnet / "data.verb").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(InputError, match=r"data.verb:3: no synset of WordNet's database. Read: "):
        read_synonyms(wordnet)
