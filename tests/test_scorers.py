"""Our scores are plain sentence-transformers' scores, with less work, whatever happens on the way."""

import contextlib
import logging

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from tests.rounding import model_rounding, rounding
from transencoder import progress, scorers
from transencoder.devices import has_bf16, uses_bf16
from transencoder.errors import InputError
from transencoder.scorers import BiScorer, CrossScorer, MeanScorer
from transencoder.tokens import TokenCache

N_PAIRS = 60


class FixedScorer:
    def __init__(self, scores: list[float]) -> None:
        self.scores = np.array(scores, dtype=np.float32)

    def score(self, pairs: Dataset) -> np.ndarray:
        return self.scores


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return TokenCache(tmp_path_factory.mktemp("tokens"))


@pytest.fixture(scope="module")
def pairs(tiny_pairs):
    """Repeated sentences on both sides, and lengths that differ."""
    rows = tiny_pairs.select(range(N_PAIRS))
    first = [" ".join([text] * (1 + i % 3)) for i, text in enumerate(rows["sentence1"])]
    second = [first[i - 1] if i % 4 == 0 else text for i, text in enumerate(rows["sentence2"])]
    return Dataset.from_dict({"sentence1": first, "sentence2": second})


@pytest.fixture(scope="module")
def swapped(pairs):
    return Dataset.from_dict({"sentence1": pairs["sentence2"], "sentence2": pairs["sentence1"]})


def plain_cosines(model: SentenceTransformer, pairs: Dataset, **options: str) -> np.ndarray:
    first, second = (
        model.encode(list(pairs[column]), **options).astype(np.float64) for column in ("sentence1", "sentence2")
    )
    return (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)


def as_tuples(pairs: Dataset) -> list[tuple[str, str]]:
    return list(zip(pairs["sentence1"], pairs["sentence2"], strict=True))


def scorer_of(model, **options):
    return (BiScorer if isinstance(model, SentenceTransformer) else CrossScorer)(model, precision="fp32", **options)


def plain_scores(model, pairs):
    if isinstance(model, SentenceTransformer):
        return plain_cosines(model, pairs)
    return model.predict(as_tuples(pairs))


@pytest.fixture(params=["bi", "cross"])
def model(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(("batch_tokens", "window"), [(1, 1 << 18), (100, 16), (8192, 1 << 18)])
def test_scores_are_plain_sentence_transformers_in_the_order_of_rows(
    model, pairs, cache, batch_tokens, window, monkeypatch
):
    monkeypatch.setattr(scorers, "_WINDOW", window)
    scores = scorer_of(model, cache=cache, batch_tokens=batch_tokens).score(pairs)
    assert scores.dtype == np.float32 and np.ptp(scores) > 0.01
    np.testing.assert_allclose(scores, plain_scores(model, pairs), rtol=0, atol=model_rounding(model))


def test_swapping_a_pair_leaves_the_bi_score(bi, pairs, swapped, cache):
    scorer = BiScorer(bi, precision="fp32", cache=cache)
    np.testing.assert_allclose(scorer.score(pairs), scorer.score(swapped), rtol=0, atol=model_rounding(bi))


def test_a_sentence_with_itself_scores_one_and_no_more(bi, pairs, cache):
    same = Dataset.from_dict({"sentence1": pairs["sentence1"], "sentence2": pairs["sentence1"]})
    scores = BiScorer(bi, precision="fp32", cache=cache).score(same)
    assert scores.max() <= 1
    np.testing.assert_allclose(scores, 1, rtol=0, atol=rounding(bi.get_embedding_dimension()))


def test_both_orders_are_symmetric_and_their_mean(cross, pairs, swapped, cache):
    one = CrossScorer(cross, precision="fp32", cache=cache)
    both = CrossScorer(cross, precision="fp32", cache=cache, both_orders=True)
    assert np.abs(one.score(pairs) - one.score(swapped)).max() > 1e-4
    np.testing.assert_allclose(both.score(pairs), both.score(swapped), rtol=0, atol=model_rounding(cross))
    expected = (cross.predict(as_tuples(pairs)) + cross.predict(as_tuples(swapped))) / 2
    np.testing.assert_allclose(both.score(pairs), expected, rtol=0, atol=model_rounding(cross))


def test_each_distinct_sentence_is_encoded_once(bi, pairs, cache, monkeypatch):
    seen: list[int] = []
    own = SentenceTransformer.forward

    def forward(self, features, **kwargs):
        seen.append(len(features["input_ids"]))
        return own(self, features, **kwargs)

    monkeypatch.setattr(SentenceTransformer, "forward", forward)
    BiScorer(bi, cache=cache, batch_tokens=200).score(pairs)
    assert sum(seen) == len({*pairs["sentence1"], *pairs["sentence2"]}) < 2 * N_PAIRS
    assert len(seen) > 2


def test_batches_hold_at_most_batch_tokens(cross, pairs, cache, monkeypatch):
    sizes: list[int] = []
    own = CrossEncoder.forward

    def forward(self, features, **kwargs):
        sizes.append(features["input_ids"].numel())
        return own(self, features, **kwargs)

    monkeypatch.setattr(CrossEncoder, "forward", forward)
    CrossScorer(cross, cache=cache, batch_tokens=256).score(pairs)
    assert max(sizes) <= 256
    assert sum(sizes) < 1.2 * cache.pairs(cross, pairs).lengths.sum(), "rows of like length share a batch"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
        RuntimeError("unable to mmap 4096 bytes: Cannot allocate memory (12)"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_backs_off_when_memory_runs_out(cross, pairs, cache, monkeypatch, caplog, error):
    expected = CrossScorer(cross, precision="fp32", cache=cache).score(pairs)
    own, done = CrossEncoder.forward, []

    def forward(self, features, **kwargs):
        if features["input_ids"].numel() > 200:
            raise error
        done.append(len(features["input_ids"]))
        return own(self, features, **kwargs)

    monkeypatch.setattr(CrossEncoder, "forward", forward)
    with caplog.at_level(logging.WARNING, "transencoder"):
        scores = CrossScorer(cross, precision="fp32", cache=cache, batch_tokens=1000).score(pairs)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=model_rounding(cross))
    assert sum(done) == N_PAIRS
    assert len(caplog.messages) == 3, "1000 -> 500 -> 250 -> 125, and never up again"
    assert "125 tokens" in caplog.messages[-1]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("shapes differ")])
def test_other_errors_and_a_single_row_without_memory_end_it(cross, pairs, cache, monkeypatch, error):
    def forward(self, features, **kwargs):
        raise error

    monkeypatch.setattr(CrossEncoder, "forward", forward)
    with pytest.raises(type(error), match=str(error)):
        CrossScorer(cross, cache=cache).score(pairs)


def test_nan_scores_name_the_pairs(model, pairs, cache):
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("output.dense.weight"):
                weight.fill_(float("nan"))
    scorer = scorer_of(model, cache=cache)
    with pytest.raises(InputError) as caught:
        scorer.score(pairs)
    message = str(caught.value)
    assert f"{N_PAIRS} of {N_PAIRS} scores are not finite" in message
    assert f"row 0: {pairs[0]['sentence1']!r} / {pairs[0]['sentence2']!r}; row 1: " in message
    assert "precision fp32" in message
    if isinstance(scorer, BiScorer):  # was: a KeyError, there is no second side
        with pytest.raises(InputError, match=r"rows of embeddings are .* row 0: '[a-z ]+'; row 1: "):
            scorer.embed_sides(pairs.select_columns("sentence1"))


@pytest.mark.parametrize("include_prompt", [True, False])
def test_default_prompt_of_a_bi_encoder(bi, pairs, cache, include_prompt):
    without = plain_cosines(bi, pairs)
    bi.prompts, bi.default_prompt_name = {"sts": "balo dalo: ", "other": "kama "}, "sts"
    bi[1] = Pooling(32, pooling_mode="mean", include_prompt=include_prompt)
    scores = BiScorer(bi, precision="fp32", cache=cache).score(pairs)
    np.testing.assert_allclose(scores, plain_cosines(bi, pairs), rtol=0, atol=model_rounding(bi))
    assert np.abs(scores - without).max() > 1e-3
    given = BiScorer(bi, precision="fp32", cache=cache, prompt="kama ").score(pairs)
    np.testing.assert_allclose(given, plain_cosines(bi, pairs, prompt_name="other"), rtol=0, atol=model_rounding(bi))
    none = BiScorer(bi, precision="fp32", cache=cache, prompt="").score(pairs)
    np.testing.assert_allclose(none, without, rtol=0, atol=model_rounding(bi))


def test_a_model_keeps_the_modes_of_its_parts(bi, pairs):
    """Was: a fresh model, whose outermost part alone is in training mode, came back with its dropout on."""
    bi.eval()
    bi.training = True
    BiScorer(bi, precision="fp32").score(pairs)
    assert bi.training and not any(part.training for each in bi for part in each.modules())


def test_embeddings_are_cut_as_the_model_says(bi, pairs):
    bi.truncate_dim = 16
    np.testing.assert_allclose(
        BiScorer(bi, precision="fp32").score(pairs), plain_cosines(bi, pairs), rtol=0, atol=model_rounding(bi)
    )


def test_half_precision_is_scored_as_it_is(bi, cross, pairs):
    for model, scorer in ((bi, BiScorer), (cross, CrossScorer)):
        model.half()
        assert np.isfinite(scorer(model, precision="bf16").score(pairs)).all()


def test_without_a_cache_tokens_go_with_the_call(cross, pairs, cache, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scorer = CrossScorer(cross, precision="fp32")
    scores = scorer.score(pairs)
    np.testing.assert_array_equal(scorer.score(pairs), scores)
    np.testing.assert_array_equal(CrossScorer(cross, precision="fp32", cache=cache).score(pairs), scores)
    assert not [*tmp_path.iterdir()]


def test_default_prompt_of_a_cross_encoder(cross, pairs, cache):
    without = cross.predict(as_tuples(pairs))
    cross.prompts, cross.default_prompt_name = {"sts": "balo dalo: "}, "sts"
    scores = CrossScorer(cross, precision="fp32", cache=cache).score(pairs)
    np.testing.assert_allclose(scores, cross.predict(as_tuples(pairs)), rtol=0, atol=model_rounding(cross))
    assert np.abs(scores - without).max() > 1e-4


@pytest.mark.parametrize("prompt", [None, "kama "])
def test_queries_and_documents_have_prompts_of_their_own(bi, pairs, cache, prompt):
    scorer = BiScorer(bi, precision="fp32", cache=cache, prompt=prompt, document_prompt="balo dalo: ")
    first = bi.encode(list(pairs["sentence1"]), prompt=prompt)
    second = bi.encode(list(pairs["sentence2"]), prompt="balo dalo: ")
    expected = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    np.testing.assert_allclose(scorer.score(pairs), expected, rtol=0, atol=model_rounding(bi))
    views = pairs.select_columns(["sentence1", "sentence2"]).add_column("sentence3", pairs["sentence2"][:])
    of_views = bi.encode(list(pairs["sentence2"]), prompt=prompt)
    for found, plain in zip(scorer.embed_sides(views), (first, second, of_views), strict=True):
        np.testing.assert_allclose(found, plain, rtol=0, atol=model_rounding(bi, plain))
    same = BiScorer(bi, precision="fp32", cache=cache, prompt="kama ", document_prompt="kama ").score(pairs)
    np.testing.assert_allclose(
        same, BiScorer(bi, precision="fp32", cache=cache, prompt="kama ").score(pairs), atol=model_rounding(bi)
    )


def test_large_results_lie_on_disk(bi, pairs, cache, monkeypatch, tmp_path):
    scorer = BiScorer(bi, precision="fp32", cache=cache)
    ((expected, _), _), expected_scores = scorer._embed_sides(pairs, tmp_path), scorer.score(pairs)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(scorers, "_IN_MEMORY_BYTES", expected.nbytes - 1)
    (embeddings, _), _ = scorer._embed_sides(pairs, tmp_path)
    assert isinstance(embeddings, np.memmap)
    assert [path.name for path in tmp_path.iterdir()] == ["embeddings-0.npy"]
    assert np.array_equal(embeddings, expected)
    assert np.array_equal(scorer.score(pairs), expected_scores)


def test_dropout_is_off_and_the_models_mode_comes_back(model, pairs, cache):
    scorer = scorer_of(model, cache=cache)
    model.train()
    assert np.array_equal(scorer.score(pairs), scorer.score(pairs))
    assert model.training
    model.eval()
    scorer.score(pairs)
    assert not model.training


def test_no_pairs(bi, cross, cache):
    none = Dataset.from_dict({"sentence1": [], "sentence2": []})
    for scorer in (BiScorer(bi, cache=cache), CrossScorer(cross, cache=cache, both_orders=True)):
        assert scorer.score(none).shape == (0,)


def test_progress_counts_every_row(cross, pairs, cache):
    told: list[tuple[str, int]] = []
    n_done: list[int] = []

    def count(description, total):
        told.append((description, total))
        return contextlib.nullcontext(n_done.append)

    CrossScorer(cross, cache=cache).score(pairs)
    with progress.use(count):
        CrossScorer(cross, cache=cache, batch_tokens=100).score(pairs)
    assert told == [("score pairs", N_PAIRS)]
    assert sum(n_done) == N_PAIRS


def test_a_cross_encoder_of_several_outputs_is_refused(tiny_bi_encoder):
    with pytest.raises(InputError, match="has 3 outputs"):
        CrossScorer(CrossEncoder(tiny_bi_encoder, num_labels=3, device="cpu"))


def test_mean_of_one_scorer_is_that_scorer(cross, pairs, cache):
    scorer = CrossScorer(cross, cache=cache)
    assert np.array_equal(MeanScorer([scorer]).score(pairs), scorer.score(pairs))
    assert np.array_equal(MeanScorer([scorer], [7.0]).score(pairs), scorer.score(pairs))


def test_mean_of_scorers(pairs):
    pairs = pairs.select(range(3))
    parts = [FixedScorer([0.0, 1.0, 0.5]), FixedScorer([1.0, 0.0, 0.5]), FixedScorer([0.5, 0.5, 0.5])]
    np.testing.assert_allclose(MeanScorer(parts).score(pairs), [0.5, 0.5, 0.5], atol=1e-7)
    weighted = MeanScorer(parts, [2, 1, 1]).score(pairs)
    np.testing.assert_allclose(weighted, [0.375, 0.625, 0.5], atol=1e-7)
    assert weighted.dtype == np.float32
    np.testing.assert_allclose(MeanScorer(parts, [0.2, 0.1, 0.1]).score(pairs), weighted, atol=1e-7)


@pytest.mark.parametrize(
    ("n", "weights"), [(0, None), (2, [1.0]), (2, [1.0, 0.0]), (2, [1.0, -1.0]), (2, [1.0, float("nan")])]
)
def test_wrong_weights_are_refused(n, weights):
    with pytest.raises(InputError, match="one finite positive weight for each scorer"):
        MeanScorer([FixedScorer([0.5])] * n, weights)


def test_without_onednn_there_is_no_bf16(monkeypatch):
    """Was: an AttributeError, as on Macs, whose torch has no such operations."""
    monkeypatch.setattr("torch.ops.mkldnn", object())
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "DEFAULT")
    assert not has_bf16("cpu")


def test_precision(bi, pairs, cache):
    assert uses_bf16("cpu", "bf16")
    assert not uses_bf16("cpu", "fp32")
    assert uses_bf16("cpu", "auto") == has_bf16("cpu")
    exact, rounded = (BiScorer(bi, precision=name, cache=cache).score(pairs) for name in ("fp32", "bf16"))
    assert 1e-6 < np.abs(exact - rounded).max() < 0.05
