"""Models put to use in one call: by name, in memory, or as scorers; on what people hold."""

import numpy as np
import pandas
import pytest
from sentence_transformers import SentenceTransformer

import transencoder
from transencoder import BiScorer, InputError, inference

PAIRS = [("balo bama", "balo"), ("dalo", "gelo lelo"), ("kama", "kama")]
SCORED = [(*pair, score) for pair, score in zip(PAIRS, (0.5, 0.1, 1.0), strict=True)]


def test_a_model_scores_alike_by_name_in_memory_and_as_a_scorer(tiny_bi_encoder):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    expected = transencoder.score(tiny_bi_encoder, PAIRS, device="cpu", precision="fp32")
    assert expected.shape == (3,) and expected[2] == pytest.approx(1.0)
    table = pandas.DataFrame(PAIRS, columns=["sentence1", "sentence2"])
    for named in (model, BiScorer(model, precision="fp32")):
        np.testing.assert_array_equal(transencoder.score(named, table, precision="fp32"), expected)


def test_a_cross_encoder_scores_and_refuses_what_is_not_for_it(cross):
    assert transencoder.score(cross, PAIRS).shape == (3,)
    with pytest.raises(InputError, match="document_prompt .* is not for it"):
        transencoder.score(cross, PAIRS, document_prompt="passage: ")


def test_a_model_is_measured_on_pairs_with_scores(tiny_bi_encoder):
    value = transencoder.evaluate(tiny_bi_encoder, SCORED, device="cpu")
    assert -100 <= value <= 100
    with pytest.raises(InputError, match="no column of gold scores"):
        transencoder.evaluate(tiny_bi_encoder, PAIRS, device="cpu")


def test_columns_are_named(tiny_bi_encoder):
    rows = [("balo", "balo dama", 1.0), ("balo", "kama", 0.0), ("kama", "balo", 0.5)]
    table = {name: [row[i] for row in rows] for i, name in enumerate(("one", "other", "label"))}
    names = {"columns": ["one", "other"]}
    expected = transencoder.evaluate(tiny_bi_encoder, rows)
    assert transencoder.evaluate(tiny_bi_encoder, table, **names, score_column="label") == expected
    scores = transencoder.score(tiny_bi_encoder, [row[:2] for row in rows])
    assert transencoder.score(tiny_bi_encoder, table, **names).tolist() == scores.tolist()


def test_tasks_are_named_as_they_are(tiny_bi_encoder, tmp_path):
    with pytest.raises(InputError, match="STS-B is neither a file nor a task; the nearest task is stsb"):
        transencoder.evaluate(tiny_bi_encoder, "STS-B")


def test_what_is_no_model_is_refused():
    with pytest.raises(InputError, match="the model is 3; give a folder"):
        transencoder.score(3, PAIRS)


def test_the_public_names_are_listed():
    assert {"train", "evaluate", "score", "InputError", "TransEncoder", "SimCSE"} <= set(dir(transencoder))


def test_attention_is_computed_as_is_asked(tiny_bi_encoder, monkeypatch):
    pairs = [("a text", "another text"), ("a", "b")]
    scorers = {
        name: inference.load_scorer(tiny_bi_encoder, attn_implementation=name, device="cpu") for name in (None, "eager")
    }
    used = {name: scorer.model.transformers_model.config._attn_implementation for name, scorer in scorers.items()}
    assert used == {None: "sdpa", "eager": "eager"}
    first, second = (inference.score(scorer, pairs) for scorer in scorers.values())
    np.testing.assert_allclose(first, second, atol=1e-5)
    with pytest.raises(InputError, match=r"^attn_implementation is 'flash', which cannot be used here \("):
        inference.load_scorer(tiny_bi_encoder, attn_implementation="flash")
