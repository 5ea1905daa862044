"""Saved models carry the names that sentence-transformers 5 and servers know, and load as what they were."""

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn
from transformers import RobertaConfig

from tests.rounding import model_rounding
from transencoder.encoders import load_bi, load_cross, read_length, save, truncate, write_length

TEXTS = ["balo bama", "dalo", "gelo lelo memo"]


def read(path):
    return json.loads(path.read_text())


@pytest.fixture
def bi(tiny_bi_encoder):
    return load_bi(Path(tiny_bi_encoder), max_length=16, device="cpu")


def test_a_bi_encoder_has_the_older_names_and_is_the_same_model(bi, tmp_path):
    width = bi.get_embedding_dimension()
    bi.append(Dense(width, 8, activation_function=nn.Tanh()))
    save(bi, tmp_path)
    modules = read(tmp_path / "modules.json")
    assert [module["type"].rpartition(".")[0] for module in modules] == ["sentence_transformers.models"] * len(modules)
    assert read(tmp_path / "sentence_bert_config.json") == {"max_seq_length": 16, "do_lower_case": False}
    pooling = read(tmp_path / "1_Pooling" / "config.json")
    assert pooling["word_embedding_dimension"] == width
    assert [name for name, on in pooling.items() if on is True] == ["pooling_mode_mean_tokens", "include_prompt"]
    assert set(read(tmp_path / modules[-1]["path"] / "config.json")) == {
        "in_features",
        "out_features",
        "bias",
        "activation_function",
    }
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    assert loaded.max_seq_length == 16
    np.testing.assert_allclose(loaded.encode(TEXTS), bi.encode(TEXTS), rtol=0, atol=model_rounding(bi))


@pytest.mark.parametrize("mode", Pooling.POOLING_MODES)
def test_every_pooling_keeps_its_meaning(bi, tmp_path, mode):
    bi[1] = Pooling(bi[1].embedding_dimension, pooling_mode=mode)
    save(bi, tmp_path)
    assert "pooling_mode" not in read(tmp_path / "1_Pooling" / "config.json")
    assert SentenceTransformer(str(tmp_path), device="cpu")[1].pooling_mode == mode


def test_what_has_no_older_name_is_saved_by_its_own(bi, tmp_path):
    bi[1] = Pooling(bi[1].embedding_dimension, pooling_mode=("mean", "cls"))
    save(bi, tmp_path)
    np.testing.assert_allclose(
        SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS),
        bi.encode(TEXTS),
        rtol=0,
        atol=model_rounding(bi),
    )


def test_a_cross_encoder_keeps_its_task_and_says_its_length(tiny_plm, tmp_path):
    cross = load_cross(Path(tiny_plm), max_length=24, device="cpu")
    save(cross, tmp_path)
    config = read(tmp_path / "sentence_bert_config.json")
    assert (config["transformer_task"], config["max_seq_length"]) == ("sequence-classification", 24)
    loaded = CrossEncoder(str(tmp_path), device="cpu")
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    assert loaded.max_seq_length == 24
    np.testing.assert_allclose(loaded.predict(pairs), cross.predict(pairs), rtol=0, atol=model_rounding(cross))


def test_a_length_is_written_where_any_version_looks_for_it(bi, tmp_path):
    save(bi, tmp_path)
    write_length(tmp_path, None)
    assert read_length(tmp_path) == 16
    write_length(tmp_path, 20)
    assert read_length(tmp_path) == SentenceTransformer(str(tmp_path), device="cpu").max_seq_length == 20
    assert read(tmp_path / "tokenizer_config.json")["model_max_length"] == 20


def test_a_student_cut_from_a_model_is_saved_alike(tiny_bi_encoder, tmp_path):
    truncate(Path(tiny_bi_encoder), [0], tmp_path / "student")
    assert read(tmp_path / "student" / "1_Pooling" / "config.json")["pooling_mode_mean_tokens"] is True


@pytest.mark.parametrize("tokens_of_tokenizer", [None, 20])
def test_positions_before_the_first_are_not_read(tokens_of_tokenizer, tmp_path):
    """RoBERTa counts them: of 34 positions it uses 32."""
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 9}
    RobertaConfig(**size, max_position_embeddings=34, pad_token_id=1).save_pretrained(tmp_path)
    if tokens_of_tokenizer is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": tokens_of_tokenizer}))
    assert read_length(tmp_path) == (tokens_of_tokenizer or 32)


def test_a_model_without_a_limit_gets_none(bi, tmp_path):
    bi.max_seq_length = 10**30  # what tokenizers say then
    save(bi, tmp_path)
    assert read(tmp_path / "sentence_bert_config.json")["max_seq_length"] is None
    assert read_length(tmp_path) == 128, "the model's positions"
