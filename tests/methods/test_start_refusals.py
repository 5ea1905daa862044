"""Starting encoders: what cannot be is refused, with what to do."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer, ElectraConfig, ElectraModel

from transencoder import MirrorBERT, SimCSE, train
from transencoder.errors import InputError
from transencoder.training import plan


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("simcse", {"temperature": 0.0}, "temperature is 0.0; it must be above 0"),
        ("simcse", {"fit": replace(SimCSE.fit, dropout=0.0)}, "both views of a sentence are the same"),
        ("mirror-bert", {"temperature": -1.0}, "temperature is -1.0"),
        ("mirror-bert", {"span_characters": -1}, "span_characters is -1"),
        ("mirror-bert", {"span_characters": 0, "fit": replace(MirrorBERT.fit, dropout=0.0)}, "both views are the same"),
        ("mirror-bert", {"drophead": 1.0}, "drophead is 1.0; it is a share of the heads, 0 to below 1"),
        ("mirror-bert", {"drophead": -0.1}, "drophead is -0.1"),
        ("mirror-bert", {"columns": ("a", "b"), "mask_token": "[MASK]"}, "mask_token is given, but two columns are"),
        ("diffcse", {"detection_weight": float("nan")}, "detection_weight is nan; it must be at least 0 and finite"),
        ("dclr", {"noise_ratio": float("inf")}, "noise_ratio is inf; it must be at least 0 and finite"),
        ("dclr", {"noise_step_size": -1e-3}, "noise_step_size is -0.001"),
        ("dclr", {"threshold": float("nan")}, "threshold is nan; it is a cosine, from -1 to 1"),
        ("simcse", {"test_every_eval": True, "dev": None}, "test_every_eval needs tests, score_tests true, and dev"),
    ],
)
def test_contradictions_are_refused(tiny_start, method, changes, message):
    with pytest.raises(InputError, match=message):
        tiny_start(method, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": ("a", "b")}, "columns names 2 columns; documents have one"),
        ({"mask_ratio": 1.0}, "mask_ratio is 1.0"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"document_words": 4}, "document_words is 4"),
        ({"exclude_test_sentences": True}, "exclude_test_sentences is for sentences"),
    ],
)
def test_contradictions_of_declutr_are_refused(tiny_start, changes, message):
    with pytest.raises(InputError, match=message):
        tiny_start("declutr", **changes)


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
    with pytest.raises(InputError, match=f"{field} .* has another vocabulary than the start"):
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
