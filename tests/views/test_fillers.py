"""Words that a masked language model puts in the places of others."""

import pickle
import random
import re
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from transencoder.errors import InputError
from transencoder.views import MaskedWords, fillers
from transencoder.views.fillers import Filler

TEXT = "Balo bama, (dalo)  unheard kama! gelo lelo mema? nioma-nioma balo"
"""Eight words that the tiny tokenizer has whole."""


@pytest.fixture(scope="module")
def folder(tiny_plm):
    return Path(tiny_plm)


@pytest.fixture(scope="module")
def view(folder):
    return MaskedWords(folder=folder, share=0.5, device="cpu")


def randoms(n, seed=0):
    return [random.Random(f"{seed} {i}") for i in range(n)]


def changed(text, made):
    """Words of both texts where they differ; all else must be the same."""
    assert re.split(r"\w+", text) == re.split(r"\w+", made)
    return [pair for pair in zip(re.findall(r"\w+", text), re.findall(r"\w+", made), strict=True) if pair[0] != pair[1]]


def test_a_share_of_the_words_becomes_other_words_and_the_rest_keeps_its_characters(view):
    found = set()
    for seed in range(40):
        (made,) = view([TEXT], randoms(1, seed))
        words = changed(TEXT, made)
        assert len(words) == 4
        assert all(old.lower() != new.lower() for old, new in words)
        assert all(old[0].isupper() == new[0].isupper() or new.isdecimal() for old, new in words)
        assert not {"unheard", "nioma"} & {old for old, _ in words}
        found |= {old for old, _ in words}
    assert found == {"Balo", "bama", "dalo", "kama", "gelo", "lelo", "mema", "balo"}


@pytest.mark.parametrize(("share", "n_words"), [(0.01, 1), (0.3, 2), (1.0, 8)])
def test_the_share_is_of_the_words_that_can_be_replaced(folder, share, n_words):
    (made,) = MaskedWords(folder=folder, share=share, device="cpu")([TEXT], randoms(1))
    assert len(changed(TEXT, made)) == n_words


def test_a_text_without_such_words_stays(view):
    texts = ["?!", "unheard things", TEXT]
    made = view(texts, randoms(3))
    assert made[:2] == texts[:2]
    assert made[2] != TEXT


def test_the_best_word_is_the_models_own_best_but_for_the_word_itself(folder):
    text = "balo bama dalo kama gelo"
    (made,) = MaskedWords(folder=folder, share=0.01, n_best=1, device="cpu")([text], randoms(1))
    ((old, new),) = changed(text, made)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder).eval()
    position = 1 + text.split().index(old)
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    ids[0, position] = tokenizer.mask_token_id
    with torch.no_grad():
        ranked = model(ids).logits[0, position].argsort(descending=True).tolist()
    words = [word for word in tokenizer.convert_ids_to_tokens(ranked) if re.fullmatch(r"\w+", word) and word != old]
    assert new == words[0]


def test_words_are_drawn_by_their_probabilities(folder):
    filler = Filler(folder, max_length=64, device="cpu")
    row = filler.read("balo bama dalo")
    ((words, shares),) = filler.best([row._replace(words=row.words[1:2])], 5)
    assert len(set(words)) == 5 and "bama" not in words
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    view = MaskedWords(folder=folder, share=0.01, n_best=5, device="cpu")
    made = view(["balo bama dalo"] * 1500, randoms(1500))
    drawn = [new for (old, new) in (changed("balo bama dalo", text)[0] for text in made) if old == "bama"]
    for word, share in zip(words, shares, strict=True):
        assert drawn.count(word) / len(drawn) == pytest.approx(share, abs=0.07)


def test_rows_decide_what_comes_out_not_what_they_are_batched_with(view, monkeypatch):
    texts = [" ".join(TEXT.split()[: 1 + i % 8]) for i in range(30)]
    whole = view(texts, randoms(30))
    monkeypatch.setattr(fillers, "_NUMBERS_AT_ONCE", 1)
    assert view(texts, randoms(30)) == whole
    alone = [view([text], [random.Random(f"0 {i}")])[0] for i, text in enumerate(texts)]
    assert alone == whole
    assert view(texts, randoms(30, 1)) != whole


def test_batches_keep_the_order_and_the_limit(folder, monkeypatch):
    filler = Filler(folder, max_length=64, device="cpu")
    rows = [filler.read("balo " * n) for n in (3, 9, 1, 1, 2, 30, 1)]
    monkeypatch.setattr(fillers, "_NUMBERS_AT_ONCE", 22 * len(filler.kinds))
    batches = list(filler._batches(rows))
    assert [len(batch) for batch in batches] == [2, 3, 1, 1]
    assert [row for batch in batches for row in batch] == rows


def test_words_behind_the_length_stay(folder):
    view = MaskedWords(folder=folder, share=1.0, max_length=5, device="cpu")
    (made,) = view(["balo bama dalo kama gelo"], randoms(1))
    assert [old for old, _ in changed("balo bama dalo kama gelo", made)] == ["balo", "bama", "dalo"]
    (made,) = MaskedWords(folder=folder, share=1.0, max_length=999, device="cpu")(["balo " * 400], randoms(1))
    assert len(changed("balo " * 400, made)) == 126  # of the model's 128 positions


def test_a_model_whose_tokenizer_names_no_limit_reads_as_far_as_its_positions(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "unlimited")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = 10**30
    tokenizer.save_pretrained(tmp_path / "unlimited")
    view = MaskedWords(folder=tmp_path / "unlimited", share=1.0, max_length=999, device="cpu")
    (made,) = view(["balo " * 400], randoms(1))
    assert len(changed("balo " * 400, made)) == 126


def test_it_goes_to_another_process_without_its_model(view):
    view([TEXT], randoms(1))
    assert len(pickle.dumps(view)) < 1000
    assert pickle.loads(pickle.dumps(view))([TEXT], randoms(1)) == view([TEXT], randoms(1))


def test_its_name_tells_the_models_content_and_not_its_place(view, folder, tmp_path):
    (tmp_path / "copy").symlink_to(folder)
    same = MaskedWords(folder=tmp_path / "copy", share=0.5)
    assert repr(same) == repr(view)
    assert re.fullmatch(r"MaskedWords\([0-9a-f]{16}, share=0.5, n_best=10, max_length=128\)", repr(view))


def test_what_cannot_be_drawn_from_is_refused(folder):
    for bad, message in (({"share": 0.0}, "share is 0.0.*above 0 to 1"), ({"n_best": 0}, "n_best is 0")):
        with pytest.raises(InputError, match=message):
            MaskedWords(folder=folder, **bad)


@pytest.mark.parametrize(
    ("pieces", "text", "expected"),
    [
        ("byte-level", "The drum, washers stop!", ["drum", "stop"]),
        ("metaspace", "The drum, washers stop!", ["The", "drum", "stop"]),
    ],
)
def test_tokenizers_that_mark_the_start_of_a_word_are_understood(pieces, text, expected, tmp_path):
    """As RoBERTa's and XLM-R's; the first word has no space before it, so that RoBERTa reads it as a piece."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    mark = {"byte-level": "Ġ", "metaspace": "▁"}[pieces]
    letters = sorted(set("Thedrum,washersstop!a") | {mark})
    words = [f"{mark}The", f"{mark}drum", f"{mark}stop", f"{mark}wash", "The", "er"]
    merges = []
    vocabulary = ["<pad>", "<unk>", "<mask>", *letters]
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary.append(word[:end])
                merges.append((word[: end - 1], word[end - 1]))
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(vocabulary)}, merges, unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = {
        "byte-level": (pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()),
        "metaspace": (pre_tokenizers.Metaspace(), decoders.Metaspace()),
    }[pieces]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", mask_token="<mask>", model_max_length=64
    )
    fast.save_pretrained(tmp_path)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    BertForMaskedLM(BertConfig(vocab_size=len(vocabulary), **size)).save_pretrained(tmp_path)
    filler = Filler(tmp_path, max_length=64, device="cpu")
    assert [text[word.start : word.stop] for word in filler.read(text).words] == expected
    assert {"drum", "stop", "The"} <= set(filler.words.values())
    assert "er" not in filler.words.values()
