"""Chosen candidates as a data set of pairs on disk."""

from collections.abc import Iterator
from pathlib import Path

from datasets import Dataset

from transencoder.mining.candidates import Candidates
from transencoder.mining.piles import Piles
from transencoder.pairs.checks import BadRows
from transencoder.pairs.rows import Row
from transencoder.pairs.store import store_rows

_BLOCK_PAIRS = 4096


def write_pairs(chosen: Candidates, piles: Piles, folder: Path) -> Dataset:
    """Write the texts of pairs to `<fingerprint>.arrow` in a folder.

    Returns:
        `sentence1` and `sentence2`, memory-mapped.
    """
    nothing_skipped = BadRows("mined pairs", skip=False, path=None)
    columns = ("sentence1", "sentence2")
    return store_rows(_rows(chosen, piles), columns, folder, "mined pairs", nothing_skipped, drop=False)


def _rows(chosen: Candidates, piles: Piles) -> Iterator[Row]:
    for start in range(0, len(chosen), _BLOCK_PAIRS):
        rows = slice(start, start + _BLOCK_PAIRS)
        sides = piles.first.texts[chosen.first[rows]]["text"], piles.second.texts[chosen.second[rows]]["text"]
        for number, texts in enumerate(zip(*sides, strict=True), start + 1):
            yield Row(number, texts)
