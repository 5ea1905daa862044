"""What a bi-encoder says of two texts token by token, against a statement of it without batches."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from tests.rounding import model_rounding
from transencoder import distributed, scorers, token_scores
from transencoder.encoders import weight_tokens
from transencoder.errors import InputError
from transencoder.scorers import BiScorer
from transencoder.token_scores import TokenScorer, late_interaction, mean_similarity
from transencoder.tokens import TokenCache, inverse_document_frequencies


@pytest.fixture(scope="module")
def pairs(tiny_pairs):
    """Sentences that repeat, lengths that differ, and a pair of the same text twice."""
    rows = tiny_pairs.select(range(40))
    first, second = rows["sentence1"][:], rows["sentence2"][:]
    second = [first[i - 1] if i % 4 == 0 else " ".join([text] * (1 + i % 3)) for i, text in enumerate(second)]
    return Dataset.from_dict({"sentence1": [*first, first[0]], "sentence2": [*second, first[0]]})


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def stated(model: SentenceTransformer, pairs: Dataset, prompts: tuple[str, str] = ("", "")) -> np.ndarray:
    """Say the three similarities of each pair in plain words, one text at a time."""
    texts = [[prompts[0] + text for text in pairs["sentence1"]], [prompts[1] + text for text in pairs["sentence2"]]]
    ids = {text: model.preprocess([text])["input_ids"][0].tolist() for side in texts for text in side}
    together = prompts[0] == prompts[1]
    corpora = [{*texts[0], *texts[1]}] * 2 if together else [{*texts[0]}, {*texts[1]}]
    rows = []
    for pair in zip(*texts, strict=True):
        read = []
        for text, corpus in zip(pair, corpora, strict=True):
            embedded = model.encode([text], output_value="token_embeddings")[0].cpu().numpy().astype(np.float64)
            with_it = [sum(token in ids[other] for other in corpus) for token in ids[text]]
            weights = np.array([math.log((len(corpus) + 1) / (n + 1)) for n in with_it])
            read.append((model.encode([text])[0], embedded, weights))
        (whole_1, tokens_1, weights_1), (whole_2, tokens_2, weights_2) = read
        kept_1, kept_2 = np.flatnonzero(weights_1), np.flatnonzero(weights_2)
        best_1 = [max(cosine(tokens_1[i], tokens_2[j]) for j in kept_2) for i in kept_1]
        best_2 = [max(cosine(tokens_1[i], tokens_2[j]) for i in kept_1) for j in kept_2]
        late = (np.average(best_1, weights=weights_1[kept_1]) + np.average(best_2, weights=weights_2[kept_2])) / 2
        weighted = cosine(weights_1 @ tokens_1, weights_2 @ tokens_2)
        rows.append([cosine(whole_1, whole_2), weighted, late])
    return np.array(rows)


@pytest.mark.parametrize(("batch_tokens", "window"), [(1, 1 << 18), (150, 16), (8192, 1 << 18)])
def test_the_three_similarities_are_what_they_are_said_to_be(bi, pairs, batch_tokens, window, monkeypatch):
    monkeypatch.setattr(scorers, "_WINDOW", window)
    similarities = TokenScorer(bi, precision="fp32", batch_tokens=batch_tokens).similarities(pairs)
    np.testing.assert_allclose(similarities, stated(bi, pairs), atol=10 * model_rounding(bi))
    np.testing.assert_allclose(similarities[-1], 1.0, atol=10 * model_rounding(bi))  # the same text twice


@pytest.mark.parametrize(("document_prompt", "n_texts"), [(None, 12), ("some text ", 24)])
def test_a_text_of_several_pairs_is_read_once(tiny_bi_encoder, pairs, document_prompt, n_texts, monkeypatch):
    """With a prompt of its own, as a query and as a document; and again after it was forgotten."""
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    texts = list(dict.fromkeys(pairs["sentence1"]))[:12]
    rows = [(one, other) for one in texts for other in texts if one != other]
    crossed = Dataset.from_dict(dict(zip(("sentence1", "sentence2"), zip(*rows, strict=True), strict=True)))
    scorer = TokenScorer(model, precision="fp32", batch_tokens=150, document_prompt=document_prompt)
    n_read: list[int] = []
    model[0].register_forward_hook(lambda _, inputs, output: n_read.append(len(inputs[0]["input_ids"])))
    once = scorer.similarities(crossed)
    assert sum(n_read) == n_texts
    n_read.clear()
    monkeypatch.setattr("transencoder.token_scores._TOKENS_CACHED", 30)
    np.testing.assert_allclose(scorer.similarities(crossed), once, atol=10 * model_rounding(model))
    assert n_texts < sum(n_read) < 2 * len(crossed)


def test_where_memory_runs_out_the_cache_is_dropped(tiny_bi_encoder, pairs, monkeypatch):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    expected = TokenScorer(model, precision="fp32").similarities(pairs)
    own, full = token_scores._CachingEncoder._encode, []

    def encode(self, features):
        if self.n_tokens + features["input_ids"].numel() > 300:
            full.append(self.n_tokens)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return own(self, features)

    monkeypatch.setattr(token_scores._CachingEncoder, "_encode", encode)
    found = TokenScorer(model, precision="fp32", batch_tokens=1000).similarities(pairs)
    assert full and max(full) > 0
    np.testing.assert_allclose(found, expected, atol=10 * model_rounding(model))


def test_prompts_of_queries_and_documents_have_no_weight(bi, pairs):
    scorer = TokenScorer(bi, precision="fp32", prompt="a question ", document_prompt="some text ")
    expected = stated(bi, pairs, ("a question ", "some text "))
    np.testing.assert_allclose(scorer.similarities(pairs), expected, atol=10 * model_rounding(bi))


def test_prompts_that_embeddings_leave_out_are_each_sides_own(tiny_bi_encoder, pairs):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    model[1].include_prompt = False
    options = {"precision": "fp32", "prompt": "a very long question: ", "document_prompt": "text "}
    cosines = BiScorer(model, **options).score(pairs)
    similarities = TokenScorer(model, **options).similarities(pairs)
    np.testing.assert_allclose(similarities[:, 0], cosines, atol=10 * model_rounding(model))


def test_a_model_that_weights_its_tokens_is_not_weighted_twice(tiny_bi_encoder, pairs, tmp_path):
    texts = Dataset.from_dict({"text": [*pairs["sentence1"], *pairs["sentence2"]]})
    weight_tokens(Path(tiny_bi_encoder), texts, tmp_path / "weighted")
    base, weighted = (
        TokenScorer(SentenceTransformer(str(folder), device="cpu"), precision="fp32").similarities(pairs)
        for folder in (tiny_bi_encoder, tmp_path / "weighted")
    )
    np.testing.assert_allclose(weighted[:, 1:], base[:, 1:], atol=1e-6)
    assert np.abs(weighted[:, 0] - base[:, 0]).max() > 0.01


def test_the_first_bad_pair_is_named_on_every_rank(bi, pairs, monkeypatch):
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "rank", lambda: 1)

    def concatenate(part):
        whole = np.zeros((len(pairs), 3), np.float32)
        whole[-len(part) :] = part
        whole[30] = np.nan
        return whole

    monkeypatch.setattr(distributed, "concatenate", concatenate)
    with pytest.raises(InputError, match="row 30: "):
        TokenScorer(bi, precision="fp32").similarities(pairs)


def test_the_first_reading_is_the_cosine_and_scores_have_its_scale(bi, pairs):
    cosines = BiScorer(bi, precision="fp32").score(pairs)
    scorer = TokenScorer(bi, precision="fp32")
    scores = scorer.score(pairs)
    np.testing.assert_allclose(scorer.similarities(pairs)[:, 0], cosines, atol=10 * model_rounding(bi))
    np.testing.assert_allclose([scores.mean(), scores.std()], [cosines.mean(), cosines.std()], rtol=1e-5)
    assert scores.dtype == np.float32
    assert np.abs(scores - cosines).max() > 0.01


def test_ranks_read_their_shares_with_the_weights_of_all(bi, pairs, monkeypatch, tmp_path):
    cache = TokenCache(tmp_path)
    whole = TokenScorer(bi, precision="fp32", cache=cache).similarities(pairs)
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    parts = []
    for rank in range(3):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(distributed, "concatenate", lambda part: part)
        parts.append(TokenScorer(bi, precision="fp32", cache=cache).similarities(pairs))
    assert [len(part) for part in parts] == [13, 14, 14]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=10 * model_rounding(bi))


def test_frequent_tokens_weigh_little_and_those_of_all_texts_nothing(bi, tmp_path):
    texts = ["a cat sleeps", "a dog sleeps", "a dog runs runs runs"]
    rows = Dataset.from_dict({"sentence1": texts, "sentence2": texts})
    tokens = TokenCache(tmp_path).sentences(bi, rows).tokens
    weights = inverse_document_frequencies(tokens)
    with_it = {
        token: sum(token in tokens.ids[tokens.offsets[i] : tokens.offsets[i + 1]] for i in range(len(texts)))
        for token in set(tokens.ids.tolist())
    }
    for token, n in with_it.items():
        assert weights[token] == pytest.approx(math.log(4 / (n + 1)))
    assert weights[tokens.ids[0]] == 0.0  # the special token that every text begins with


def test_late_interaction_leaves_out_what_has_no_weight():
    draw = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 3, 8, generator=draw), torch.randn(2, 4, 8, generator=draw)
    weights = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.0, 1.0, 0.5]] * 2)
    found = late_interaction(first, second, *weights)
    kept = late_interaction(
        first[:1, :2], second[:1, [0, 2, 3]], torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 1.0, 0.5]])
    )
    assert found[0] == pytest.approx(float(kept), abs=1e-6)
    assert found[1] == 0.0
    assert late_interaction(first[:1], first[:1], weights[0][:1], weights[0][:1]) == pytest.approx(1.0, abs=1e-6)


def test_similarities_count_alike_on_the_scale_of_the_first():
    similarities = np.array([[0.2, 10.0], [0.4, 30.0], [0.9, 20.0]], np.float32)
    mean = mean_similarity(similarities)
    standard = (similarities - similarities.mean(0)) / similarities.std(0)
    assert mean.mean() == pytest.approx(0.5, abs=1e-6)
    assert mean.std() == pytest.approx(similarities[:, 0].std(), rel=1e-5)
    assert np.corrcoef(mean, standard.mean(1))[0, 1] == pytest.approx(1.0, abs=1e-6)


def test_a_similarity_that_is_the_same_of_all_pairs_says_nothing():
    similarities = np.array([[0.2, 0.5], [0.4, 0.5], [0.9, 0.5]], np.float32)
    np.testing.assert_allclose(mean_similarity(similarities), similarities[:, 0], rtol=1e-6)
    np.testing.assert_allclose(mean_similarity(similarities[:, ::-1]), 0.5, rtol=1e-6)


def test_a_model_without_tokens_is_refused(tiny_bi_encoder, pairs, monkeypatch):
    model = SentenceTransformer(tiny_bi_encoder, device="cpu")
    monkeypatch.setattr(model[0], "forward", lambda features: {"sentence_embedding": torch.ones(len(features), 8)})
    with pytest.raises(InputError, match="bi_labels cosine"):
        TokenScorer(model, precision="fp32").score(pairs)
