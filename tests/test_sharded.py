"""Scores and embeddings by shards are those at once, and an interruption loses one shard."""

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer

from transencoder import BiScorer, CrossScorer, sharded, shards
from transencoder.pairs import read_pairs
from transencoder.sharded import embed_sharded, score_sharded
from transencoder.tokens import TokenCache


@pytest.fixture
def pairs(tiny_files):
    """More than 40 pairs, some of whose sentences are in several."""
    found = read_pairs(str(tiny_files / "test.tsv")).select_columns(["sentence1", "sentence2"])
    return found.select([*range(len(found)), *range(10)])


@pytest.fixture(params=["bi", "cross"])
def scorer(request, tiny_bi_encoder, tiny_plm):
    if request.param == "bi":
        return BiScorer(SentenceTransformer(tiny_bi_encoder, device="cpu"), precision="fp32")
    torch.manual_seed(0)
    return CrossScorer(CrossEncoder(tiny_plm, num_labels=1, device="cpu"), precision="fp32")


@pytest.fixture
def _small_shards(monkeypatch):
    monkeypatch.setattr(sharded, "_SENTENCES_A_SHARD", 16)
    monkeypatch.setitem(shards.Parts.__init__.__kwdefaults__, "shard_rows", 16)


@pytest.mark.usefixtures("_small_shards")
def test_shards_are_what_the_scorer_gives_and_an_interruption_loses_one(scorer, pairs, tmp_path, monkeypatch):
    """Was: labelling that was stopped began again."""
    expected = scorer.score(pairs)
    computed, seen = type(scorer).compute, []

    def compute(self, description, tokens, *others):
        if len(seen) == 2:
            seen.append(0)
            raise KeyboardInterrupt
        computed(self, description, tokens, *others)
        seen.append(len(tokens))

    monkeypatch.setattr(type(scorer), "compute", compute)
    with pytest.raises(KeyboardInterrupt):
        score_sharded(scorer, pairs, tmp_path / "parts")
    n_before = len(seen)
    scores = score_sharded(scorer, pairs, tmp_path / "parts")
    assert seen[n_before - 1] == 0 and max(seen) <= 16 and len(seen) - 1 >= 3
    n_rows = (
        len(set(pairs["sentence1"][:]) | set(pairs["sentence2"][:])) if isinstance(scorer, BiScorer) else len(pairs)
    )
    assert sum(seen) == n_rows, "each once"
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, atol=1e-6)


@pytest.mark.usefixtures("_small_shards")
def test_embeddings_are_one_file(tiny_bi_encoder, pairs, tmp_path):
    scorer = BiScorer(SentenceTransformer(tiny_bi_encoder, device="cpu"), precision="fp32", cache=TokenCache())
    tokens = scorer.cache.sentences(scorer.model, pairs, None).tokens
    at_once = np.empty((len(tokens), 32), np.float32)
    scorer.embed_into(at_once, tokens)
    found = embed_sharded(scorer, tokens, tmp_path / "own.npy", tmp_path / "parts")
    np.testing.assert_allclose(found, at_once, atol=1e-6)
    np.testing.assert_array_equal(np.load(tmp_path / "own.npy"), found)
    assert len(list((tmp_path / "parts").iterdir())) == -(-len(tokens) // 16)
