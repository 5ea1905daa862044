"""The README.md of a saved model, as the hub reads it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from transencoder.configs import Form
from transencoder.records import Result
from transencoder.report.run_report import model_card, report_text


def head_of(card: str) -> dict[str, Any]:
    start, head, _ = card.split("---\n", 2)
    assert start == ""
    loaded: dict[str, Any] = yaml.safe_load(head)
    return loaded


@pytest.mark.parametrize(
    ("form", "pipeline", "loader"),
    [("bi", "sentence-similarity", "SentenceTransformer("), ("cross", "text-ranking", "CrossEncoder(")],
)
def test_the_card_of_each_form(form: Form, pipeline: str, loader: str, result: Result) -> None:
    card = model_card(result, form)
    head = head_of(card)
    assert head["library_name"] == "sentence-transformers"
    assert head["pipeline_tag"] == pipeline
    assert head["base_model"] == ["sentence-transformers/all-MiniLM-L6-v2"]
    assert {"transencoder", "trans-encoder", "sentence-transformers"} <= set(head["tags"])
    assert loader in card and f"from sentence_transformers import {loader[:-1]}" in card
    for section in ("Use", "Method", "Data", "Metrics", "Limits", "Reproduce"):
        assert f"\n## {section}\n" in card
    assert "37,077 rows" in card and "`abababababab`" in card and "(transductive)" in card
    assert "/home/somebody" not in card


def test_the_bi_encoders_card_says_how_much_it_reads(result: Result) -> None:
    result["config"]["bi"] = {"max_length": 32}
    assert "It reads the first 32 tokens of a text" in model_card(result, "bi").partition("## Limits")[2]
    assert "It reads the first" not in model_card(result, "cross")


def test_each_card_has_its_own_numbers(result: Result) -> None:
    bi, cross = model_card(result, "bi"), model_card(result, "cross")
    assert "| average | 75.00 | 75.88 | +0.88 |" in bi and "| dev | 81.80 | 85.00 | +3.20 |" in bi
    assert "| average | 75.00 | 75.50 | +0.50 |" in cross
    assert "of cycle 2 of 2, the best on dev (85.00)" in bi and "of cycle 1 of 2, the best on dev (83.00)" in cross


def test_the_cross_encoder_is_based_on_its_own_start(result: Result) -> None:
    result["config"]["members"][0]["cross_start"] = "nreimers/MiniLM-L6-H384-uncased"
    assert head_of(model_card(result, "cross"))["base_model"] == ["nreimers/MiniLM-L6-H384-uncased"]
    assert head_of(model_card(result, "bi"))["base_model"] == ["sentence-transformers/all-MiniLM-L6-v2"]


@pytest.mark.parametrize("start", ["../models/mini", "/models/mini", "./mini", "a/b/c"])
def test_a_local_start_is_not_a_base_model(start: str, result: Result) -> None:
    result["config"]["members"][0]["start"] = start
    assert "base_model" not in head_of(model_card(result, "bi"))


def test_a_local_folder_that_looks_like_a_hub_id_is_not_one(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "mini").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    result["config"]["members"][0]["start"] = "models/mini"
    assert "base_model" not in head_of(model_card(result, "bi"))


@pytest.mark.parametrize("form", ["bi", "cross"])
def test_missing_parts_read_well(form: Form, bare_result: Result) -> None:
    card = model_card(bare_result, form)
    assert "Nothing was measured" in card and "- dev: none" in card and "of cycle 2 of 2, the last one." in card
    assert "None" not in card and "transductive" not in card


def test_the_card_says_in_how_many_rows_the_test_sentences_are(result: Result) -> None:
    """Was: the training text contained `the test sentences`, be it one of them."""
    assert "- The training pairs contain sentences of the test sets, without" in model_card(result, "bi")
    result["data"]["pairs"]["transductive_rows"] = 1234
    assert "- 1,234 of the 37,077 training pairs contain sentences of the test sets, without" in model_card(
        result, "bi"
    )


def test_what_was_not_recorded_about_test_sentences_is_said(result: Result) -> None:
    del result["data"]["pairs"]["transductive"]
    assert "was not recorded" in model_card(result, "bi")
    result["data"]["pairs"]["transductive"] = False
    assert "(inductive)" in model_card(result, "bi")


def test_the_packaged_start_is_named_by_its_hub_id(result: Result) -> None:
    result["config"]["members"] = [{"start": "minilm"}]
    assert head_of(model_card(result, "bi"))["base_model"] == ["sentence-transformers/all-MiniLM-L6-v2"]


@pytest.mark.parametrize("write", [lambda result: model_card(result, "cross"), report_text])
def test_card_and_report_tell_of_pretraining_only_where_there_was_some(result, write):
    result["config"]["pretraining"] = {"epochs": 0, "learning_rate": 1e-4, "batch_size": 64, "mask_ratio": 0.15}
    without = write(result)
    assert "masked words" not in without and "pretraining" not in without
    result["config"]["pretraining"]["epochs"] = 4
    result["pretraining"] = {"steps": 4636, "losses": [(100, 3.791), (4600, 2.6), (4636, 2.512)]}
    text = write(result)
    assert "masked words of the pairs: 4,636 steps, cross-entropy 3.79 at first, 2.51 at the end." in text
    assert "pretraining.epochs 4" in text


def test_the_card_says_what_the_cross_encoders_scores_are(result):
    assert "model.predict" in model_card(result, "cross") and "# sigmoid, 0 to 1" in model_card(result, "cross")
    result["config"]["cross_loss"] = "mse"
    assert "# the model's raw output, not bounded" in model_card(result, "cross")
