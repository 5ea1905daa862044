"""Pairs to train on from plain sentences: from paraphrases to strangers, evenly by what the base model says of them.

`mine_pairs` reads as the algorithm, `mine` finds sentences and base model by name.
"""

from transencoder.mining.algorithm import Mined, check_numbers, default_n_pairs, mine, mine_pairs, open_workspace
from transencoder.mining.corpus import Workspace

__all__ = ["Mined", "Workspace", "check_numbers", "default_n_pairs", "mine", "mine_pairs", "open_workspace"]
