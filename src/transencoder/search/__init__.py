"""Search: embed a corpus into an index on disk, find and re-rank documents, cluster near-duplicates."""

from transencoder.search.build import build_index, embed_shard, embedding_parts
from transencoder.search.duplicates import Duplicates, Threshold, find_duplicates
from transencoder.search.embedder import Embedder, load_embedder
from transencoder.search.index import Hit, SearchIndex, open_index
from transencoder.search.record import Record
from transencoder.search.relevance import Relevance, measure, relevance_of
from transencoder.search.vectors import VectorPrecision

__all__ = [
    "Duplicates",
    "Embedder",
    "Hit",
    "Record",
    "Relevance",
    "SearchIndex",
    "Threshold",
    "VectorPrecision",
    "build_index",
    "embed_shard",
    "embedding_parts",
    "find_duplicates",
    "load_embedder",
    "measure",
    "open_index",
    "relevance_of",
]
