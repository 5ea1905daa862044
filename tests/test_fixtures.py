"""The tiny models are what the other tests take them for."""

import numpy as np
import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer


def test_bi_encoder_embeds(tiny_bi_encoder, tiny_pairs):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    assert model.encode(tiny_pairs["sentence1"][:3]).shape == (3, 32)
    assert model[0].model.config.hidden_dropout_prob == pytest.approx(0.1)


def test_cross_encoder_starts_from_either(tiny_bi_encoder, tiny_plm):
    for path in (tiny_bi_encoder, tiny_plm):
        model = CrossEncoder(path, num_labels=1, device="cpu")
        assert model.predict([("balo bama", "balo"), ("x", "y")]).shape == (2,)


def test_words_are_pieces_and_pairs_have_segments(tiny_plm):
    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(tiny_plm)("balo dioma", "tiolo")
    assert len(tokens["input_ids"]) == 6
    assert tokens["token_type_ids"] == [0, 0, 0, 0, 1, 1]


def test_pairs_are_planted(tiny_pairs):
    assert len(tiny_pairs) == 200
    scores = np.array(tiny_pairs["score"])
    shared = [
        len(set(one.split()) & set(other.split()))
        for one, other in zip(*(tiny_pairs[c] for c in ("sentence1", "sentence2")), strict=True)
    ]
    assert set(scores) == {0.0, 1.25, 2.5, 3.75, 5.0}
    assert np.corrcoef(scores, shared)[0, 1] > 0.5
