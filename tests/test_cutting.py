"""Long texts are cut so that the tokens that a model reads stay the same, whatever splits them into words."""

import random

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from transencoder.cutting import cut

LIMIT = 12
WORDS = [*"a I été naïve ﬁne don't x-ray 3.14 e\u0301t hello, world! 東京 日本語 кот".split(), "\n", "\t ", "   "]


def texts(n, seed):
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) for _ in range(draw.randrange(50, 400))) for _ in range(n)]


@pytest.fixture(params=["wordpiece", "bytes", "unigram", "one word"])
def tokenizer(request):
    kind = request.param
    if kind == "bytes":
        made, trainer = Tokenizer(models.BPE()), trainers.BpeTrainer(vocab_size=400, show_progress=False)
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    elif kind == "unigram":
        made, trainer = Tokenizer(models.Unigram()), trainers.UnigramTrainer(vocab_size=200, show_progress=False)
        made.normalizer, made.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    elif kind == "one word":  # no word ends before the text does, so that nothing can be cut
        made, trainer = Tokenizer(models.BPE()), trainers.BpeTrainer(vocab_size=400, show_progress=False)
    else:
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[UNK]"], show_progress=False)
        made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(texts(30, seed=0), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made), kind


def test_what_a_model_reads_stays(tokenizer):
    own, kind = tokenizer
    given = [*texts(60, seed=1), "x" * 5000, " " * 5000, "\u3000" * 900 + "日" * 900, ""]
    read = cut(given, own, LIMIT)
    for text, shorter in zip(given, read, strict=True):
        assert text.startswith(shorter)
        whole, part = (own(each, add_special_tokens=False)["input_ids"] for each in (text, shorter))
        assert part[:LIMIT] == whole[:LIMIT]
        assert len(text) <= 16 * LIMIT or len(part) >= LIMIT or shorter == text
    n_cut = sum(len(shorter) < len(text) for text, shorter in zip(given, read, strict=True))
    assert n_cut == 0 if kind == "one word" else n_cut > 50


def test_what_cannot_be_cut_is_left(tokenizer):
    own, _ = tokenizer
    given = texts(5, seed=2)
    assert cut(given, own, None) is given
    own.truncation_side = "left"
    assert cut(given, own, LIMIT) is given
