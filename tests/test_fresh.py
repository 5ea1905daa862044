"""A tokenizer made of one's own text: the same every time, and what it cannot be made of."""

import random

import pytest

from transencoder.encoders import fresh_masked, fresh_tokenizer
from transencoder.errors import InputError


def texts():
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklm", k=rng.randint(2, 9))) for _ in range(300)]
    return [[" ".join(rng.choices(words, k=12)) for _ in range(100)] for _ in range(4)]


def test_the_same_texts_make_the_same_vocabulary():
    """Was: the trainer numbered the pieces, and broke ties, in the order of a hash table."""
    first, *others = (fresh_tokenizer(texts, 300).get_vocab() for _ in range(4))
    assert all(other == first for other in others)
    assert sorted(first.values()) == list(range(300))


def test_it_reads_texts_of_its_characters_without_unknown_words():
    tokenizer = fresh_tokenizer(texts, 200)
    ids = tokenizer("Abcd MLKJ f")["input_ids"]
    assert ids[0] == tokenizer.cls_token_id and ids[-1] == tokenizer.sep_token_id
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "abcd mlkj f"


def test_more_characters_than_word_pieces_are_refused():
    with pytest.raises(InputError, match="vocabulary is 31, but the text has 13 different characters, which take 31"):
        fresh_tokenizer(texts, 31)


def test_the_seed_decides_the_weights():
    one, again, other = (
        fresh_masked(100, n_layers=1, width=64, max_length=16, seed=seed).bert.embeddings.word_embeddings.weight
        for seed in (1, 1, 2)
    )
    assert (one == again).all()
    assert not (one == other).all()
