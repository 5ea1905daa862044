"""Runs whose dev and test sets are re-ranking tasks, beside sets that are measured otherwise."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from tests.training.reading import read_data
from transencoder import BiScorer, SimCSE, train
from transencoder.errors import InputError
from transencoder.evaluation import evaluate
from transencoder.recipes import find_recipe, load_recipe
from transencoder.report.card import model_card
from transencoder.tasks import load


def test_a_run_chooses_by_map_and_tells_its_metrics_apart(
    tiny_sentences, tiny_plm, tiny_files, tiny_reranking, tmp_path
):
    fit = replace(
        SimCSE.fit, learning_rate=1e-3, batch_size=16, epochs=1, eval_steps=3, checkpoint_steps=3, max_length=16
    )
    config = SimCSE(
        sentences=tiny_sentences,
        start=tiny_plm,
        output=str(tmp_path / "run"),
        dev="askubuntu",
        tests=("reranking", str(tiny_files / "test.tsv")),
        fit=fit,
        pooling="mean",
        precision="fp32",
        device="cpu",
        data_dir=str(tiny_reranking),
        cache_dir=str(tmp_path / "cache"),
    )
    result = train(config).result
    assert json.loads((tmp_path / "run" / "result.json").read_text())["data"] == result["data"]
    assert result["metric"] == result["data"]["dev"]["metric"] == "map"
    assert result["data"]["dev"]["source"] == "sentence-transformers/askubuntu (dev)"
    metrics = {name: record["metric"] for name, record in result["data"]["tests"].items()}
    assert metrics == {"askubuntu": "map", "scidocs": "map", "test": "spearman"}

    saved = BiScorer(SentenceTransformer(str(tmp_path / "run" / "bi-encoder"), device="cpu"), precision="fp32")
    for name, role, found in (
        ("askubuntu", "dev", result["dev"]["bi"]),
        ("scidocs", "test", result["scores"]["bi"]["scidocs"]),
    ):
        pairs = load(name, role, data_folder=tiny_reranking, cache_folder=tmp_path / "cache")
        assert found == pytest.approx(evaluate(saved, pairs, "map"), abs=1e-4)
    assert result["dev"]["bi"] == max(value for _, value in result["cycles"][0]["bi"]["curve"])

    for text in ((tmp_path / "run" / "report.md").read_text(), model_card(result, "bi")):
        for title in ("mean average precision x 100 (map)", "spearman's rank correlation x 100 (spearman)"):
            assert title in text.casefold()
        for row in ("| askubuntu (map) |", "| average (map) |", "| test (spearman) |"):
            assert row in text
        assert "| average |" not in text and "average (spearman)" not in text


def test_the_pages_recipe_reads_its_data_by_their_hub_ids(tiny_sentences, tiny_plm, tiny_reranking, tmp_path):
    """AskUbuntu's questions for training, without those of the test set; the last weights, tested by MAP."""
    data = tmp_path / "data" / "sentence-transformers"
    (data / "askubuntu-questions").mkdir(parents=True)
    (data / "askubuntu").symlink_to(tiny_reranking / "sentence-transformers" / "askubuntu")
    test = load("askubuntu", "test", data_folder=tiny_reranking, cache_folder=tmp_path / "cache")
    questions = [*tiny_sentences["text"], test[0]["sentence1"], test[0]["sentence2"]]
    with gzip.open(data / "askubuntu-questions" / "train.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in questions)
    config = load_recipe(find_recipe("simcse/page-distilroberta-base"))
    assert (config.tests, config.dev) == (("askubuntu",), None)
    more = {"start": tiny_plm, "output": str(tmp_path / "run"), "device": "cpu", "data_dir": str(data.parent)}
    result = train(replace(config, **more, cache_dir=str(tmp_path / "cache"))).result
    record = result["data"]["sentences"]
    assert (record["rows"], record["excluded_rows"], record["transductive"]) == (len(tiny_sentences), 2, False)
    assert (result["metric"], list(result["scores"]["bi"])) == ("map", ["askubuntu"])


def test_a_cycle_is_measured_on_a_re_ranking_task_in_both_forms(tiny_method, tiny_reranking):
    config = tiny_method(dev="askubuntu", tests=("askubuntu",), data_dir=str(tiny_reranking))
    result = train(config).result
    assert {"start", "bi", "cross"} <= set(result["scores"])
    assert all(0 < scores["askubuntu"] < 100 for scores in result["scores"].values())
    report = (Path(config.output) / "report.md").read_text()
    assert "mean average precision x 100" in report.casefold() and "(map)" not in report
    assert "72 rows of `sentence-transformers/askubuntu (test)`" in report and "measured by map" in report


def test_its_candidates_are_test_sentences_that_can_be_left_out(tiny_method, tiny_reranking, tmp_path):
    pairs = load("askubuntu", "test", data_folder=tiny_reranking, cache_folder=tmp_path)
    path = tmp_path / "pairs.tsv"
    path.write_text(f"sentence1\tsentence2\n{pairs[0]['sentence2']}\tbalo\nlelo\t{pairs[0]['sentence1']}\nlelo\tbalo\n")
    config = {"pairs": str(path), "dev": None, "tests": ("askubuntu",), "data_dir": str(tiny_reranking)}
    assert read_data(tiny_method(**config)).record["transductive"]
    apart = read_data(tiny_method(**config, exclude_test_sentences=True))
    assert (apart.training["sentence1"][:], apart.record["excluded_rows"]) == (["lelo"], 2)


def test_its_pairs_are_not_for_training(tiny_method, tiny_reranking):
    with pytest.raises(InputError, match="askubuntu: for evaluation only"):
        read_data(tiny_method(pairs="askubuntu", data_dir=str(tiny_reranking)))
