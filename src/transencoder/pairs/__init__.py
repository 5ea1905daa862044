"""Readers of pairs and sentences: rows are checked, and the result is memory-mapped from disk.

A `Source` says where rows come from and how they are read: a file, stdin, a `datasets.Dataset`, a folder in the hub's
layout or a hub id. `read_pairs` and `read_sentences` take its fields as keywords; the other readers take a `Source`:
`read_classes` reads pairs with classes, `read_candidates` queries with lists of candidates, and `read_rows` the columns
of `PAIRS`, of `DOCUMENTS` (texts with ids) or of `RELEVANCE` (which documents answer which queries).
"""

from transencoder.pairs.classes import ClassPairs as ClassPairs
from transencoder.pairs.classes import read_classes as read_classes
from transencoder.pairs.content import drop_duplicates as drop_duplicates
from transencoder.pairs.content import find_duplicates as find_duplicates
from transencoder.pairs.content import fingerprint as fingerprint
from transencoder.pairs.content import pair_keys as pair_keys
from transencoder.pairs.content import row_hashes as row_hashes
from transencoder.pairs.content import rows_of_pairs as rows_of_pairs
from transencoder.pairs.content import text_hashes as text_hashes
from transencoder.pairs.content import text_statistics as text_statistics
from transencoder.pairs.read import DOCUMENTS as DOCUMENTS
from transencoder.pairs.read import PAIRS as PAIRS
from transencoder.pairs.read import RELEVANCE as RELEVANCE
from transencoder.pairs.read import read_candidates as read_candidates
from transencoder.pairs.read import read_pairs as read_pairs
from transencoder.pairs.read import read_rows as read_rows
from transencoder.pairs.read import read_sentences as read_sentences
from transencoder.pairs.rows import BadRows as BadRows
from transencoder.pairs.rows import Row as Row
from transencoder.pairs.source import Source as Source
from transencoder.pairs.store import cache_folder_for_rows as cache_folder_for_rows
from transencoder.pairs.store import store_rows as store_rows
