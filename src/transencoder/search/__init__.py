"""Search: a corpus embedded into an index on disk, documents found and re-ranked, near-duplicates in clusters."""

from transencoder.search.build import build_index
from transencoder.search.duplicates import Duplicates, find_duplicates
from transencoder.search.embedding import Embedder, load_embedder
from transencoder.search.index import Hit, SearchIndex, open_index
from transencoder.search.quality import Relevance, measure, relevance_of
from transencoder.search.record import Record
from transencoder.search.vectors import VectorPrecision

__all__ = [
    "Duplicates",
    "Embedder",
    "Hit",
    "Record",
    "Relevance",
    "SearchIndex",
    "VectorPrecision",
    "build_index",
    "find_duplicates",
    "load_embedder",
    "measure",
    "open_index",
    "relevance_of",
]
