"""What models score, and what a run keeps for its report: a scored sample, the tests' gold, its text in numbers."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer

from tests.rounding import model_rounding
from transencoder import FitConfig, Member
from transencoder.evaluation import evaluate
from transencoder.evidence import Evidence, drawn_intervals
from transencoder.metrics import spearman
from transencoder.pairs import read_pairs
from transencoder.results import read_result
from transencoder.scorers import BiScorer, CrossScorer
from transencoder.training import scoring as keeping
from transencoder.training import train

FAST = FitConfig(learning_rate=1e-3, batch_size=16, epochs=1, eval_steps=4, checkpoint_steps=4)


@pytest.fixture(scope="module")
def config(tiny_method, tiny_files):
    return tiny_method(tests=(str(tiny_files / "test.tsv"),))


@pytest.fixture(scope="module")
def run(config):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping, "_SAMPLE_ROWS", 40)
        return train(config)


@pytest.fixture(scope="module")
def evidence(run):
    return Evidence(run.folder, read_result(run.folder))


def test_the_sample_holds_what_the_models_say(run, evidence, tiny_files):
    sample = evidence.sample()
    pairs = read_pairs(str(tiny_files / "pairs.tsv")).select(sample.rows)
    assert len(pairs) == 40 == len(set(sample.rows.tolist()))
    assert sample.texts == list(zip(pairs["sentence1"][:], pairs["sentence2"][:], strict=True))
    assert list(sample.scores) == ["start", "bi", "cross"]
    bi = SentenceTransformer(str(run.folder / "bi-encoder"), device="cpu")
    cross = CrossEncoder(str(run.folder / "cross-encoder"), device="cpu")
    np.testing.assert_allclose(
        sample.scores["bi"], BiScorer(bi, precision="fp32").score(pairs), rtol=0, atol=model_rounding(bi)
    )
    np.testing.assert_allclose(
        sample.scores["cross"], CrossScorer(cross, precision="fp32").score(pairs), rtol=0, atol=model_rounding(cross)
    )


def test_nearest_texts_are_kept_as_both_models_see_them(evidence, run, tiny_bi_encoder, tiny_files):
    kept, pairs = evidence.neighbours(), read_pairs(str(tiny_files / "pairs.tsv"))
    texts = sorted({*pairs["sentence1"], *pairs["sentence2"]})
    assert kept["texts"] == len(texts) and len(kept["shown"]) == min(10, kept["changed"]) > 0
    for model, folder in (("start", tiny_bi_encoder), ("bi", str(run.folder / "bi-encoder"))):
        encoder = SentenceTransformer(folder, device="cpu")
        embeddings = encoder.encode(texts, normalize_embeddings=True)
        cosines = embeddings @ embeddings.T
        np.fill_diagonal(cosines, -2)
        for shown in kept["shown"]:
            own = cosines[texts.index(shown["text"])]
            assert own[texts.index(shown[model]["text"])] == pytest.approx(own.max(), abs=model_rounding(encoder))
            assert shown[model]["cosine"] == pytest.approx(own.max(), abs=model_rounding(encoder))


def test_gold_and_scores_give_the_recorded_metric(evidence):
    gold = evidence.gold("test").scores
    assert spearman(gold, evidence.scores("bi", "test")) == evidence.result["scores"]["bi"]["test"]


def test_the_tests_intervals_are_recorded(evidence):
    recorded = evidence.result["intervals"]["test"]
    assert list(recorded["scores"]) == ["start", "bi", "cross"] and list(recorded["gains"]) == ["bi", "cross"]
    assert evidence.result["intervals"] == json.loads(json.dumps(drawn_intervals(evidence)))
    low, high = recorded["gains"]["bi"]
    scores = evidence.result["scores"]
    assert low <= scores["bi"]["test"] - scores["start"]["test"] <= high


def test_without_tests_devs_intervals_are_recorded(tiny_method):
    trained = train(tiny_method())
    evidence = Evidence(trained.folder, read_result(trained.folder))
    result, gold = evidence.result, evidence.gold(None).scores
    assert list(result["intervals"]) == ["dev"]
    for form in ("bi", "cross"):
        assert spearman(gold, evidence.scores(form, None)) == pytest.approx(result["dev"][form], abs=1e-9)
        low, high = result["intervals"]["dev"]["gains"][form]
        assert low <= result["dev"][form] - result["dev"]["start"] <= high


def test_the_text_is_counted(evidence):
    assert evidence.result["texts"]["rows"] == 96
    assert list(evidence.result["texts"]["letters"]) == ["Latin"]


def test_every_students_lesson_is_found(evidence):
    student_labels = [
        (learned.cycle, learned.form, len(learned.labels), learned.n_pairs) for learned in evidence.student_labels()
    ]
    assert student_labels == [(1, "cross", 96, 96), (1, "bi", 40, 96)]


def test_a_run_of_an_earlier_version_gets_what_is_missing(config, run, tmp_path):
    """Its finished stages are reused: their keys are what they were."""
    shutil.copytree(run.folder, tmp_path / "copy")
    for name in ("sample", "neighbours", "gold", "texts"):
        (stage,) = Path(tmp_path / "copy" / "stages").glob(f"{name}-*")
        shutil.rmtree(stage)
    again = train(replace(config, output=str(tmp_path / "copy")))
    computed = [stage["name"] for stage in again.result["stages"] if not stage["reused"]]
    assert computed == ["sample", "neighbours", "texts", "gold"]


def test_the_start_as_it_is_has_its_own_length_in_fp32(tiny_method, tiny_files, tiny_bi_encoder):
    test = str(tiny_files / "test.tsv")
    scores = train(tiny_method(bi=replace(FAST, max_length=4), tests=(test,))).result["scores"]
    plain = evaluate(BiScorer(SentenceTransformer(tiny_bi_encoder, device="cpu"), precision="fp32"), read_pairs(test))
    assert scores["start_as_is"]["test"] == pytest.approx(plain, abs=1e-6)
    assert scores["start"]["test"] != pytest.approx(plain, abs=1e-6)


@pytest.mark.parametrize(("precision", "n_starts"), [("fp32", 1), ("bf16", 2)])
def test_a_start_that_the_run_takes_as_it_is_has_no_second_row(
    tiny_method, tiny_files, tiny_bi_encoder, tmp_path, precision, n_starts
):
    start = SentenceTransformer(tiny_bi_encoder, device="cpu")
    start.max_seq_length = 32
    start.save_pretrained(str(tmp_path / "start"))
    config = tiny_method(
        members=(Member(start=str(tmp_path / "start")),), tests=(str(tiny_files / "test.tsv"),), precision=precision
    )
    assert ("start_as_is" in train(config).result["scores"]) == (n_starts == 2)
