"""Pairs to train on from plain sentences: from paraphrases to strangers, evenly by what the start says of them.

`mine_pairs` reads as the algorithm, `mine` finds sentences and start by name. Each source of candidates is a file with
one function: rows of sentences in, pairs of rows out.
"""

from .algorithm import Mined, check_numbers, default_n_pairs, mine_pairs
from .named import mine, started
from .piles import Place

__all__ = ["Mined", "Place", "check_numbers", "default_n_pairs", "mine", "mine_pairs", "started"]
