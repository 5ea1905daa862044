"""Embeddings in faiss are found by their cosines, in every precision, exactly or nearly so."""

from dataclasses import replace

import faiss
import numpy as np
import pytest
from sentence_transformers.util import quantize_embeddings

from tests.rounding import rounding
from transencoder.runs.files import DamagedError
from transencoder.search import vectors
from transencoder.search.vectors import load_vectors, make_vectors

N, WIDTH = 600, 20
"""20 is no multiple of 8: bits are filled up."""


def unit(n, seed):
    rows = np.random.default_rng(seed).normal(size=(n, WIDTH)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def embeddings():
    return unit(N, 0)


@pytest.fixture(scope="module")
def queries():
    return unit(30, 1)


def best(scores, k):
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, rows, 1), rows


def test_floats_are_found_exactly(embeddings, queries):
    scores, rows = make_vectors(embeddings).search(queries, 10)
    expected, expected_rows = best(queries @ embeddings.T, 10)
    np.testing.assert_array_equal(rows, expected_rows)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=rounding(WIDTH))


def test_bytes_are_those_of_sentence_transformers_and_queries_are_not_rounded(embeddings, queries):
    found = make_vectors(embeddings, "int8")
    ranges = np.stack([embeddings.min(axis=0), embeddings.max(axis=0)])
    codes = quantize_embeddings(embeddings, "uint8", ranges=ranges)
    np.testing.assert_array_equal(faiss.vector_to_array(found.index.codes).reshape(N, WIDTH), codes)
    decoded = ranges[0] + (codes + 0.5) * (ranges[1] - ranges[0]) / 255
    scores, rows = found.search(queries, 10)
    np.testing.assert_allclose(scores, best(queries @ decoded.T, 10)[0], rtol=0, atol=rounding(WIDTH))
    assert (
        np.mean([len({*a} & {*b}) / 10 for a, b in zip(rows, best(queries @ embeddings.T, 10)[1], strict=True)]) > 0.95
    )


def test_bits_are_rescored_by_the_querys_own_numbers(embeddings, queries):
    found = make_vectors(embeddings, "binary")
    signs = np.where(embeddings > 0, 1.0, -1.0) / WIDTH**0.5
    scores, rows = found.search(queries, N // 10)  # all are candidates
    expected, expected_rows = best((queries @ signs.T).astype(np.float32), N // 10)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=rounding(WIDTH))
    assert (np.diff(scores, axis=1) <= 0).all() and np.abs(scores).max() <= 1
    few, _ = found.search(queries, 3)
    assert few.mean() > 0.9 * expected[:, :3].mean(), "30 candidates by Hamming distance hold most of the best"


@pytest.mark.parametrize("precision", ["float32", "int8", "binary"])
def test_what_is_written_is_what_is_read(precision, embeddings, queries, tmp_path):
    made = make_vectors(embeddings, precision)
    made.save(tmp_path / "v.faiss")
    read = load_vectors(tmp_path / "v.faiss", precision, made.approximation, n=N, dimensions=WIDTH)
    for first, second in zip(made.search(queries, 5), read.search(queries, 5), strict=True):
        np.testing.assert_array_equal(first, second)
    bytes_a_vector = {"float32": 4 * WIDTH, "int8": WIDTH, "binary": 3}[precision]
    assert (tmp_path / "v.faiss").stat().st_size == pytest.approx(N * bytes_a_vector, abs=400)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_many_are_searched_approximately_and_nearly_all_is_found(precision, embeddings, queries, monkeypatch, tmp_path):
    all_scores, all_rows = make_vectors(embeddings, precision).search(queries, N)
    monkeypatch.setattr(vectors, "EXACT_UP_TO", 500)
    exact = faiss.knn(queries, embeddings, 10, metric=faiss.METRIC_INNER_PRODUCT)[1]
    found = make_vectors(embeddings, precision)
    about = found.approximation
    assert about.n_lists == 97 and 6 <= about.n_probe <= 97 and 0.99 <= about.recall_at_10 <= 1
    scores, rows = found.search(queries, 10)
    places = (all_rows[:, None] == rows[:, :, None]).argmax(axis=2)
    np.testing.assert_allclose(scores, np.take_along_axis(all_scores, places, 1), rtol=0, atol=rounding(WIDTH))
    assert np.mean([len({*a} & {*b}) / 10 for a, b in zip(rows, exact, strict=True)]) > 0.9
    found.save(tmp_path / "v.faiss")
    read = load_vectors(tmp_path / "v.faiss", precision, about, n=N, dimensions=WIDTH)
    assert read.index.nprobe == about.n_probe
    np.testing.assert_array_equal(read.search(queries, 10)[1], rows)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_clusters_of_another_index_are_refused(precision, embeddings, monkeypatch, tmp_path):
    monkeypatch.setattr(vectors, "EXACT_UP_TO", 500)
    found = make_vectors(embeddings, precision)
    found.save(tmp_path / "v.faiss")
    content = (tmp_path / "v.faiss").read_bytes()
    (tmp_path / "v.faiss").write_bytes(content[:-8] + (N + 7).to_bytes(8, "little"))  # a row that is not there
    for about, message in (
        (found.approximation, "has each row once False instead of True"),
        (replace(found.approximation, n_probe=98), "has probed clusters"),
        (replace(found.approximation, n_lists=98), "has clusters|does not hold"),
        (None, "does not hold"),
    ):
        with pytest.raises(DamagedError, match=message):
            load_vectors(tmp_path / "v.faiss", precision, about, n=N, dimensions=WIDTH)


def test_more_than_there_are_and_constant_numbers(queries):
    few = unit(3, 2)
    few[:, 0] = 0.5
    for precision in ("float32", "int8", "binary"):
        scores, rows = make_vectors(few, precision).search(queries, 10)
        assert scores.shape == rows.shape == (30, 3)
        assert np.isfinite(scores).all() and (np.sort(rows) == [0, 1, 2]).all()
