"""Cached tokens are what the model's own `preprocess` makes, made once, and whole or not there."""

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import DataCollatorWithFlattening

from tests.losses.batches import assert_same_features
from transencoder import tokens as tokens_module
from transencoder.tokens import TokenCache

SENTENCE1 = ["balo bama", "dalo dama felo fema", "balo bama", "kama", "x, y!", "lelo memo " * 40]
SENTENCE2 = ["dalo", "balo bama", "bama balo", "kama", "dalo dama felo fema", "gelo"]


def as_pairs(first: list[str], second: list[str]) -> Dataset:
    return Dataset.from_dict({"sentence1": first, "sentence2": second})


@pytest.fixture(scope="module")
def pairs():
    return as_pairs(SENTENCE1, SENTENCE2)


@pytest.fixture
def calls(monkeypatch):
    """How many texts each call of `preprocess` had."""
    found: list[int] = []
    for form in (SentenceTransformer, CrossEncoder):

        def preprocess(self, inputs, *args, _own=form.preprocess, **kwargs):
            found.append(len(inputs))
            return _own(self, inputs, *args, **kwargs)

        monkeypatch.setattr(form, "preprocess", preprocess)
    return found


@pytest.mark.parametrize("rows", [[0], [1, 3], [4, 0, 2, 2], [5, 0]])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_batch_of_pairs_is_what_preprocess_makes(cross, pairs, tmp_path, rows, swapped, side):
    cross.tokenizer.padding_side = side
    cross.tokenizer.pad_token = "[MASK]"  # an id that is not 0
    chosen = pairs.select(rows)
    columns = [list(chosen["sentence1"]), list(chosen["sentence2"])]
    texts = list(zip(*(reversed(columns) if swapped else columns), strict=True))
    tokens = TokenCache(tmp_path).pairs(cross, pairs, swapped=swapped)
    assert len(tokens) == len(pairs)
    assert_same_features(tokens.batch(np.array(rows)), cross.preprocess(texts))


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("prompt", [None, "balo: "])
def test_a_batch_of_sentences_is_what_preprocess_makes(bi, pairs, tmp_path, side, prompt):
    bi.tokenizer.padding_side = side
    sentences = TokenCache(tmp_path).sentences(bi, pairs, prompt)
    for column, index in zip(("sentence1", "sentence2"), sentences.index.T, strict=True):
        assert_same_features(sentences.tokens.batch(index), bi.preprocess(list(pairs[column]), prompt=prompt))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_index_of_many_rows(bi, tmp_path, monkeypatch, seed):
    """Several chunks, and texts that come back far from where they were first."""
    monkeypatch.setattr(tokens_module, "_CHUNK", 64)
    rng = np.random.default_rng(seed)
    first, second = ([f"balo {i}" for i in rng.integers(0, 150, 300)] for _ in range(2))
    sentences = TokenCache(tmp_path).sentences(bi, as_pairs(first, second))
    numbers: dict[str, int] = {}
    expected = [[numbers.setdefault(text, len(numbers)) for text in pair] for pair in zip(first, second, strict=True)]
    assert sentences.index.tolist() == expected
    lengths = bi.preprocess(list(numbers))["attention_mask"].sum(1).tolist()
    assert sentences.tokens.lengths.tolist() == lengths
    assert sentences.lengths.tolist() == [max(lengths[i] for i in pair) for pair in expected]
    assert_same_features(sentences.tokens.batch(np.arange(len(numbers))), bi.preprocess(list(numbers)))


def test_long_texts_are_cut_at_the_models_length(bi, cross, pairs, tmp_path):
    bi.max_seq_length, cross.max_seq_length = 10, 12
    cache = TokenCache(tmp_path)
    sentences, joined = cache.sentences(bi, pairs).tokens, cache.pairs(cross, pairs)
    assert sentences.lengths.max() == 10
    assert joined.lengths.max() == 12
    row = sentences.ids[sentences.offsets[-2] - 10 : sentences.offsets[-2]]
    assert row[-1] == bi.tokenizer.sep_token_id
    assert_same_features(joined.batch(np.arange(6)), cross.preprocess(list(zip(SENTENCE1, SENTENCE2, strict=True))))


@pytest.mark.parametrize("lengths", [(300, 299), (299, 300), (300, 300), (300, 2)])
def test_long_texts_of_a_pair_are_cut_before_the_tokenizer_combines_them(cross, tmp_path, lengths, monkeypatch):
    """Was: two texts of 20,000 characters took 16 s and 5 GB."""
    cross.max_seq_length = 12  # 9 without the special tokens: the longer text has 5 of them
    texts, own, read = [word * n for word, n in zip(("balo ", "dalo "), lengths, strict=True)], cross.preprocess, []
    monkeypatch.setattr(cross, "preprocess", lambda inputs, **more: read.extend(*inputs) or own(inputs, **more))
    tokens = TokenCache(tmp_path).pairs(cross, as_pairs(*([text] for text in texts)))
    assert_same_features(tokens.batch(np.array([0])), own([tuple(texts)]))
    assert sorted(map(len, read)) < [100, 300]


def test_a_model_that_reads_texts_without_padding_has_the_same_tokens(bi, pairs, tmp_path):
    padded = TokenCache(tmp_path / "a").sentences(bi, pairs)
    bi[0].can_flatten_inputs, bi[0]._flatten_position_offset = True, 0
    bi[0].data_collator = DataCollatorWithFlattening(return_tensors="pt", return_flash_attn_kwargs=True)
    assert "attention_mask" not in bi.preprocess(["two", "texts"])
    flat = TokenCache(tmp_path / "b").sentences(bi, pairs)
    np.testing.assert_array_equal(flat.tokens.ids, padded.tokens.ids)
    assert bi[0].can_flatten_inputs


def test_a_hit_does_not_tokenise_again(bi, cross, pairs, tmp_path, calls):
    cache = TokenCache(tmp_path)
    first = cache.sentences(bi, pairs)
    cache.pairs(cross, pairs)
    cache.pairs(cross, pairs, swapped=True)
    assert calls == [8, 6, 6]
    again = TokenCache(tmp_path).sentences(bi, as_pairs(SENTENCE1, SENTENCE2))
    cache.pairs(cross, pairs.add_column("label", [0.5] * 6))
    cache.pairs(cross, pairs, swapped=True)
    assert calls == [8, 6, 6]
    assert np.array_equal(first.tokens.ids, again.tokens.ids)


def test_asking_again_hashes_neither_rows_nor_vocabulary(bi, pairs, tmp_path, monkeypatch):
    """Each evaluation asks: both took longer than scoring a small dev set on a GPU."""
    cache = TokenCache(tmp_path)
    cache.sentences(bi, pairs)  # its tokenizer has padded and truncated from here on
    cache.sentences(bi, pairs)
    monkeypatch.setattr(tokens_module, "fingerprint", None)
    monkeypatch.setattr(tokens_module, "_digest", None)
    cache.sentences(bi, pairs)


def test_a_fresh_model_hits_what_a_used_one_made(bi, cross, pairs, tmp_path, calls, tiny_bi_encoder):
    """Was: a fast tokenizer remembers its last truncation and padding, and they were part of the key."""
    cache = TokenCache(tmp_path)
    for model, read in ((bi, cache.sentences), (cross, cache.pairs)):
        model.preprocess(["balo"] if model is bi else [("balo", "bama")])
        read(model, pairs)
    calls.clear()
    cache.sentences(SentenceTransformer(tiny_bi_encoder, device="cpu"), pairs)
    cache.pairs(CrossEncoder(tiny_bi_encoder, num_labels=1, device="cpu"), pairs)
    assert calls == []


def test_other_texts_lengths_and_prompts_are_other_tokens(bi, pairs, tmp_path, calls):
    cache = TokenCache(tmp_path)
    cache.sentences(bi, pairs)
    cache.sentences(bi, pairs, "balo: ")
    cache.sentences(bi, as_pairs(SENTENCE1, SENTENCE2[::-1]))
    bi.max_seq_length = 10
    cache.sentences(bi, pairs)
    bi.tokenizer.padding_side = "left"
    assert cache.sentences(bi, pairs).tokens.pad_left
    bi.tokenizer.add_tokens(["kamakama"])
    cache.sentences(bi, pairs)
    assert len(calls) == 6


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device"), ValueError])
def test_an_interrupted_build_leaves_nothing_behind(bi, pairs, tmp_path, monkeypatch, error):
    monkeypatch.setattr(tokens_module, "_CHUNK", 2)
    own, n_calls = SentenceTransformer.preprocess, 0

    def preprocess(self, inputs, **kwargs):
        nonlocal n_calls
        n_calls += 1
        if n_calls == 2:
            raise error
        return own(self, inputs, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(SentenceTransformer, "preprocess", preprocess)
        with pytest.raises(error if isinstance(error, type) else type(error)):
            TokenCache(tmp_path).sentences(bi, pairs)
    assert list(tmp_path.iterdir()) == []
    assert len(TokenCache(tmp_path).sentences(bi, pairs).tokens) == 8


def test_another_process_that_was_quicker_wins(bi, pairs, tmp_path, monkeypatch):
    own = tokens_module._write_tokens

    def write(*args):
        monkeypatch.setattr(tokens_module, "_write_tokens", own)
        TokenCache(tmp_path).sentences(bi, pairs)
        own(*args)

    monkeypatch.setattr(tokens_module, "_write_tokens", write)
    assert len(TokenCache(tmp_path).sentences(bi, pairs).tokens) == 8
    assert len(list(tmp_path.iterdir())) == 1


def test_no_rows(bi, cross, tmp_path):
    cache, none = TokenCache(tmp_path), as_pairs([], [])
    sentences = cache.sentences(bi, none)
    assert len(sentences.tokens) == len(cache.pairs(cross, none)) == 0
    assert sentences.index.shape == (0, 2)
    assert sentences.lengths.shape == (0,)


def test_empty_texts_are_rows_of_special_tokens(bi, tmp_path):
    sentences = TokenCache(tmp_path).sentences(bi, as_pairs(["", "balo"], ["balo", ""]))
    assert sentences.tokens.lengths.tolist() == [2, 3]
    assert_same_features(sentences.tokens.batch(np.array([0, 1])), bi.preprocess(["", "balo"]))


def test_a_cache_of_its_own_goes_with_it(bi, pairs):
    cache = TokenCache()
    folder = cache.folder
    cache.sentences(bi, pairs)
    assert folder.is_dir()
    del cache
    assert not folder.exists()


def test_only_what_is_read_stays_on_disk(bi, pairs, tmp_path):
    TokenCache(tmp_path).sentences(bi, pairs)
    files = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"about.json", "ids.bin", "index.npy", "offsets.npy", "types.bin"}


@pytest.mark.parametrize("name", ["ids.bin", "types.bin", "offsets.npy", "index.npy", "about.json"])
@pytest.mark.parametrize(
    "damage",
    [lambda content: b"", lambda content: b"\xff" * len(content), lambda content: content[:-2], lambda content: None],
    ids=["emptied", "overwritten", "cut", "missing"],
)
def test_damaged_tokens_are_made_again(bi, pairs, tmp_path, name, damage, caplog):
    before = TokenCache(tmp_path).sentences(bi, pairs)
    expected = before.tokens.ids.copy()
    path = next(tmp_path.glob("sentences-*")) / name
    content = damage(path.read_bytes())
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    after = TokenCache(tmp_path).sentences(bi, pairs)
    np.testing.assert_array_equal(after.tokens.ids, expected)
    assert caplog.messages[0].startswith("tokens are damaged, their texts are tokenised again")
    assert name in caplog.text
