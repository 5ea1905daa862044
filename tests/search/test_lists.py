"""The lists of an inverted file: what faiss finds in them is what was written."""

import weakref

import faiss
import numpy as np

from transencoder.search.lists import attach_lists, detach_lists, write_lists


def test_each_list_has_its_codes_and_rows(tmp_path, monkeypatch):
    """Was: the lists' sizes were read from memory that had been freed, which a million embeddings did not survive."""
    given, own, set_sizes = [], faiss.swig_ptr, faiss.OnDiskInvertedLists.set_all_lists_sizes

    def pointer_to(array):
        given.append(weakref.ref(array))
        return own(array)

    def set_sizes_of_living(*arguments):
        assert given.pop()() is not None
        set_sizes(*arguments)

    monkeypatch.setattr(faiss, "swig_ptr", pointer_to)
    monkeypatch.setattr(faiss.OnDiskInvertedLists, "set_all_lists_sizes", set_sizes_of_living)
    n, width, n_lists = 300, 4, 400
    random = np.random.default_rng(0)
    embeddings = random.normal(size=(n, width)).astype(np.float32)
    clusters = random.choice([0, 7, n_lists - 1], n).astype(np.int32)
    blocks = (embeddings[start : start + 64].view(np.uint8) for start in range(0, n, 64))
    write_lists(tmp_path / "lists", clusters, blocks, n_lists, 4 * width)
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, n_lists, faiss.METRIC_INNER_PRODUCT)
    attach_lists(index, tmp_path / "lists", n)
    assert index.ntotal == n and given == []
    assert [index.invlists.list_size(i) for i in range(n_lists)] == np.bincount(clusters, minlength=n_lists).tolist()
    for cluster in (0, 7, n_lists - 1):
        rows = np.flatnonzero(clusters == cluster)
        np.testing.assert_array_equal(
            faiss.rev_swig_ptr(index.invlists.get_ids(cluster), len(rows)), rows, "in the order of rows"
        )
        codes = faiss.rev_swig_ptr(index.invlists.get_codes(cluster), len(rows) * 4 * width)
        np.testing.assert_array_equal(codes.view(np.float32).reshape(-1, width), embeddings[rows])
    detach_lists(index)
    assert index.ntotal == 0 and index.invlists.list_size(7) == 0
