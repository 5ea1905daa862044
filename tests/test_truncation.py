"""A truncated model is the first model less the layers that were not asked for, in its form, and nothing else."""

from pathlib import Path

import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import (
    AlbertConfig,
    AlbertModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
)

from transencoder.cli import main
from transencoder.encoders import load_bi, load_cross, truncate
from transencoder.errors import InputError

WIDTH = 16


@pytest.fixture
def deep(tiny_plm, tmp_path):
    """A plain encoder of four layers."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(tiny_plm)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=WIDTH,
    )
    BertModel(config).save_pretrained(tmp_path / "deep")
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
    assert bi.encode("balo").shape == (WIDTH,)
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
    with pytest.raises(InputError, match="cannot be written .*give another output"):
        truncate(deep, [0], tmp_path / "file" / "small")
    config = AlbertConfig(
        vocab_size=30, embedding_size=8, hidden_size=8, num_hidden_layers=4, num_attention_heads=2, intermediate_size=8
    )
    AlbertModel(config).save_pretrained(tmp_path / "albert")
    with pytest.raises(InputError, match="no list of 4 layers"):
        truncate(tmp_path / "albert", [0], tmp_path / "other")


def test_layers_of_several_kinds_are_refused(tiny_plm, tmp_path):
    """ModernBERT's first layer lacks a norm that the others have, and its kinds are listed layer by layer."""
    config = ModernBertConfig(
        vocab_size=30,
        pad_token_id=0,
        hidden_size=8,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=8,
    )
    ModernBertModel(config).save_pretrained(tmp_path / "modern")
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
