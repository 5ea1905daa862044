"""Vocabularies cut to a corpus: the same ids in other numbers, the same embeddings, smaller pieces for other words."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerFast

from tests.rounding import model_rounding, rounding
from transencoder.encoders import count_parameters, prune_vocabulary
from transencoder.errors import InputError

CORPUS = ["balo dalo", "kama balo 7", "gelo!"]
OTHER = "felo melo balo"


@pytest.fixture(scope="module")
def pruned(tiny_bi_encoder, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pruned") / "model"
    prune_vocabulary(Path(tiny_bi_encoder), [CORPUS[:2], CORPUS[2:]], 3, folder)
    return folder


def test_the_corpus_is_read_and_embedded_as_before(pruned, tiny_bi_encoder):
    before, after = (SentenceTransformer(str(folder), device="cpu") for folder in (tiny_bi_encoder, pruned))
    pieces = [[model.tokenizer.tokenize(text) for text in CORPUS] for model in (before, after)]
    assert pieces[0] == pieces[1]
    expected = before.encode(CORPUS)
    np.testing.assert_allclose(after.encode(CORPUS), expected, rtol=0, atol=model_rounding(before, expected))
    assert count_parameters(pruned) < count_parameters(Path(tiny_bi_encoder))


def test_only_what_occurs_special_tokens_and_characters_are_kept(pruned, tiny_bi_encoder):
    before, after = (AutoTokenizer.from_pretrained(folder).get_vocab() for folder in (tiny_bi_encoder, pruned))
    assert {"balo", "dalo", "kama", "gelo", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "x", "##x"} <= set(after)
    assert not {"felo", "melo"} & set(after)
    assert {"felo", "melo"} < set(before)
    assert sorted(after.values()) == list(range(len(after)))


def test_other_words_are_read_in_smaller_pieces(pruned):
    model = SentenceTransformer(str(pruned), device="cpu")
    assert model.tokenizer.tokenize(OTHER) == ["f", "##e", "##l", "##o", "m", "##e", "##l", "##o", "balo"]
    assert np.isfinite(model.encode(OTHER)).all()


def test_special_tokens_stand_around_a_text_and_padding_is_masked(pruned):
    model = SentenceTransformer(str(pruned), device="cpu")
    features = model.preprocess(["balo", "kama balo 7"])
    first = model.tokenizer.convert_ids_to_tokens(features["input_ids"][0])
    assert first == ["[CLS]", "balo", "[SEP]", "[PAD]", "[PAD]"]
    assert features["attention_mask"][0].tolist() == [1, 1, 1, 0, 0]
    config = json.loads((pruned / "config.json").read_text())
    assert config["vocab_size"] == len(model.tokenizer)


def test_a_language_models_head_is_cut_too(tiny_plm, tmp_path):
    prune_vocabulary(Path(tiny_plm), [CORPUS], 3, tmp_path / "plm")
    logits = []
    for folder in (tiny_plm, tmp_path / "plm"):
        model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        ids = tokenizer("balo [MASK]", return_tensors="pt")
        with torch.no_grad():
            found = model(**ids).logits[0, 2]
        logits.append([found[tokenizer.convert_tokens_to_ids(piece)].item() for piece in ("balo", "kama", "x")])
        assert len(found) == len(tokenizer)
    assert logits[0] == pytest.approx(logits[1], abs=model_rounding(model, logits[1]))


def save(folder: Path, tokenizer: Tokenizer, special: dict[str, str]) -> Path:
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    config = BertConfig(
        vocab_size=len(fast),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        pad_token_id=fast.pad_token_id,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def test_unigram_vocabularies_are_cut(tmp_path):
    pieces = ["▁balo", "▁da", "lo", "▁kama", "▁felo", "▁", *"balodkmefgx", "</s>", "<pad>"]
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), *((each, -1.0 - i) for i, each in enumerate(pieces))], 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", None, [("</s>", len(pieces) - 1)])
    special = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
    before = save(tmp_path / "unigram", tokenizer, special)
    texts = ["balo dalo", "kama"]
    prune_vocabulary(before, [texts], 2, tmp_path / "pruned")
    old, new = (AutoTokenizer.from_pretrained(folder) for folder in (before, tmp_path / "pruned"))
    assert "▁felo" in old.get_vocab() and "▁felo" not in new.get_vocab()
    for text in texts:
        assert new.convert_ids_to_tokens(new(text)["input_ids"]) == old.convert_ids_to_tokens(old(text)["input_ids"])
    embeddings = [
        SentenceTransformer(str(folder), device="cpu").encode(texts) for folder in (before, tmp_path / "pruned")
    ]
    np.testing.assert_allclose(*embeddings, rtol=0, atol=rounding(16 * 6, embeddings))


def test_a_long_text_is_read_to_its_end_and_prompts_are_kept(tiny_bi_encoder, tmp_path):
    """Was: cut where the tokenizer's own file cuts, which is not where the model does."""
    model = SentenceTransformer(tiny_bi_encoder, device="cpu", prompts={"query": "gelo"})
    model.tokenizer.backend_tokenizer.enable_truncation(8)
    model.save(str(tmp_path / "model"), create_model_card=False)
    prune_vocabulary(tmp_path / "model", [["balo " * 20 + "kama"]], 1, tmp_path / "pruned")
    kept = AutoTokenizer.from_pretrained(tmp_path / "pruned").get_vocab()
    assert {"balo", "kama", "gelo"} < set(kept)
    assert "dalo" not in kept


def test_pieces_that_stand_for_bytes_are_kept(tmp_path):
    pieces = ["<unk>", "▁balo", "▁felo", "<0x41>", "</s>", "<pad>"]
    tokenizer = Tokenizer(models.Unigram([(each, -1.0 - i) for i, each in enumerate(pieces)], 0, True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    folder = save(tmp_path / "bytes", tokenizer, {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"})
    prune_vocabulary(folder, [["balo"]], 1, tmp_path / "pruned")
    kept = json.loads((tmp_path / "pruned" / "tokenizer.json").read_text())["model"]["vocab"]
    assert [piece for piece, _ in kept] == ["<unk>", "▁balo", "<0x41>", "</s>", "<pad>"]


def test_byte_pair_vocabularies_are_refused(tmp_path):
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2, "<pad>": 3}, [("a", "b")]))
    folder = save(tmp_path / "bpe", tokenizer, {"pad_token": "<pad>"})
    with pytest.raises(InputError, match="the tokenizer of .*bpe is BPE; prune_vocabulary cuts WordPiece"):
        prune_vocabulary(folder, [CORPUS], 3, tmp_path / "pruned")
    assert not (tmp_path / "pruned").exists()
