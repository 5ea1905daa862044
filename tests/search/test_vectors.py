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
    monkeypatch.setattr(vectors, "_BLOCK", 128)
    exact = faiss.knn(queries, embeddings, 10, metric=faiss.METRIC_INNER_PRODUCT)[1]
    found = make_vectors(embeddings, precision, lists=tmp_path / "v.lists")
    about = found.approximation
    assert about.n_lists == 97 and 6 <= about.n_probe <= 97 and 0.99 <= about.recall_at_10 <= 1
    scores, rows = found.search(queries, 10)
    places = (all_rows[:, None] == rows[:, :, None]).argmax(axis=2)
    np.testing.assert_allclose(scores, np.take_along_axis(all_scores, places, 1), rtol=0, atol=rounding(WIDTH))
    assert np.mean([len({*a} & {*b}) / 10 for a, b in zip(rows, exact, strict=True)]) > 0.9
    found.save(tmp_path / "v.faiss")
    np.testing.assert_array_equal(found.search(queries, 10)[1], rows)
    (tmp_path / "moved").mkdir()
    for name in ("v.faiss", "v.lists"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    read = load(tmp_path / "moved", precision, about)
    assert read.index.nprobe == about.n_probe
    np.testing.assert_array_equal(read.search(queries, 10)[1], rows)
    bytes_of_all = N * (WIDTH * (4 if precision == "float32" else 1) + 8)
    assert (tmp_path / "moved" / "v.lists").stat().st_size == bytes_of_all + 8 * about.n_lists
    assert (tmp_path / "moved" / "v.faiss").stat().st_size < 4 * WIDTH * (about.n_lists + 2) + 8 * about.n_lists + 500


def load(folder, precision, about):
    return load_vectors(folder / "v.faiss", precision, about, n=N, dimensions=WIDTH, lists=folder / "v.lists")


def test_lists_are_those_that_faiss_makes(embeddings, queries, monkeypatch, tmp_path):
    monkeypatch.setattr(vectors, "EXACT_UP_TO", 500)
    monkeypatch.setattr(vectors, "_BLOCK", 100)
    found = make_vectors(embeddings, lists=tmp_path / "v.lists")
    found.save(tmp_path / "v.faiss")
    own = faiss.read_index(str(tmp_path / "v.faiss"))
    assert own.ntotal == 0
    own.add(embeddings)
    for first, second in zip(own.search(queries, 20), found.index.search(queries, 20), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_clusters_of_another_index_are_refused(precision, embeddings, queries, monkeypatch, tmp_path):
    monkeypatch.setattr(vectors, "EXACT_UP_TO", 500)
    found = make_vectors(embeddings, precision, lists=tmp_path / "v.lists")
    found.save(tmp_path / "v.faiss")
    for about, message in (
        (replace(found.approximation, n_probe=98), "has probed clusters"),
        (replace(found.approximation, n_lists=98), "has clusters|does not hold"),
        (None, "does not hold"),
    ):
        with pytest.raises(DamagedError, match=message):
            load(tmp_path, precision, about)
    content = np.fromfile(tmp_path / "v.lists", np.uint8)
    sizes = content[-8 * found.approximation.n_lists :].view("<i8")
    for place, change, message in ((0, 1, f"has lists of {N + 1}"), (1, -sizes[1] - 1, "has lists of")):
        damaged = content.copy()
        damaged[-8 * len(sizes) :].view("<i8")[place] += change
        damaged.tofile(tmp_path / "v.lists")
        with pytest.raises(DamagedError, match=message):
            load(tmp_path, precision, found.approximation)
    content[:-1].tofile(tmp_path / "v.lists")
    with pytest.raises(DamagedError, match=f"has {len(content) - 1} bytes instead of {len(content)}"):
        load(tmp_path, precision, found.approximation)
    content.tofile(tmp_path / "v.lists")
    read = load(tmp_path, precision, found.approximation)
    ends = np.cumsum(sizes * (read.index.code_size + 8))
    for end in ends:
        content[end - 8 : end] = np.array([N + 7], "<i8").view(np.uint8)  # a row that is not there
    content.tofile(tmp_path / "v.lists")
    with pytest.raises(DamagedError, match=f"v.lists has row {N + 7}, and there are {N}"):
        load(tmp_path, precision, found.approximation).search(queries, N)


def test_more_than_there_are_and_constant_numbers(queries):
    few = unit(3, 2)
    few[:, 0] = 0.5
    for precision in ("float32", "int8", "binary"):
        scores, rows = make_vectors(few, precision).search(queries, 10)
        assert scores.shape == rows.shape == (30, 3)
        assert np.isfinite(scores).all() and (np.sort(rows) == [0, 1, 2]).all()
