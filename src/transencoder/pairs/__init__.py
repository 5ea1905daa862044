"""Readers of pairs and sentences: rows are checked, and the result is memory-mapped from disk.

A `Source` says where rows come from and how they are read: a file, stdin, a `datasets.Dataset`, a folder in the hub's
layout or a hub id. `read_pairs` and `read_sentences` take its fields as keywords; the other readers take a `Source`:
`read_classes` reads pairs with classes, `read_candidates` queries with lists of candidates, and `read_rows` the columns
of `PAIRS`, of `DOCUMENTS` (texts with ids) or of `RELEVANCE` (which documents answer which queries).
"""

from transencoder.pairs.classes import ClassPairs, read_classes
from transencoder.pairs.content import (
    drop_duplicates,
    find_duplicates,
    fingerprint,
    pair_keys,
    row_hashes,
    rows_of_pairs,
    text_hashes,
    text_statistics,
)
from transencoder.pairs.read import (
    DOCUMENTS,
    PAIRS,
    RELEVANCE,
    read_candidates,
    read_pairs,
    read_rows,
    read_sentences,
)
from transencoder.pairs.rows import BadRows, Row
from transencoder.pairs.source import Source
from transencoder.pairs.store import cache_folder_for_rows, store_rows

__all__ = [
    "DOCUMENTS",
    "PAIRS",
    "RELEVANCE",
    "BadRows",
    "ClassPairs",
    "Row",
    "Source",
    "cache_folder_for_rows",
    "drop_duplicates",
    "find_duplicates",
    "fingerprint",
    "pair_keys",
    "read_candidates",
    "read_classes",
    "read_pairs",
    "read_rows",
    "read_sentences",
    "row_hashes",
    "rows_of_pairs",
    "store_rows",
    "text_hashes",
    "text_statistics",
]
