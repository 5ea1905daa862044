"""The start is measured twice where the run shortens its texts or its numbers, and once where it does not."""

from dataclasses import replace

import pytest
from sentence_transformers import SentenceTransformer

from transencoder import BiScorer, FitConfig, Member, read_pairs, train
from transencoder.evaluation import evaluate

FAST = FitConfig(learning_rate=1e-3, batch_size=16, epochs=1, eval_steps=4, checkpoint_steps=4)


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
