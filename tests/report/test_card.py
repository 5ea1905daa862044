"""The README.md of a saved model, as the hub reads it."""

import re
import shlex
import shutil
from pathlib import Path

import markdown
import pytest
import yaml
from huggingface_hub import ModelCard

from transencoder.encoders import fetch
from transencoder.report.card import model_card
from transencoder.report.run_report import report_text

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def head_of(card):
    start, head, _ = card.split("---\n", 2)
    assert start == ""
    return yaml.safe_load(head)


@pytest.mark.parametrize(
    ("form", "pipeline", "loader", "numbers"),
    [
        (
            "bi",
            "sentence-similarity",
            "SentenceTransformer",
            (
                "| average | 75.00 | 75.88 | +0.88 |",
                "| dev | 81.80 | 85.00 | +3.20 |",
                "of cycle 2 of 2, the best on dev (85.00)",
            ),
        ),
        (
            "cross",
            "text-ranking",
            "CrossEncoder",
            ("| average | 75.00 | 75.50 | +0.50 |", "of cycle 1 of 2, the best on dev (83.00)"),
        ),
    ],
)
def test_the_card_of_each_form(form, pipeline, loader, numbers, result):
    card = model_card(result, form)
    head = head_of(card)
    assert head["library_name"] == "sentence-transformers"
    assert head["pipeline_tag"] == pipeline
    assert head["base_model"] == [MINILM]
    assert {"transencoder", "trans-encoder", "sentence-transformers"} <= set(head["tags"])
    assert f"{loader}(" in card and f"from sentence_transformers import {loader}" in card
    for section in ("Use", "Method", "Data", "Metrics", "Limits", "Reproduce"):
        assert f"\n## {section}\n" in card
    assert "37,077 rows" in card and "`abababababab`" in card and "(transductive)" in card
    assert all(each in card for each in numbers)
    assert "/home/somebody" not in card


@pytest.mark.parametrize(("form", "unit"), [("bi", "text"), ("cross", "pair")])
def test_a_card_says_how_much_was_read_in_training(result, form, unit):
    result["config"][form] = {"max_length": 32}
    limits = model_card(result, form).partition("## Limits")[2]
    assert f"It reads as many tokens of a {unit} as its base model" in limits
    assert "with more than the 32 of training nothing was measured" in limits


def test_the_cross_encoder_is_based_on_its_own_start(result):
    result["config"]["members"][0]["cross_start"] = "nreimers/MiniLM-L6-H384-uncased"
    assert head_of(model_card(result, "cross"))["base_model"] == ["nreimers/MiniLM-L6-H384-uncased"]
    assert head_of(model_card(result, "bi"))["base_model"] == [MINILM]


@pytest.mark.parametrize("start", ["../models/mini", "/models/mini", "./mini", "a/b/c", "models/mini", "minilm"])
def test_a_local_start_is_not_a_base_model_and_the_packaged_one_has_its_hub_id(start, result, tmp_path, monkeypatch):
    (tmp_path / "models" / "mini").mkdir(parents=True)  # looks like a hub id
    monkeypatch.chdir(tmp_path)
    result["config"]["members"][0]["start"] = start
    assert head_of(model_card(result, "bi")).get("base_model") == ([MINILM] if start == "minilm" else None)


@pytest.mark.parametrize(
    ("source", "ids"),
    [
        ("stanfordnlp/snli and nyu-mll/multi_nli", ["stanfordnlp/snli", "nyu-mll/multi_nli"]),
        ("stanfordnlp/snli[test] and nyu-mll/glue:mrpc", ["stanfordnlp/snli", "nyu-mll/glue"]),
        ("sentence-transformers/stsb@abc (train)", ["sentence-transformers/stsb"]),
        ("texts/mine.tsv and org/data", ["org/data"]),
        ("texts/mine[train] and texts/mine:de", None),
        ("texts/a:b.tsv", None),
    ],
)
def test_the_card_names_the_data_sets_of_the_hub(source, ids, result, tmp_path, monkeypatch):
    """Was: the second of two, and those with a revision, a config or a split, were left out."""
    (tmp_path / "texts" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    result["data"]["pairs"]["source"] = source
    assert head_of(model_card(result, "bi")).get("datasets") == ids


HOSTILE = "a\n# b\n`<img src=x onerror=alert(1)>` ![c](d) | \\<script> \x1b[31m; rm -rf '~'"


@pytest.mark.parametrize("write", [lambda result: model_card(result, "bi"), report_text])
def test_hostile_names_stay_text_in_markdown(write, result):
    """Was: a folder's name was HTML on the hub, a heading in the card, and a command of its own under Reproduce."""
    del result["recipe"]
    result["config"]["output"] = result["data"]["pairs"]["source"] = f"runs/{HOSTILE}"
    result["config"]["members"][0]["start"] = result["about"] = HOSTILE
    result["notes"].append(HOSTILE)
    for scores in (result["data"]["tests"], *result["scores"].values()):
        scores[HOSTILE] = scores.pop("stsb")
    text = write(result).rpartition("\n---\n\n")[2]  # the head of a card is YAML, which nobody renders
    prose, _, after = text.rpartition("```bash\n")
    command, _, rest = after.partition("\n```\n")
    plain = markdown.markdown(re.sub("```(python|bash)?", "", prose) + rest, extensions=["tables"])
    assert not re.search(r"<img src=x|src=.d|<(a|script)\b|<h1>b|\x1b", plain)
    assert shlex.split(command)[3] == f"runs/{HOSTILE}/recipe.toml".replace("\n", " ").replace("\x1b", r"\x1b")


@pytest.mark.parametrize("form", ["bi", "cross"])
def test_missing_parts_read_well(form, bare_result):
    card = model_card(bare_result, form)
    assert "Nothing was measured" in card and "- dev: none" in card and "of cycle 2 of 2, the last one." in card
    assert "None" not in card and "transductive" not in card


def test_the_card_says_what_is_known_of_test_sentences(result):
    """Was: the training text contained `the test sentences`, be it one of them."""
    said = "training pairs contain sentences of the test sets, without"
    assert f"- The {said}" in model_card(result, "bi")
    result["data"]["pairs"]["transductive_rows"] = 1234
    assert f"- 1,234 of the 37,077 {said}" in model_card(result, "bi")
    result["data"]["pairs"]["transductive"] = False
    assert "(inductive)" in model_card(result, "bi")
    del result["data"]["pairs"]["transductive"]
    assert "was not recorded" in model_card(result, "bi")


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


def test_the_hub_reads_the_results_and_what_the_base_model_hands_on(result, tmp_path):
    path = tmp_path / "README.md"
    path.write_text(model_card(result, "bi", {"license": "apache-2.0", "language": "en", "tags": ["theirs"]}))
    head = ModelCard.load(path).data
    assert (head.license, head.language) == ("apache-2.0", "en") and "theirs" not in head.tags
    measured = {each.dataset_name: each.metric_value for each in head.eval_results}
    assert measured == {
        test: pytest.approx(value / 100) for test, value in result["scores"]["bi"].items() if value is not None
    }


def test_a_rejected_models_card_says_so_first_and_commands_warn(result, tmp_path, caplog, tiny_bi_encoder):
    result["scores"]["cross"] = {name: value - 20 for name, value in result["scores"]["start"].items()}
    result.pop("intervals", None)
    card = model_card(result, "cross")
    first = card.partition("\n# ")[2].splitlines()[2]
    assert first.startswith("**Do not use this cross-encoder; use its base model:** on the tests it has")
    folder = Path(shutil.copytree(tiny_bi_encoder, tmp_path / "model"))
    (folder / "README.md").write_text(card)
    fetch(str(folder))
    assert "should not be used, its base model is better: on the tests it has" in caplog.text
    caplog.clear()
    (folder / "README.md").write_text(model_card(result, "bi"))
    fetch(str(folder))
    assert not caplog.text


def test_what_chose_a_checkpoint_without_labels_is_named(bare_result):
    bare_result["selection"] = {"criteria": {"bi": "self_retrieval", "cross": "last"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transencoder.report.card.notes_of", lambda result: [])
        assert "chosen without labels, by self_retrieval." in model_card(bare_result, "bi")
        assert "the last one." in model_card(bare_result, "cross")
