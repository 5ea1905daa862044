"""The lists of an inverted file, stored on disk: for each cluster, the codes of its embeddings, then their rows.

faiss searches them through a memory map: opening them costs nothing, and memory holds only what queries touch.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from transencoder import progress
from transencoder.files import reserve
from transencoder.runs.files import DamagedError

_ROW_BYTES = 8


def write_lists(path: Path, clusters: np.ndarray, blocks: Iterable[np.ndarray], n_lists: int, code_size: int) -> None:
    """Write n codes into the lists of their clusters, in row order. The lists' sizes end the file.

    Args:
        path: The file.
        clusters: List of each code, int32 (n,).
        blocks: Blocks of all n codes in row order, uint8 (rows, code_size) each.
        n_lists: Number of lists.
        code_size: Bytes per code.
    """
    sizes = np.bincount(clusters, minlength=n_lists)
    starts = np.concatenate([[0], np.cumsum(sizes * (code_size + _ROW_BYTES))])
    path.unlink(missing_ok=True)
    reserve(path, int(starts[-1]) + 8 * n_lists)
    file = np.memmap(path, np.uint8, "r+")
    file[starts[-1] :] = sizes.astype("<i8").view(np.uint8)
    n_written, first_row = np.zeros(n_lists, np.int64), 0
    with progress.task("write lists", len(clusters)) as advance:
        for codes in blocks:
            own = clusters[first_row : first_row + len(codes)]
            order = np.argsort(own, kind="stable")
            present, firsts = np.unique(own[order], return_index=True)
            for cluster, members in zip(present.tolist(), np.split(order, firsts[1:]), strict=True):
                place = starts[cluster] + n_written[cluster] * code_size
                file[place : place + len(members) * code_size] = codes[members].reshape(-1)
                place = starts[cluster] + sizes[cluster] * code_size + n_written[cluster] * _ROW_BYTES
                rows = (first_row + members).astype("<i8").view(np.uint8)
                file[place : place + len(rows)] = rows
                n_written[cluster] += len(members)
            first_row += len(codes)
            advance(len(codes))
    file.flush()


def attach_lists(index: Any, path: Path, n: int) -> None:
    """Attach the lists that `write_lists` wrote for n codes to an inverted file without lists.

    Raises:
        DamagedError: The file does not hold such lists.
    """
    n_lists, code_size = index.nlist, index.code_size
    n_bytes = n * (code_size + _ROW_BYTES)
    size = path.stat().st_size
    if size != n_bytes + 8 * n_lists:
        raise DamagedError(f"{path} has {size} bytes instead of {n_bytes + 8 * n_lists}")
    with path.open("rb") as file:
        file.seek(n_bytes)
        sizes = np.fromfile(file, "<i8")
    if (sizes < 0).any() or (sizes > n).any() or sizes.sum() != n:
        raise DamagedError(f"{path} has lists of {sizes.sum()} embeddings instead of {n}")
    lists: Any = faiss.OnDiskInvertedLists()
    lists.nlist, lists.code_size, lists.totsize = n_lists, code_size, n_bytes
    lists.filename, lists.read_only = str(path.absolute()), True
    lists.lists.resize(n_lists)
    kept = sizes.astype(np.uint64)  # faiss's pointer does not keep the array alive
    lists.set_all_lists_sizes(faiss.swig_ptr(kept))
    lists.do_mmap()
    index.replace_invlists(lists, True)
    lists.this.disown()  # the index frees them
    index.ntotal = n


def detach_lists(index: Any) -> None:
    """Replace the lists of an inverted file by empty ones: it is saved without its lists."""
    lists: Any = faiss.ArrayInvertedLists(index.nlist, index.code_size)
    index.replace_invlists(lists, True)
    lists.this.disown()
    index.ntotal = 0
