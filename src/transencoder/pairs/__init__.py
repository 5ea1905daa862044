"""Pairs and sentences: read, checked, without surprises, memory-mapped from disk.

`read_pairs` and `read_sentences` take a file, stdin, a `datasets.Dataset`, a folder in the hub's layout or a
hub id; `read_candidates` reads queries with lists of candidates as pairs; `fingerprint` names the rows' content
whatever they were read from; `read_classes` reads pairs with classes; `read_documents` reads texts with ids and
`read_relevance` which documents answer which queries; `drop_duplicates` keeps the first of equal pairs;
`text_statistics` counts a text.
"""

from .candidates import read_candidates
from .classes import ClassPairs, read_classes
from .duplicates import drop_duplicates
from .fingerprints import fingerprint
from .read import read_pairs, read_sentences
from .retrieval import read_documents, read_relevance
from .statistics import text_statistics

__all__ = [
    "ClassPairs",
    "drop_duplicates",
    "fingerprint",
    "read_candidates",
    "read_classes",
    "read_documents",
    "read_pairs",
    "read_relevance",
    "read_sentences",
    "text_statistics",
]
