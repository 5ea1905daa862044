"""Small models: cut to some layers or to a corpus's vocabulary, all else as it was; tokenizers and models from nothing."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertModel,
    ModernBertConfig,
    PreTrainedTokenizerFast,
)

from tests.rounding import model_rounding, rounding
from transencoder.cli import main
from transencoder.encoders import (
    count_parameters,
    fresh_masked,
    fresh_tokenizer,
    load_bi,
    load_cross,
    prune_vocabulary,
    truncate,
)
from transencoder.errors import InputError

CORPUS = ["balo dalo", "kama balo 7", "gelo!"]
OTHER = "felo melo balo"
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}


@pytest.fixture
def deep(tiny_plm, tmp_path):
    """A plain encoder of four layers."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(tiny_plm)
    BertModel(BertConfig(vocab_size=len(tokenizer), num_hidden_layers=4, **SIZES)).save_pretrained(tmp_path / "deep")
    tokenizer.save_pretrained(tmp_path / "deep")
    return tmp_path / "deep"


@pytest.mark.parametrize("layers", [[0, 1], [1, 3], [0, 1, 2, 3]])
def test_the_layers_are_kept_and_all_else_is_as_it_was(deep, tmp_path, layers):
    truncate(deep, layers, tmp_path / "small")
    before, after = BertModel.from_pretrained(deep), BertModel.from_pretrained(tmp_path / "small")
    assert after.config.num_hidden_layers == len(after.encoder.layer) == len(layers)
    for kept, layer in zip(after.encoder.layer, layers, strict=True):
        assert all(map(torch.equal, kept.state_dict().values(), before.encoder.layer[layer].state_dict().values()))
    for part in ("embeddings", "pooler"):
        own, theirs = (getattr(model, part).state_dict().values() for model in (after, before))
        assert all(map(torch.equal, own, theirs))
    texts = ["balo bama"]
    assert AutoTokenizer.from_pretrained(tmp_path / "small")(texts) == AutoTokenizer.from_pretrained(deep)(texts)


def test_the_form_stays(deep, tiny_plm, tmp_path):
    load_bi(deep, pooling=None).save_pretrained(str(tmp_path / "bi"))
    load_cross(deep).save_pretrained(str(tmp_path / "cross"))
    for name in ("bi", "cross"):
        truncate(tmp_path / name, [0], tmp_path / f"small-{name}")
    bi, cross = SentenceTransformer(str(tmp_path / "small-bi")), CrossEncoder(str(tmp_path / "small-cross"))
    assert bi.encode("balo").shape == (16,)
    assert 0.0 <= cross.predict([("balo", "bama")])[0] <= 1.0
    truncate(Path(tiny_plm), [0], tmp_path / "small-mlm")
    assert "cls.predictions.bias" in AutoModelForMaskedLM.from_pretrained(tmp_path / "small-mlm").state_dict()


@pytest.mark.parametrize("layers", [[], [4], [-1, 0], [1, 0], [1, 1]])
def test_layers_that_are_not_there_are_refused(deep, tmp_path, layers):
    with pytest.raises(InputError, match=r"layers 0 to 3: give some of them, each once, in rising order"):
        truncate(deep, layers, tmp_path / "small")
    assert not (tmp_path / "small").exists()


def test_a_folder_that_is_there_and_shared_layers_are_refused(deep, tmp_path):
    (tmp_path / "small").mkdir()
    with pytest.raises(InputError, match="small is there already"):
        truncate(deep, [0], tmp_path / "small")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written .*Choose another --output"):
        truncate(deep, [0], tmp_path / "file" / "small")
    albert = AlbertConfig(vocab_size=30, embedding_size=8, num_hidden_layers=4, **SIZES)
    AutoModel.from_config(albert).save_pretrained(tmp_path / "albert")
    with pytest.raises(InputError, match="no list of 4 layers"):
        truncate(tmp_path / "albert", [0], tmp_path / "other")


def test_layers_of_several_kinds_are_refused(tiny_plm, tmp_path):
    """ModernBERT's first layer lacks a norm that the others have, and its kinds are listed layer by layer."""
    config = ModernBertConfig(vocab_size=30, pad_token_id=0, num_hidden_layers=4, **SIZES)
    AutoModel.from_config(config).save_pretrained(tmp_path / "modern")
    AutoTokenizer.from_pretrained(tiny_plm).save_pretrained(tmp_path / "modern")
    with pytest.raises(InputError, match=r"of several kinds \(full_attention, sliding_attention\)"):
        truncate(tmp_path / "modern", [0, 1], tmp_path / "other")


def test_the_command_says_what_is_left(deep, tmp_path, capsys):
    assert main(["truncate", str(deep), "--layers", "0", "2", "--output", str(tmp_path / "small")]) == 0
    assert "layers 0, 2 of" in capsys.readouterr().out
    assert BertModel.from_pretrained(tmp_path / "small").config.num_hidden_layers == 2
    assert main(["truncate", str(deep), "--layers", "9", "--output", str(tmp_path / "other")]) == 2
    assert "has layers 0 to 3" in capsys.readouterr().err
    assert main(["truncate", str(deep), "--layers", "0,2", "--output", str(tmp_path / "commas")]) == 0
    assert main(["truncate", str(deep), "--layers", "0,,2", "--output", str(tmp_path / "other")]) == 2
    assert "--layers is ''. It must be a list, each a whole number" in capsys.readouterr().err


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
    config = BertConfig(vocab_size=len(fast), num_hidden_layers=1, pad_token_id=fast.pad_token_id, **SIZES)
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
