"""Starting encoders: what cannot be is refused, with what to do."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer, ElectraConfig, ElectraModel

from transencoder import train
from transencoder.errors import InputError
from transencoder.training import plan


@pytest.mark.parametrize(
    ("method", "changes"),
    [("simcse", {}), ("diffcse", {}), ("dclr", {}), ("sct", {}), ("mirror-bert", {"span_characters": 0})],
)
def test_a_start_without_dropout_is_refused(tiny_start, method, changes, tiny_plm, tmp_path):
    shutil.copytree(tiny_plm, tmp_path / "dry")
    config = json.loads((tmp_path / "dry" / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (tmp_path / "dry" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="has no dropout, and then both views of a sentence are the same"):
        train(tiny_start(method, start=str(tmp_path / "dry"), **changes))


@pytest.mark.parametrize(("method", "field"), [("diffcse", "generator"), ("dclr", "complement")])
def test_a_helper_of_another_vocabulary_is_refused(tiny_start, method, field, tiny_plm, tmp_path):
    shutil.copytree(tiny_plm, tmp_path / "other")
    tokenizer = AutoTokenizer.from_pretrained(tiny_plm)
    tokenizer.add_tokens(["newword"])
    tokenizer.save_pretrained(tmp_path / "other")
    config = tiny_start(method, **{field: str(tmp_path / "other")})
    with pytest.raises(InputError, match=f"{field} .* has another vocabulary than the base model"):
        train(config)
    assert not Path(config.output).exists(), "before the text is read"


@pytest.mark.parametrize(("method", "helper"), [("diffcse", "generator"), ("dclr", "complement")])
def test_the_plan_needs_the_helper(tiny_start, method, helper, tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        plan(tiny_start(method, **{helper: str(tmp_path / "nowhere")}))


def test_a_start_without_a_language_modelling_head_needs_no_masks(tiny_start, tiny_bi_encoder):
    config = tiny_start("declutr", start=tiny_bi_encoder)
    with pytest.raises(InputError, match="is no masked language model.* as start, or mask_ratio 0"):
        train(config)
    assert not Path(config.output).exists(), "before the spans are written"
    assert train(tiny_start("declutr", start=tiny_bi_encoder, mask_ratio=0.0)).result["best"]["bi"]["dev"] is not None


def test_a_length_that_the_start_does_not_read_is_refused_at_once(tiny_start, method):
    fit = replace(tiny_start(method).fit, max_length=5000)
    config = tiny_start(method, fit=fit)
    with pytest.raises(InputError, match="fit.max_length is 5000, but .* reads at most 128 tokens"):
        plan(config)


def test_a_start_whose_words_are_of_another_size_is_no_discriminator(tiny_start, tiny_plm, tmp_path):
    """ELECTRA's word embeddings are narrower than its states: the embedding cannot stand among them."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_plm)
    config = ElectraConfig(
        vocab_size=len(tokenizer),
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    ElectraModel(config).save_pretrained(tmp_path / "electra")
    tokenizer.save_pretrained(tmp_path / "electra")
    with pytest.raises(InputError, match="cannot be DiffCSE's discriminator.*of 32 numbers.*of 16; give a start such"):
        train(tiny_start("diffcse", start=str(tmp_path / "electra")))
